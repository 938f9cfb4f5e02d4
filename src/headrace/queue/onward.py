"""Onward: where the queue calls what stands behind it on the product's way.

Imports point backwards along that way, with this one exception: a put has to mind blocking stations, and whoever
attaches first has to settle them, in programs that have never heard of stations. What is needed for that is imported
here, when a queue turns out to have stations.
"""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.kernel import _kernel as kernel
from headrace.log.clock import Clock
from headrace.log.storage import Storage

if TYPE_CHECKING:
    from headrace.station.lines import Lines, Wait

STATIONS_FILE = "stations.json"
CHANNELS_FILE = "channels.json"


def lines_of(log: kernel.Log, path: Path, storage: Storage | None, clock: Clock | None) -> "Lines":
    """All stations of an opened queue."""
    from headrace.station.lines import Lines

    return Lines(log, path, storage, clock)


def begin_wait(timeout: float | str | timedelta | None) -> "Wait":
    """The time that a put has for stations that make it wait."""
    from headrace.station.lines import Wait

    return Wait(timeout)


def read_stations(path: Path) -> None:
    """Raise what is wrong with the stations' terms, before anything is changed."""
    if (path / STATIONS_FILE).exists():
        from headrace.station.registry import load_stations

        load_stations(path)


def stations_for(path: Path, feed: str) -> list[str]:
    """The names of the stations that may want products of this feed."""
    if not (path / STATIONS_FILE).exists():
        return []
    from headrace.selection import Selection
    from headrace.station.registry import load_stations

    stations = load_stations(path).stations
    return sorted(terms.name for terms in stations if Selection.parse(terms.selection).wants_feed(feed))


def read_channels(path: Path) -> None:
    """Raise what is wrong with the definitions of channels."""
    if (path / CHANNELS_FILE).exists():
        from headrace.channel.definitions import DefinitionFile

        DefinitionFile(path).read()


def settle_stations(log: kernel.Log, path: Path, storage: Storage, trusted: bool) -> None:
    """Make the stations ready for use; `trusted` if the machine has not been restarted since. The caller is alone."""
    if (path / STATIONS_FILE).exists():
        from headrace.station.lines import settle_lines

        settle_lines(log, path, storage, trusted)


def check_stations(log: kernel.Log, path: Path) -> list[str]:
    """What is inconsistent about the stations, in words."""
    if not (path / STATIONS_FILE).exists() and not (path / CHANNELS_FILE).exists():
        return []
    from headrace.channel.definitions import check_definitions
    from headrace.station.lines import check_lines

    return check_lines(log, path) + check_definitions(path)
