"""Replaced folders: what a compaction has taken out of a Parquet table, kept while a reader may be listing it.

    <home>/compaction/<random>/folder     before the exchange the merged copy, after it the folder that was replaced

A reader opens a folder, and then lists it. If the folder is replaced in between, the listing has the old names. To open
one of them by its path gives "no such file", so the reader knows that it must repeat its read. If the old folder were
emptied at once, the listing would be empty too, and the reader would take the table for empty without an error.

So a replaced folder stays as it is for `KEPT_S`, which no listing of one folder takes. Then the next batch, the next
compaction or the next start of the pipeline deletes it. All of them together have at most `KEPT_BYTES`: compaction
merges less, or nothing, until older ones are deleted. Files that were not merged are links, and take no space.

After a kill, everything in `<home>/compaction` is obsolete, on either side of the exchange, and is deleted in the same
way. The age of a folder is counted on the machine's clock, from a moment directly before the exchange.
"""

import ctypes
import os
import secrets
import select
import shutil
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from headrace.pipeline.actions.disk import make_folder
from headrace.pipeline.actions.table_home import homes

KEPT_S = 600.0
KEPT_BYTES = 1 << 30
_ROOMS = "compaction"
_QUIET_S = 0.1  # a reader has listed a small folder, and looked at its first file
_LISTINGS = 10  # a reader has listed a large folder: so many times as long as we need for it
_PATIENCE_S = 2.0
_IN_OPEN = 0x20
_EVENTS_BYTES = 1 << 16
_EVENT = struct.Struct("iIII")  # struct inotify_event without its name
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def new_room(table: Path) -> Path:
    """A folder of its own for one exchange. OSError."""
    room = homes(table)[0] / _ROOMS / secrets.token_hex(8)
    make_folder(room)
    return room


def unlisted(folders: Sequence[Path]) -> set[Path]:
    """Wait until nobody has opened any of these for a while. Return those that are not opened again and again. OSError.

    The kernel reports who opens them (inotify): processes of this machine, and not those of a network file system. A
    folder that it does not report about is not waited for.
    """
    pauses_s = {folder: _QUIET_S + _LISTINGS * _listing_s(folder) for folder in folders}
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if watch < 0:
        return set(folders)
    try:
        watched = {libc.inotify_add_watch(watch, os.fsencode(folder), _IN_OPEN): folder for folder in folders}
        watched.pop(-1, None)
        now = time.monotonic()
        quiet_at = {folder: now + pauses_s[folder] for folder in watched.values()}
        end = now + _PATIENCE_S + max(pauses_s.values(), default=0.0)
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        while (next_at := min(end, max(quiet_at.values(), default=now))) > now:
            if poll.poll(max(1.0, (next_at - now) * 1000)):
                for folder in _opened(os.read(watch, _EVENTS_BYTES), watched):
                    quiet_at[folder] = time.monotonic() + pauses_s[folder]
            now = time.monotonic()
        return {folder for folder in folders if quiet_at.get(folder, now) <= now}
    finally:
        os.close(watch)


def _listing_s(folder: Path) -> float:
    started = time.monotonic()
    os.listdir(folder)
    return time.monotonic() - started


def _opened(events: bytes, watched: Mapping[int, Path]) -> set[Path]:
    """The folders that were opened. Events of files have a name, and a reader of a file does no harm."""
    place, found = 0, set[Path]()
    while place < len(events):
        number, _, _, name_bytes = _EVENT.unpack_from(events, place)
        if number not in watched:  # some events were dropped
            found.update(watched.values())
        elif not name_bytes:
            found.add(watched[number])
        place += _EVENT.size + name_bytes
    return found


def exchange(copy: Path, folder: Path) -> None:
    """Let the copy in a room and a folder of the table change places, atomically. OSError: the file system cannot."""
    os.utime(copy.parent)  # its age begins
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(copy), _AT_FDCWD, os.fsencode(folder), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, f"the file system cannot exchange folders ({os.strerror(number)})", str(folder))


def remove_replaced(table: Path) -> None:
    """Delete replaced folders that no reader lists any more. OSError."""
    for place in (home / _ROOMS for home in homes(table)):
        young = 0
        for room in _rooms(place):
            if _is_old(room):
                shutil.rmtree(room)
            else:
                young += 1
        if not young:
            with suppress(FileNotFoundError):
                place.rmdir()


def replaced_bytes(table: Path) -> int:
    """The space that replaced folders take. OSError."""
    files = [path.lstat() for home in homes(table) for room in _rooms(home / _ROOMS) for path in room.rglob("*")]
    return sum(status.st_size for status in files if status.st_nlink == 1)


def _rooms(place: Path) -> list[Path]:
    try:
        return list(place.iterdir())
    except FileNotFoundError:
        return []


def _is_old(room: Path) -> bool:
    age_s = time.time() - room.stat().st_mtime
    if age_s < 0:  # the clock was set back: count from now
        os.utime(room)
    return age_s >= KEPT_S
