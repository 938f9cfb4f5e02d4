"""Which stations a queue has, and how they stand: one behind another, or side by side in a group.

Statistics tell a station's line and stage. Stations of one line are a series; those of its first stage stand at the
log, and each later stage sees what the one before it has put.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from headrace.errors import StationMissingError
from headrace.queue import AnyQueue, AnyStation
from headrace.station import StationStatistics

Told = TypeVar("Told")


def existing(queue: AnyQueue, name: str) -> AnyStation:
    """The station; a name that is not there is refused with those that are."""
    names = queue.stations()
    if name not in names:
        known = f"its stations are: {', '.join(names)}" if names else "add it with: headrace station add"
        raise StationMissingError(f"{queue.path} has no station {name!r}", known)
    return queue.station(name)


def every(queue: AnyQueue, look: Callable[[AnyStation], Told]) -> list[Told]:
    """What `look` tells of each station; one that is removed meanwhile is left out."""
    found = []
    for name in queue.stations():
        with suppress(StationMissingError):
            found.append(look(queue.station(name)))
    return found


def in_order(stations: Iterable[StationStatistics]) -> list[StationStatistics]:
    """Series together, the first stage first."""
    return sorted(stations, key=lambda station: (station.line, station.stage, station.name))


def depth_of(station: StationStatistics, stations: Iterable[StationStatistics]) -> int:
    """How many stages of its line stand before it."""
    return len({other.stage for other in stations if other.line == station.line and other.stage < station.stage})


def ahead_of(station: StationStatistics, stations: Sequence[StationStatistics]) -> list[str]:
    """The names of the stations right before it: none if it stands at the log."""
    earlier = [other for other in stations if other.line == station.line and other.stage < station.stage]
    nearest = max((other.stage for other in earlier), default=0)
    return sorted(other.name for other in earlier if other.stage == nearest)


def line_of(queue: AnyQueue, station: AnyStation) -> list[StationStatistics]:
    """Statistics of all stations of its line, itself among them."""
    number = station.terms.line
    return in_order(told for told in every(queue, lambda each: each.statistics()) if told.line == number)
