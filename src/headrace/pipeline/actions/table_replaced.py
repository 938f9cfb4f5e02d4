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
_IN_OPEN, _IN_Q_OVERFLOW = 0x20, 0x4000
_EVENT = struct.Struct("iIII")  # struct inotify_event without its name
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def new_room(table: Path) -> Path:
    """A folder of its own for one exchange. OSError."""
    room = homes(table)[0] / _ROOMS / secrets.token_hex(8)
    make_folder(room)
    return room


def wait_until_unlisted(folder: Path) -> bool:
    """Wait until nobody has opened the folder for a while; False: it is opened again and again. OSError.

    The kernel reports who opens it (inotify): processes of this machine, and not those of a network file system. True
    if it does not report at all.
    """
    started = time.monotonic()
    os.listdir(folder)
    listing_s = (time.monotonic() - started) * _LISTINGS
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if watch < 0:
        return True
    try:
        if libc.inotify_add_watch(watch, os.fsencode(folder), _IN_OPEN) < 0:
            return True
        poll, end = select.poll(), time.monotonic() + _PATIENCE_S + listing_s
        poll.register(watch, select.POLLIN)
        quiet_at = time.monotonic() + _QUIET_S + listing_s
        while time.monotonic() < end:
            left_s = quiet_at - time.monotonic()
            if left_s <= 0:
                return True
            if poll.poll(max(1, left_s * 1000)) and _is_opened(os.read(watch, 1 << 16)):
                quiet_at = time.monotonic() + _QUIET_S + listing_s
        return False
    finally:
        os.close(watch)


def _is_opened(events: bytes) -> bool:
    """Whether the folder itself is among these; events of its files have a name, and readers of files do no harm."""
    place, found = 0, False
    while place < len(events):
        _, mask, _, name_bytes = _EVENT.unpack_from(events, place)
        found = found or not name_bytes or bool(mask & _IN_Q_OVERFLOW)
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
