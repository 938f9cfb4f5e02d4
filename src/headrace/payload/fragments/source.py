"""Source: a file or directory to be sent, and all of them that a command names.

A file is read by `pread`, never mapped: a file that is cut short while it is read is an error here, and would be the
death of the process otherwise. A file that changed while it was sent is withdrawn.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headrace.errors import NameRefusedError, SourceChangedError, TransferError
from headrace.log.config import QueueConfig
from headrace.payload.fragments.cutting import fragment_bytes_for
from headrace.payload.fragments.manifest import SIZE_MAX, Manifest, transfer_of
from headrace.payload.fragments.names import check_name

_KEPT_MODE = 0o777
_SPECIAL = "it is neither a file nor a directory"
_LINK = "it is a symbolic link, and links are not followed inside a directory"


@dataclass(slots=True)
class Source:
    """One file or directory, under the name that it gets at the receiver."""

    path: Path
    name: str
    is_folder: bool
    size: int
    mode: int
    mtime_ns: int
    _file: int = field(default=-1, repr=False)

    def manifest(self, feed: str, config: QueueConfig) -> Manifest:
        """How it is sent through such a queue. Opens the file."""
        kind: Literal["directory", "file"] = "directory" if self.is_folder else "file"
        if not self.is_folder:
            self.open()
        fragment_bytes = fragment_bytes_for(self.size, config)
        where = (os.uname().nodename, self.path.absolute(), feed)
        transfer = transfer_of(*where, kind, self.name, self.size, self.mtime_ns, fragment_bytes)
        return Manifest(
            transfer=transfer.hex(), source=transfer_of("source", *where).hex(), kind=kind, name=self.name,
            size=self.size, fragment_bytes=fragment_bytes, mode=self.mode, mtime_ns=self.mtime_ns,
            holes=self._holes(fragment_bytes),
        )  # fmt: skip

    def open(self) -> None:
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            self.check_unchanged()

    def read(self, place: int, buffer: memoryview) -> None:
        """Fill the buffer from there; SourceChangedError if the file has become shorter."""
        while buffer:
            count = os.preadv(self._file, [buffer], place)
            if not count:
                raise self._changed()
            buffer, place = buffer[count:], place + count

    def check_unchanged(self) -> None:
        """Raise if size or time of the file have changed since it was listed."""
        now = os.fstat(self._file)
        if (now.st_size, now.st_mtime_ns) != (self.size, self.mtime_ns):
            raise self._changed()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _changed(self) -> SourceChangedError:
        return SourceChangedError(f"{self.path} changed while it was sent", "send it again when it is complete")

    def _holes(self, fragment_bytes: int) -> list[tuple[int, int]]:
        """The fragments in which a sparse file has nothing."""
        if self.is_folder or os.fstat(self._file).st_blocks * 512 >= self.size:
            return []
        holes, place = [], 0
        for begin, end in [*_data(self._file, self.size), (self.size, self.size)]:
            first, behind = -(-place // fragment_bytes), begin // fragment_bytes
            if begin == self.size:
                behind = -(-self.size // fragment_bytes)
            if behind > first:
                holes.append((first, behind - 1))
            place = end
        return holes


def _data(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data, as places from and to."""
    place = 0
    while place < size:
        try:
            begin = os.lseek(file, place, os.SEEK_DATA)
        except OSError:  # no data from here on
            return
        place = os.lseek(file, begin, os.SEEK_HOLE)
        yield begin, min(place, size)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something inside a directory that is not sent."""

    path: Path
    why: str
    is_lost: bool = True  # a file or directory, which would be sent; not a link, for example


def list_sources(paths: list[Path]) -> tuple[list[Source], list[LeftOut]]:
    """Everything that these paths name, directories with what is in them; and what in them is left out.

    TransferError if two have the same name at the receiver; an OSError if a path does not exist.
    """
    sources: list[Source] = []
    left_out: list[LeftOut] = []
    for path in paths:
        name = path.name or path.absolute().name
        if not name or name == "..":
            name = path.resolve().name
        if not name:
            raise TransferError(f"{path} has no name to be sent under", "name the directories in it, such as /etc")
        _add(path, check_name(name), path.stat(), sources, left_out)
    seen: dict[str, Path] = {}
    for source in sources:
        if source.name in seen:
            raise TransferError(
                f"{seen[source.name]} and {source.path} would have the same name at the receiver: {source.name}",
                "send them one after the other, or rename one",
            )
        seen[source.name] = source.path
    return sources, left_out


def _add(path: Path, name: str, found: os.stat_result, sources: list[Source], left_out: list[LeftOut]) -> None:
    is_folder = stat.S_ISDIR(found.st_mode)
    if not is_folder and not stat.S_ISREG(found.st_mode):
        raise TransferError(f"{path} is not sent: {_SPECIAL}", "name files and directories")
    size = 0 if is_folder else found.st_size
    if size > SIZE_MAX:
        raise TransferError(f"{path} has {size} bytes", f"the limit is {SIZE_MAX}")
    sources.append(Source(path, name, is_folder, size, found.st_mode & _KEPT_MODE, found.st_mtime_ns))
    if is_folder:
        for entry in _entries_of(path, left_out):
            _add_entry(entry, f"{name}/{entry.name}", sources, left_out)


def _entries_of(folder: Path, left_out: list[LeftOut]) -> "list[os.DirEntry[str]]":
    """What is in a directory; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        left_out.append(LeftOut(folder, f"what is in it cannot be read: {error.strerror or error}"))
        return []


def _add_entry(entry: "os.DirEntry[str]", name: str, sources: list[Source], left_out: list[LeftOut]) -> None:
    """One entry of a directory: what cannot be sent is left out, and the others are sent."""
    path = Path(entry.path)
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError as error:  # it was removed, for example
        left_out.append(LeftOut(path, error.strerror or str(error)))
        return
    if stat.S_ISLNK(found.st_mode) or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        left_out.append(LeftOut(path, _LINK if stat.S_ISLNK(found.st_mode) else _SPECIAL, is_lost=False))
        return
    try:
        check_name(name)
    except NameRefusedError as error:
        left_out.append(LeftOut(path, error.problem))
        return
    if stat.S_ISREG(found.st_mode) and not os.access(path, os.R_OK):
        left_out.append(LeftOut(path, os.strerror(errno.EACCES)))
        return
    _add(path, name, found, sources, left_out)
