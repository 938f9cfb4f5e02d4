"""The stations of a queue, and how they are chained: one after another, or side by side in a group.

Statistics carry the chain and the stage of a station. Stations of one chain are in series: those of the first stage
read the log, and each later stage receives what the stage before it has acknowledged.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from headrace.errors import StationMissingError
from headrace.queue import AnyQueue, AnyStation
from headrace.station import StationStatistics

Result = TypeVar("Result")


def existing_station(queue: AnyQueue, name: str) -> AnyStation:
    """The station; StationMissingError lists the stations that exist."""
    names = queue.stations()
    if name not in names:
        known = f"its stations are: {', '.join(names)}" if names else "create it with: headrace station create"
        raise StationMissingError(f"{queue.path} has no station {name!r}", known)
    return queue.station(name, create=False)


def each_station(queue: AnyQueue, read: Callable[[AnyStation], Result]) -> list[Result]:
    """What `read` returns for each station; a station that is removed meanwhile is left out."""
    found = []
    for name in queue.stations():
        with suppress(StationMissingError):
            found.append(read(queue.station(name, create=False)))
    return found


def in_order(stations: Iterable[StationStatistics]) -> list[StationStatistics]:
    """Sorted so that a chain stays together, its first stage first."""
    return sorted(stations, key=lambda station: (station.chain, station.stage, station.name))


def depth_of(station: StationStatistics, stations: Iterable[StationStatistics]) -> int:
    """How many stages of its chain are ahead of it."""
    return len({other.stage for other in stations if other.chain == station.chain and other.stage < station.stage})


def stations_before(station: StationStatistics, stations: Sequence[StationStatistics]) -> list[str]:
    """The names of the stations directly ahead of it; empty if it reads the log."""
    earlier = [other for other in stations if other.chain == station.chain and other.stage < station.stage]
    nearest = max((other.stage for other in earlier), default=0)
    return sorted(other.name for other in earlier if other.stage == nearest)


def chain_of(queue: AnyQueue, station: AnyStation) -> list[StationStatistics]:
    """Statistics of all stations of its chain, including itself."""
    number = station.terms.chain
    return in_order(found for found in each_station(queue, lambda each: each.statistics()) if found.chain == number)
