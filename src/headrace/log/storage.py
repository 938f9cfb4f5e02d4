"""Storage: the seam through which a queue makes the disk keep what it wrote.

Data reaches the page cache by plain stores to mapped memory. Only these two calls make it survive the machine. Tests
put `headrace.testing.PowerCut` here, which remembers what a real disk would still have after a power failure.
"""

import os
from pathlib import Path
from typing import Protocol


class Storage(Protocol):
    """How files become durable."""

    def sync_file(self, path: Path) -> None:
        """After return, the file's contents survive a power failure. FileNotFoundError if it is gone."""

    def sync_directory(self, path: Path) -> None:
        """After return, so do the names of the files in the directory."""


class Disk:
    """The real thing."""

    def sync_file(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
