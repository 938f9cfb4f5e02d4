"""Disk: small files that are whole or not there, and what an error of the operating system means for a stream.

An error is either the fault of the row that named the path, which then is a dead letter, or of the machine: a full
disk, a folder that may not be written. The latter stops the batch, because the next row would meet it too; the rule
is begun again until the machine is mended."""

import errno
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from headrace.errors import TargetError

RESERVED = ".headrace"  # names that begin so are ours
_OF_THE_ROW = frozenset({
    errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EEXIST, errno.ELOOP, errno.EINVAL, errno.EILSEQ, errno.ENXIO,
})  # fmt: skip
_REMEDIES = {
    errno.ENOSPC: "make room; the batch is then done again",
    errno.EDQUOT: "raise the quota, or make room",
    errno.EACCES: "change its owner or its rights",
    errno.EPERM: "change its owner or its rights",
    errno.EROFS: "mount the file system for writing, or choose another folder",
    errno.ENOENT: "make the folder",
    errno.ENOTDIR: "something that is no folder has that name: move it away, or choose another path",
    errno.EEXIST: "something that is no folder has that name: move it away, or choose another path",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def is_of_the_row(error: OSError) -> bool:
    """Whether another row may fare better."""
    return error.errno in _OF_THE_ROW


def disk_error(error: OSError, path: str | os.PathLike[str], what: str = "written") -> TargetError:
    """The same for the person who must act."""
    hint = _REMEDIES.get(error.errno or 0, "see to the disk")
    return TargetError(f"{os.fspath(path)} cannot be {what}: {error.strerror or error}", hint)


def write_whole(path: Path, data: bytes) -> None:
    """A small file: afterwards it has these bytes, and at every moment it has these or those that it had."""
    make_folder(path.parent)
    part = path.with_name(path.name + ".part")
    _write_flushed(part, data)
    os.replace(part, path)
    sync_folder(path.parent)


def write_first(path: Path, data: bytes) -> None:
    """The same if the file is not there yet; of several threads and processes, the first one's bytes are there."""
    make_folder(path.parent)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        _write_flushed(part, data)
        with suppress(FileExistsError):  # another was first
            os.link(part, path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)


def _write_flushed(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Make it, and all above it that are missing; afterwards their names are on disk."""
    missing = []
    for each in (folder, *folder.parents):
        if each.is_dir():
            break
        missing.append(each)
    folder.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        sync_folder(each.parent)


def sync_names(root: Path, files: Iterable[Path]) -> None:
    """See that the names of files are on disk, and those of the folders between them and `root`, whoever made them."""
    for folder in {above for path in files for above in path.parents if above.is_relative_to(root)}:
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """See that names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
