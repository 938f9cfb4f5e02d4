"""File locks, which the operating system releases when the process that holds them ends, however it ends.

Two kinds, both of Linux:

    lock_file      a whole file (flock), exclusive or shared: one writer, one site, one pipeline, who is attached
    lock_byte      one byte of a file (open-file-description lock): one of many slots in a file, such as a
                   consumer's or a supplier's

Both belong to the open file, not to the process: threads exclude each other too, and a forked child that keeps the
descriptor keeps the lock.
"""

import fcntl
import logging
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.files import lock_mode, open_regular

_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_PID_BYTES = 20
_RETRY_S = 0.005  # between two attempts, at most
_RETRY_S_MIN = 0.0001  # most locks are held for less
_SILENT_S = 1.0  # a wait that is longer is logged

logger = logging.getLogger("headrace.queue")


class FileLockedError(Exception):
    """Another process holds the lock; `holder` is its process id if it is known. Callers add what to do."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is locked" + (f" by process {holder}" if holder else ""))
        self.path, self.holder = path, holder


def lock_file(descriptor: int, *, shared: bool = False, wait: bool | float = True) -> bool:
    """Lock the whole file; False if others hold it. Closing the descriptor frees it.

    `wait`: True waits without a limit, False returns at once, a number waits for at most so many seconds.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if wait is True:
        if not lock_file(descriptor, shared=shared, wait=_SILENT_S):
            file = os.readlink(f"/proc/self/fd/{descriptor}")
            logger.warning("waiting for the lock on %s%s", file, held_by(descriptor))
            fcntl.flock(descriptor, kind)
        return True
    end, pause_s = time.monotonic() + wait, _RETRY_S_MIN
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(pause_s)  # flock has no timeout of its own
            pause_s = min(2 * pause_s, _RETRY_S)


def held_by(descriptor: int) -> str:
    """`, held by process 17`, if the operating system lists it."""
    status = os.fstat(descriptor)
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if "FLOCK" in words and file in words and "->" not in words:
                return f", held by process {words[words.index(file) - 1]}"
    return ""


@contextmanager
def locked(path: Path, *, wait: bool | float = True, mode: int | None = None) -> Iterator[None]:
    """Hold the exclusive lock on the file at `path`, which is made if it is missing. FileLockedError after `wait`.

    `mode` gives its permissions; None: it is for those who may write into its folder.

    The file holds the holder's process id, for people and for FileLockedError.
    """
    mode = lock_mode(path.parent) if mode is None else mode
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, mode=mode)
    try:
        if not lock_file(descriptor, wait=wait):
            holder = os.pread(descriptor, _PID_BYTES, 0).decode(errors="replace").strip()
            raise FileLockedError(path, holder)
        with suppress(OSError):  # only for people, and the disk may be full
            os.pwrite(descriptor, f"{os.getpid()}".ljust(_PID_BYTES).encode(), 0)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child may have the descriptor too
        os.close(descriptor)


def lock_byte(descriptor: int, offset: int, *, wait: bool = False) -> None:
    """Lock one byte for this open file; BlockingIOError if another open file holds it and `wait` is off."""
    command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
    fcntl.fcntl(descriptor, command, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))


def unlock_byte(descriptor: int, offset: int) -> None:
    """Release a byte that this open file has locked."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, offset, 1, 0))


def is_byte_locked(descriptor: int, offset: int) -> bool:
    """Whether another open file holds the byte."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
    return bool(_FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)
