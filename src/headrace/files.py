"""Files: opened only if they are regular, and created with the rights of their folder.

A file that another process put in the place of ours may be a FIFO, on which an open never returns, a device, or a link
that leads elsewhere. So every file of a queue, an archive, a configuration or a state is opened here: without waiting,
and only if it is a regular file. IrregularFileError names it otherwise. Links are followed only where a user chose the
path (`follow`), such as that of a configuration.

Whoever may read a folder may read the files that are created in it, and a group that may write into it may write them:
a file gets the bits of its folder, whatever the umask is. So a queue keeps the rights that it was created with, in
every file that is added later. A lock is only for those who may write, because whoever can open it can hold it. In a
folder that everybody may write into, such as /tmp, files are private.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

Name = str | os.PathLike[str]

_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


class IrregularFileError(OSError):
    """A path leads to something that is not a regular file; `filename` names it, `strerror` says what it is."""

    def __init__(self, path: Name, mode: int) -> None:
        kind = _KINDS.get(stat.S_IFMT(mode), "not a file")
        super().__init__(errno.EINVAL, f"it is {kind}, not a regular file", os.fspath(path))


def open_regular(path: Name, flags: int = os.O_RDONLY, *, mode: int | None = None, follow: bool = False) -> int:
    """A descriptor of a regular file. A new one gets the permissions `mode`; None: those of its folder."""
    safe = flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor, is_new = _opened(path, safe)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise IrregularFileError(path, os.lstat(path).st_mode) from None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise IrregularFileError(path, status.st_mode)
        if is_new:
            os.fchmod(descriptor, file_mode(Path(path).parent) if mode is None else mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _opened(path: Name, flags: int) -> tuple[int, bool]:
    """A descriptor, and whether the file was created for it."""
    while flags & os.O_CREAT:
        try:
            return os.open(path, flags | os.O_EXCL, 0o600), True
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
        try:
            return os.open(path, flags & ~os.O_CREAT), False
        except FileNotFoundError:  # removed in between; or a link that leads nowhere
            if os.path.islink(path):
                raise
    return os.open(path, flags), False


def open_to_read(path: Name, *, follow: bool = False) -> BinaryIO:
    """A regular file, opened for reading."""
    return os.fdopen(open_regular(path, follow=follow), "rb")


def read_regular(path: Name, *, follow: bool = False) -> bytes:
    """The content of a regular file."""
    with open_to_read(path, follow=follow) as file:
        return file.read()


def write_regular(path: Name, data: bytes, *, mode: int | None = None) -> None:
    """Make `data` the content of a regular file, which is created if it is missing."""
    with os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=mode), "wb") as file:
        file.write(data)


# --- rights ---------------------------------------------------------------------------------------


def file_mode(folder: Name) -> int:
    """The permissions of a file that is created in the folder."""
    mode = os.stat(folder).st_mode
    return 0o600 if mode & stat.S_IWOTH else stat.S_IMODE(mode) & 0o664 | 0o600


def lock_mode(folder: Name) -> int:
    """The permissions of a lock that is created in the folder."""
    writers = file_mode(folder) & 0o222
    return writers | writers << 1


def exposure(path: Name) -> str:
    """How a file that should be private is not, in words; empty if it is: others have no rights, its group may read."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o007:
        return f"is open to every user of this machine (mode {mode:04o})"
    return f"may be changed by its group (mode {mode:04o})" if mode & 0o020 else ""


def make_folder(path: Path) -> None:
    """Make the folder, unless it is there, with the rights of the one that it is in."""
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    path.chmod(stat.S_IMODE(path.parent.stat().st_mode))
