"""Wanting: who wants a feed, as far as anybody at this queue can know (docs/decisions/0016-quench.md).

The site that runs at a queue notes in `site/wanted.json`, whenever it changes, which feed patterns are listened to
elsewhere, and when those that no longer are were last. Whoever puts products reads it, and looks at what the queue
itself knows: stations, cursors, processes that read. In doubt a feed is wanted; it is not only if a site runs here
and all of them say no.

Not here: how a site learns what others listen to (relay/quench.py).
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headrace.errors import FeedError
from headrace.kernel import _kernel as kernel
from headrace.log.attach import list_attachments, process_start
from headrace.log.cursor import CursorFile
from headrace.log.log import Log
from headrace.product.feed import FeedPattern, check_feed
from headrace.selection import Selection
from headrace.station.document import StationDocument

LINGER_S = 600.0  # somebody who was cut off will come back and want what was put meanwhile
_FILE = Path("site") / "wanted.json"


class WantedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site has noted. Times are nanoseconds since 1970."""

    pid: int
    process_start: int  # so that the number is not taken for that of another process
    patterns: dict[str, int]  # feed patterns: when they were last listened to; 0: they are
    version: int = 1


_DECODER = msgspec.json.Decoder(WantedFile)


def read_wanted(path: Path) -> WantedFile | None:
    """What the site at a queue has noted; None if there is nothing that can be read."""
    try:
        found = _DECODER.decode((path / _FILE).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.version == 1 else None


def write_wanted(path: Path, patterns: dict[str, int]) -> None:
    """As a whole or not at all."""
    wanted = WantedFile(os.getpid(), process_start(os.getpid()), patterns)
    file = path / _FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(wanted))
    os.replace(part, file)


def wanted_by(path: Path, log: Log, stations: StationDocument, feed: str, now_ns: int) -> list[str]:
    """Everybody who wants the feed, in words; nobody, if the list is empty."""
    check_feed(feed)
    site = read_wanted(path)
    if site is None or process_start(site.pid) != site.process_start:
        return ["perhaps somebody: no site runs at this queue"]
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
            yield f"those who {'listen' if not last_ns else 'listened a short time ago'} to {pattern}"


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
