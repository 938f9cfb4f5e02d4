"""The files of an audit log: one series of lines each, of bounded size, for a writer and any number of readers.

    site/audit/changes.jsonl  changes.1.jsonl … changes.7.jsonl      newest first
    site/audit/refusals.jsonl …
    site/audit/site.jsonl …

The directory is in that of the queue. When a file is full it is renamed, and the oldest one goes. A line is written by
one `write`, so a reader sees it whole, except for the last one after a power failure: a line that cannot be decoded is
left out.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.files import make_folder, open_regular, read_regular

Series = Literal["changes", "refusals", "site"]
FILE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Terms:
    """Of one series: how many files it keeps, and how many lines one principal may cause."""

    files: int
    burst: float
    per_second: float


SERIES: dict[Series, Terms] = {
    "changes": Terms(8, 200, 1.0),
    "refusals": Terms(4, 20, 0.2),
    "site": Terms(2, 1000, 1.0),
}


def audit_folder(queue: Path) -> Path:
    """Where the site of a queue keeps its audit log."""
    return queue / "site" / "audit"


def paths_of(folder: Path, series: Series) -> list[Path]:
    """The files of a series, the newest first, whether they exist or not."""
    return [folder / f"{series}.jsonl", *(folder / f"{series}.{n}.jsonl" for n in range(1, SERIES[series].files))]


class Files:
    """Writes one series. Whoever calls it has a lock."""

    def __init__(self, folder: Path, series: Series, *, file_bytes: int = FILE_BYTES) -> None:
        self._folder, self._paths, self._file_bytes = folder, paths_of(folder, series), file_bytes
        self._file: int | None = None
        self._size = 0

    def append(self, line: bytes) -> None:
        """Write a line; OSError if the disk refuses it."""
        if self._file is None:
            self._open()
        if self._size and self._size + len(line) > self._file_bytes:
            self._rotate()
        assert self._file is not None
        self._size += os.write(self._file, line)

    def _open(self) -> None:
        make_folder(self._folder.parent)
        make_folder(self._folder)
        self._file = open_regular(self._paths[0], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._size = os.fstat(self._file).st_size

    def _rotate(self) -> None:
        self.close()
        for older, newer in zip(self._paths[:0:-1], self._paths[-2::-1], strict=True):
            with suppress(FileNotFoundError):
                newer.rename(older)
        self._open()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def lines_of(folder: Path, series: Series) -> Iterator[bytes]:
    """The lines that are there, the oldest first."""
    for path in reversed(paths_of(folder, series)):
        with suppress(FileNotFoundError):
            yield from read_regular(path).splitlines()
