"""Names of received files: which are accepted, and how a file gets one inside the directory of the receiver.

A sender chooses names, so a name is refused unless it stays inside: no `..`, no leading slash, no NUL or other control
character, nothing too long, nothing in the receiver's own folder. The folders on the way are opened one by one without
following symbolic links, so that a link inside the directory does not lead out of it either.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import NameRefusedError

STATE_FOLDER = ".headrace-receive"
NAME_BYTES_MAX = 1000  # an ident has the name and the number of the fragment
PART_BYTES_MAX = 255
DEPTH_MAX = 64
_SHOWN = 80
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def check_name(name: str) -> str:
    """Return `name` if a file may be received under it."""
    problem = _problem_of(name)
    if problem:
        shown = name if len(name) <= _SHOWN else name[:_SHOWN] + "…"
        raise NameRefusedError(f"file name {shown!r} is refused: {problem}", "rename the file, or send its folder")
    return name


def _problem_of(name: str) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it is not UTF-8"
    parts = name.split("/")
    if not name or name.startswith("/"):
        return "it is empty or absolute"
    if size > NAME_BYTES_MAX or len(parts) > DEPTH_MAX or max(len(part.encode()) for part in parts) > PART_BYTES_MAX:
        return (
            f"it has {size} bytes in {len(parts)} parts; the limits are {NAME_BYTES_MAX} bytes, {DEPTH_MAX} parts, "
            f"{PART_BYTES_MAX} bytes in a part"
        )
    if any(part in ("", ".", "..") for part in parts):
        return "it has an empty part, . or .."
    if any(not character.isprintable() for character in name):
        return "it has control characters"
    if parts[0] == STATE_FOLDER:
        return f"{STATE_FOLDER} belongs to the receiver"
    return ""


@contextmanager
def folder_of(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """The open folder in which the file `name` belongs, created if it is missing, and the last part of the name."""
    *folders, last = check_name(name).split("/")
    descriptor = os.open(root, _FOLDER)
    try:
        for folder in folders:
            inner = _enter(descriptor, folder, name)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, last
    finally:
        os.close(descriptor)


def _enter(outer: int, folder: str, name: str) -> int:
    with suppress(FileExistsError):
        os.mkdir(folder, dir_fd=outer)
    try:
        return os.open(folder, _FOLDER, dir_fd=outer)
    except (NotADirectoryError, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        raise NameRefusedError(
            f"file name {name!r} is refused: {folder!r} is a link or a file in the directory of the receiver",
            "remove it, or receive into another directory",
        ) from None


def sync_folder(root: Path, name: str) -> None:
    """Wait until the disk has the name of this file."""
    with folder_of(root, name) as (folder, _):
        os.fsync(folder)


def found(folder: int, last: str) -> os.stat_result | None:
    """What has this name already; a link counts as itself."""
    try:
        return os.stat(last, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def make_folder(root: Path, name: str, mode: int) -> os.stat_result:
    """Create a folder, and those above it; what it is then."""
    with folder_of(root, name) as (folder, last):
        descriptor = _enter(folder, last, name)
        try:
            os.fchmod(descriptor, mode | stat.S_IRWXU)  # the receiver must be able to write into it
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)


def free_name(folder: int, last: str) -> str:
    """A name beside `last` that nothing has: `report.1.csv`."""
    stem, dot, suffix = last.rpartition(".")
    if not stem:
        stem, dot, suffix = last, "", ""
    for number in range(1, 10_000):
        name = f"{stem}.{number}{dot}{suffix}"
        if len(name.encode()) <= PART_BYTES_MAX and found(folder, name) is None:
            return name
    raise NameRefusedError(f"there is no free name for {last!r}", "remove old copies, or use --existing replace")
