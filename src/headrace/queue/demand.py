"""Demand: which readers want a feed, as far as a process at this queue can know (docs/decisions/0016-quench.md).

The site that runs at a queue notes in `site/wanted.json`, on every change, the feed patterns that other sites subscribe
to, and when each pattern without subscribers had the last one. A program that puts products reads this note, and looks
at what the queue itself knows: stations, cursors, processes that read. In doubt a feed counts as wanted. It is unwanted
only if a site runs here and none of these wants it.

Not here: how a site learns what others listen to (relay/quench.py).
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headrace.errors import FeedError, HeadraceError
from headrace.files import make_folder
from headrace.kernel import _kernel as kernel
from headrace.log.attach import list_attachments, process_start
from headrace.log.cursor import CursorFile
from headrace.log.documents import Document
from headrace.log.log import Log
from headrace.product.feed import FeedPattern, check_feed
from headrace.selection import Selection
from headrace.station.document import StationDocument

LINGER_S = 600.0  # a subscriber that lost its connection comes back and wants what was put meanwhile
_FILE = Path("site") / "wanted.json"


class WantedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The note of a site. Times are nanoseconds since 1970."""

    pid: int
    process_start: int  # so that a later process with the same id is not mistaken for the site
    patterns: dict[str, int]  # by feed pattern: when it last had a subscriber; 0: it has one now
    version: int = 1


_DOCUMENT = Document(WantedFile, 1, field="version", remedy="restart the site at {path}")


def read_wanted(path: Path) -> WantedFile | None:
    """What the site at a queue has noted; None if there is nothing readable."""
    try:
        return _DOCUMENT.read(path / _FILE)
    except (OSError, HeadraceError):
        return None


def write_wanted(path: Path, patterns: dict[str, int]) -> None:
    """Replace the note. It does not survive a power failure, and need not: neither does the site's process."""
    file = path / _FILE
    make_folder(file.parent)  # not the queue itself: it may have been deleted
    _DOCUMENT.write(file, WantedFile(os.getpid(), process_start(os.getpid()), patterns), None)


def wanted_by(path: Path, log: Log, stations: StationDocument, feed: str, now_ns: int) -> list[str]:
    """Everything that wants the feed, in words; an empty list if nothing does."""
    check_feed(feed)
    site = read_wanted(path)
    if site is None or process_start(site.pid) != site.process_start:
        return ["possible subscribers (no site runs at this queue)"]
    since_ns = now_ns - int(LINGER_S * 1e9)
    return [
        *_elsewhere(site, feed, since_ns),
        *(f"station {name}" for name in _stations(stations, feed)),
        *_readers(log.kernel, {site.pid, os.getpid()}),
        *_recent_cursors(log.cursor_file, since_ns),
    ]


def _elsewhere(site: WantedFile, feed: str, since_ns: int) -> Iterable[str]:
    for pattern, last_ns in sorted(site.patterns.items()):
        if _matches(pattern, feed) and (not last_ns or last_ns > since_ns):
            yield f"subscribers to {pattern}" if not last_ns else f"recent subscribers to {pattern}"


def _stations(document: StationDocument, feed: str) -> list[str]:
    """The names of the stations that may want products of this feed."""
    return sorted(terms.name for terms in document.stations if Selection.parse(terms.selection).wants_feed(feed))


def _matches(pattern: str, feed: str) -> bool:
    try:
        return FeedPattern(pattern).matches(feed)
    except FeedError:
        return True


def _readers(log: kernel.Log, apart_from: set[int]) -> Iterable[str]:
    pids = {found.pid for found in list_attachments(log) if found.reads} - apart_from
    return [f"process {pid}, which reads the queue" for pid in sorted(pids)]


def _recent_cursors(cursors: CursorFile, since_ns: int) -> Iterable[str]:
    moved = {name: cursors.load(slot).saved_ns for name, slot in sorted(cursors.names().items())}
    return [f"cursor {name}" for name, saved_ns in moved.items() if saved_ns > since_ns]
