"""Disk: small files that are whole or not there, and what an error of the operating system means for a stream.

An error is either the fault of the row that named the path, which then is a dead letter, or of the machine: a full
disk, a folder that may not be written. The latter stops the batch, because the next row would meet it too; the rule
is begun again until the machine is mended."""

import errno
import os
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
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """See that names in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
