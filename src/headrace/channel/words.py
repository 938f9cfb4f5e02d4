"""Words: a small file of a channel that is mapped as numbers of 64 bits, with a magic and a format in front.

The suppliers and the slices of a channel have one each (slots.py, assigner.py). They hold counters, and places that
locks guard: nothing that products depend on, so a file that is missing is made again.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import QueueDamagedError, QueueVersionError
from headrace.files import make_folder, open_regular
from headrace.kernel import _kernel as kernel
from headrace.log.explain import explain_os_error


@dataclass(frozen=True, slots=True)
class WordFile:
    """One kind of such a file."""

    what: str
    magic: int
    format: int
    size: int  # bytes
    remedy: str  # for a damaged file

    def open(self, path: Path) -> int:
        """A descriptor of the file, which is created if there is none."""
        try:
            make_folder(path.parent)
            return open_regular(path, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise explain_os_error(error, path.parent.parent) from error

    def map(self, path: Path) -> "memoryview[int]":
        """The words of the file; a new file gets its size, magic and format.

        The mapping has a descriptor of its own, because a mapping keeps its descriptor, and thereby a lock, alive.
        """
        descriptor = self.open(path)
        try:
            size = os.fstat(descriptor).st_size
            if size == 0:
                self._allocate(descriptor)
            elif size != self.size:
                raise self._damaged(path, f"has a size of {size} bytes instead of {self.size}")
            words = memoryview(kernel.Mapped(descriptor, self.size)).cast("Q")
        except OSError as error:
            raise explain_os_error(error, path.parent.parent) from error
        finally:
            os.close(descriptor)
        if words[0] == 0 and words[1] == 0:
            words[0], words[1] = self.magic, self.format
        if words[0] != self.magic:
            raise self._damaged(path, f"is not a {self.what} file")
        if words[1] > self.format:
            raise QueueVersionError(
                f"{path} has format {words[1]}; this Headrace knows up to {self.format}", "upgrade Headrace"
            )
        return words

    def _allocate(self, descriptor: int) -> None:
        """Reserve its blocks: a full disk is detected here, and never by a store to memory."""
        try:
            os.posix_fallocate(descriptor, 0, self.size)
        except OSError:
            os.ftruncate(descriptor, 0)
            raise

    def _damaged(self, path: Path, problem: str) -> QueueDamagedError:
        return QueueDamagedError(f"{path} {problem}", self.remedy)
