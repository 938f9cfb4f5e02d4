"""Reading an audit log: its lines in the order of time, and those that come later. Any number of readers, at any time.

A line that cannot be decoded is left out: the last one before a power failure may be cut.
"""

import heapq
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from headrace.decoding import Decoder
from headrace.files import open_to_read
from headrace.link.audit import Entry
from headrace.link.audit_files import SERIES, Series, lines_of, paths_of

_DECODER: Decoder[Entry] = Decoder(Entry, encoding="json")


def entries_of(folder: Path) -> Iterator[Entry]:
    """All entries that there are, the oldest first."""
    return heapq.merge(*(_decoded(lines_of(folder, series)) for series in SERIES), key=lambda entry: entry.time)


def _decoded(lines: Iterator[bytes]) -> Iterator[Entry]:
    for line in lines:
        try:
            yield _DECODER.decode(line)
        except msgspec.DecodeError:
            continue


class Tail:
    """What is written from now on. `read` returns what has come since the last time; close it at the end."""

    def __init__(self, folder: Path) -> None:
        self._series = [_SeriesTail(folder, series) for series in SERIES]

    def read(self) -> list[Entry]:
        entries = [entry for series in self._series for entry in _decoded(iter(series.read()))]
        return sorted(entries, key=lambda entry: entry.time)

    def close(self) -> None:
        for series in self._series:
            series.close()


class _SeriesTail:
    def __init__(self, folder: Path, series: Series) -> None:
        self._path = paths_of(folder, series)[0]
        self._file = self._open()
        self._rest = b""
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)

    def _open(self) -> IO[bytes] | None:
        try:
            return open_to_read(self._path)
        except FileNotFoundError:
            return None

    def read(self) -> list[bytes]:
        """The lines that are whole; also those of a file that was renamed since."""
        data = self._rest
        if self._file is not None:
            data += self._file.read()
        if self._has_moved():
            self.close()
            self._file = self._open()
            data += self._file.read() if self._file is not None else b""
        *lines, self._rest = data.split(b"\n")
        return lines

    def _has_moved(self) -> bool:
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        return self._file is None or os.fstat(self._file.fileno()).st_ino != now.st_ino

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
