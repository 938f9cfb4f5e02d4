"""The commit log of a ParquetSink: which files count, and how far each slice has come.

    <parent>/.headrace/<folder>/sink/lock        held by the process that commits
    <parent>/.headrace/<folder>/sink/commits     one line for each commit: a checksum, and a JSON object
    <parent>/.headrace/<folder>/sink/staged/     files that no reader of the folder sees yet

A commit is one complete line: it names the staged file, and has the positions behind its rows. The line is flushed,
then the file is renamed into the folder. A process that is killed in between has committed; the next one to take the
lock does the rename. So at most one file is committed and not in place, that of the last line.

A line that was cut short counts for nothing, and the next commit overwrites it. When the log has grown to `LOG_BYTES`,
it is replaced by one line with the positions of all slices.

A process keeps the state that it has read, and reads only lines that are new. Every method is called by one thread at a
time, and those after `locked` within it.
"""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from headrace.decoding import Decoder
from headrace.errors import SinkError, SinkUnavailableError
from headrace.files import open_regular, open_to_read
from headrace.log.documents import UNREADABLE, replace_file
from headrace.log.locks import FileLockedError, locked
from headrace.log.seams import Disk
from headrace.slices.sinks.fencing import Held, Holds

LOG_BYTES = 4 << 20
_VERSION = 1
_CHECKSUM_BYTES = 8
_DISK = Disk()


class Commit(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line. The first one of a log has its version."""

    number: int
    groups: dict[str, list[tuple[int, int, int]]]  # id: slice, epoch, position of each slice that changed
    staged: str = ""  # the file of this commit, if it has rows
    file: str = ""  # its name in the folder
    version: int = 0


_DECODER: Decoder[Commit] = Decoder(Commit, encoding="json")


class CommitLog:
    """The log of one folder, as one process sees it."""

    def __init__(self, folder: Path, timeout_s: float) -> None:
        """Create what is missing. OSError."""
        self.folder = folder.resolve()
        self._home = _home(self.folder)
        self.staged = self._home / "staged"
        self._log = self._home / "commits"
        self._timeout_s = timeout_s
        self._forget()
        _make_folder(self.folder)
        _make_folder(self.staged)
        if self.folder.stat().st_dev != self._home.stat().st_dev:
            raise SinkError(
                f"{self.folder} is on another file system than {self._home}", "choose a folder that is no mount point"
            )

    def _forget(self) -> None:
        self._groups: dict[str, dict[int, Held]] = {}
        self._end = 0  # of the last complete line
        self._inode = 0
        self._last: Commit | None = None

    def held(self, group: str) -> Holds:
        """How far the slices of a group have come, as read last."""
        return self._groups.get(group, {})

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only process that commits, with everything read that others have committed, and in place."""
        try:
            with locked(self._home / "lock", wait=self._timeout_s):
                self._read()
                self._place()
                yield
        except FileLockedError as error:
            raise SinkUnavailableError(
                f"{error} for more than {self._timeout_s:g} s", "end that process, or raise timeout"
            ) from None

    def commit(self, group: str, changed: Holds, staged: str = "") -> None:
        """Record that the slices have come so far, by the rows of a staged file. OSError: nothing has changed."""
        number = self._last.number + 1 if self._last else 1
        columns = [(slice_, *held) for slice_, held in changed.items()]
        file = f"part-{number:010}-{Path(staged).stem}.parquet" if staged else ""
        made = Commit(number, {group: columns}, staged, file, 0 if self._end else _VERSION)
        line = _line(made)
        self._append(line)
        self._apply(made)
        self._end += len(line)
        self._place()
        if self._end > LOG_BYTES:
            with suppress(OSError):  # the next commit tries again
                self._compact()

    @property
    def last_staged(self) -> str:
        """The name under which the file of the last commit was staged."""
        return self._last.staged if self._last else ""

    def remove_strays(self) -> None:
        """Delete staged files that were never committed. Their writer, if it lives, stages them again."""
        for path in self.staged.iterdir():
            if path.name != self.last_staged:
                path.unlink(missing_ok=True)

    # --- the file ---------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read what others have committed since."""
        try:
            status = self._log.stat()
        except FileNotFoundError:
            if self._end:
                raise SinkError(f"{self._log} is gone", "restore it, or choose a new folder") from None
            return
        if status.st_ino != self._inode or status.st_size < self._end:
            self._forget()
            self._inode = status.st_ino
        with open_to_read(self._log) as log:
            log.seek(self._end)
            data = log.read()
        *lines, _ = data.split(b"\n")  # the last piece is empty, or was cut short
        for place, line in enumerate(lines):
            made = self._decoded(line)
            if made is None:
                if place < len(lines) - 1:
                    raise SinkError(f"{self._log} is damaged at byte {self._end}", "restore it, or choose a new folder")
                break  # cut short by a power failure
            self._apply(made)
            self._end += len(line) + 1

    def _decoded(self, line: bytes) -> Commit | None:
        """None: the line is incomplete."""
        text = line[_CHECKSUM_BYTES + 1 :]
        if line[: _CHECKSUM_BYTES + 1] != _checksum(text):
            return None
        try:
            made = _DECODER.decode(text)
        except UNREADABLE as error:
            raise SinkError(f"{self._log} is not of this version: {error}", "upgrade Headrace") from None
        if not self._end and made.version != _VERSION:
            raise SinkError(f"{self._log} has version {made.version}, not {_VERSION}", "upgrade Headrace")
        return made

    def _apply(self, commit: Commit) -> None:
        for group, slices in commit.groups.items():
            held = self._groups.setdefault(group, {})
            held.update((slice_, Held(epoch, position)) for slice_, epoch, position in slices)
        self._last = commit

    def _append(self, line: bytes) -> None:
        """Write one line behind the last complete one, and flush it; after an error the file is as before."""
        descriptor = open_regular(self._log, os.O_RDWR | os.O_CREAT)
        try:
            try:
                os.ftruncate(descriptor, self._end)
                written = 0
                while written < len(line):
                    written += os.pwrite(descriptor, line[written:], self._end + written)
                os.fdatasync(descriptor)
            except OSError:
                os.ftruncate(descriptor, self._end)
                raise
            if not self._end:
                _DISK.sync_directory(self._home)
            self._inode = os.fstat(descriptor).st_ino
        finally:
            os.close(descriptor)

    def _place(self) -> None:
        """Rename the file of the last commit into the folder, if that is not done yet. OSError: it is done later."""
        if self._last is None or not self._last.staged:
            return
        source = self.staged / self._last.staged
        if source.exists():
            os.replace(source, self.folder / self._last.file)
            _DISK.sync_directory(self.folder)

    def _compact(self) -> None:
        assert self._last is not None
        groups = {group: [(slice_, *held) for slice_, held in slices.items()] for group, slices in self._groups.items()}
        line = _line(msgspec.structs.replace(self._last, groups=groups, version=_VERSION))
        replace_file(self._log, line, _DISK)
        self._inode, self._end = self._log.stat().st_ino, len(line)


def has_log(folder: Path) -> bool:
    """Whether a sink has ever used the folder."""
    return _home(folder.resolve()).exists()


def _home(folder: Path) -> Path:
    return folder.parent / ".headrace" / folder.name / "sink"


def _line(commit: Commit) -> bytes:
    text = msgspec.json.encode(commit)
    return _checksum(text) + text + b"\n"


def _checksum(text: bytes) -> bytes:
    return b"%08x " % zlib.crc32(text)


def _make_folder(folder: Path) -> None:
    """Create the folder and its missing parents, by names that survive a power failure."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        _DISK.sync_directory(each.parent)
