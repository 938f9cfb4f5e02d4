"""Disk: whose fault an error of the operating system is, and folders whose names survive a power failure.

An error is either the fault of the row that named the path, or of the machine: a full disk, a folder without write
permission. In the first case the row becomes a dead letter. In the second the batch stops with a TargetError, because
the next row would fail too, and the rule is retried until the machine is fixed.

Small files are replaced by `log.documents.replace_file`, with `DISK` where they must survive a power failure.
"""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from headrace.errors import TargetError
from headrace.log.seams import Disk

DISK = Disk()
RESERVED = ".headrace"  # names with this prefix belong to the pipeline
_INVALID_PATH = frozenset({
    errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EEXIST, errno.ELOOP, errno.EINVAL, errno.EILSEQ, errno.ENXIO,
})  # fmt: skip
_NOT_A_FOLDER = "a file that is not a folder has that name: move it away, or choose another path"
_REMEDIES = {
    errno.ENOSPC: "free some space; the batch is then retried",
    errno.EDQUOT: "raise the quota, or free some space",
    errno.EACCES: "change its owner or its permissions",
    errno.EPERM: "change its owner or its permissions",
    errno.EROFS: "mount the file system for writing, or choose another folder",
    errno.ENOENT: "create the folder",
    errno.ENOTDIR: _NOT_A_FOLDER,
    errno.EEXIST: _NOT_A_FOLDER,
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


def is_path_invalid(error: OSError) -> bool:
    """Whether the path of the row is the cause, so that other rows may succeed."""
    return error.errno in _INVALID_PATH


def disk_error(error: OSError, path: str | os.PathLike[str], what: str = "written") -> TargetError:
    """The error for the person who must act; the batch is retried."""
    hint = _REMEDIES.get(error.errno or 0, "check the disk")
    return TargetError(f"{os.fspath(path)} was not {what}: {error.strerror or error}", hint)


def make_folder(folder: Path) -> None:
    """Create the folder and its missing parents. After return, their names survive a power failure."""
    missing = []
    for each in (folder, *folder.parents):
        if each.is_dir():
            break
        missing.append(each)
    folder.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        DISK.sync_directory(each.parent)


def sync_names(root: Path, files: Iterable[Path]) -> None:
    """Flush the names of files, and of all folders between them and `root`.

    Folders that another process created are flushed too.
    """
    for folder in {above for path in files for above in path.parents if above.is_relative_to(root)}:
        DISK.sync_directory(folder)
