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
import shutil
import time
from contextlib import suppress
from pathlib import Path

from headrace.pipeline.actions.disk import make_folder
from headrace.pipeline.actions.table_home import homes

KEPT_S = 600.0
KEPT_BYTES = 1 << 30
_ROOMS = "compaction"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def new_room(table: Path) -> Path:
    """A folder of its own for one exchange. OSError."""
    room = homes(table)[0] / _ROOMS / secrets.token_hex(8)
    make_folder(room)
    return room


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
