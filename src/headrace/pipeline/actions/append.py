"""Append: the rows of a batch at the ends of files, once, however often the process is killed.

    1. the batch is spooled: contents one after the other, and for each path the pieces that belong to it
    2. the folder is locked, and what a dead writer left half done there is undone
    3. the record is written: for each file its size before and after        <folder>/.headrace-append
    4. the pieces are written
    5. the journal says that the batch is done                               from here on it is
    6. the record is removed

A record that is found under the lock belongs to a writer that died between 3 and 6. If its journal says that the batch
was done, nothing is left to do; otherwise each file is cut to the size that it had, and a file that was new is
removed. Whoever takes the lock does that, so several rules and several pipelines may append to the same files.

A file that is larger than its record allows was written by someone who does not take the lock; it is not touched, and
the pipeline stops. One that was replaced or removed meanwhile is left as it is."""

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions.action import Counts
from headrace.pipeline.actions.disk import RESERVED, disk_error, sync_folder, write_whole
from headrace.pipeline.actions.journal import Journal, read_entry

RECORD = f"{RESERVED}-append"
LOCK = f"{RESERVED}-append.lock"
LOCK_WAIT_S = 120.0
SPOOL_BYTES = 32 << 20  # in memory; more is spooled to a file of the state folder
FILES_SYNCED_ONE_BY_ONE = 32
_COPY_BYTES = 1 << 20
NEW = -1  # the size of a file that was not there


class Touched(msgspec.Struct, frozen=True, array_like=True):
    """A file that is written to."""

    path: str  # below the folder
    before: int  # bytes, or NEW
    after: int
    inode: int  # 0 if it was not there


class Record(msgspec.Struct, frozen=True):
    """What must be undone unless `journal` says that the batch is done."""

    batch: int
    journal: str
    files: list[Touched]


class Spool:
    """What is to be appended, with the paths in the order in which they came first."""

    def __init__(self, state: Path) -> None:
        state.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.SpooledTemporaryFile(SPOOL_BYTES, dir=str(state))  # noqa: SIM115 - closed by `close`
        self._end = 0
        self.pieces: dict[str, list[tuple[int, int]]] = {}  # by path: begin and end

    def add(self, path: str, content: bytes) -> None:
        self._file.write(content)
        begin, self._end = self._end, self._end + len(content)
        pieces = self.pieces.setdefault(path, [])
        if pieces and pieces[-1][1] == begin:
            pieces[-1] = (pieces[-1][0], self._end)
        else:
            pieces.append((begin, self._end))

    def bytes_for(self, path: str) -> int:
        return sum(end - begin for begin, end in self.pieces[path])

    def chunks(self, path: str) -> Iterator[bytes]:
        for begin, end in self.pieces[path]:
            self._file.seek(begin)
            while begin < end:
                data = self._file.read(min(_COPY_BYTES, end - begin))
                begin += len(data)
                yield data

    def close(self) -> None:
        self._file.close()


def append(folder: Path, spool: Spool, journal: Journal, batch_id: int, counts: Counts) -> None:
    """Write what is spooled and note the batch as done; PipelineError: neither has happened."""
    with locked(folder):
        settle(folder)
        record = Record(batch_id, str(journal.path), [_touched(folder, path, spool) for path in spool.pieces])
        try:
            write_whole(folder / RECORD, msgspec.json.encode(record))
            for path in spool.pieces:
                _write(folder / path, spool.chunks(path))
            _sync(folder, record)
            journal.mark(batch_id, counts)
        except OSError as error:
            settle(folder)
            raise disk_error(error, error.filename or folder) from error
        except BaseException:
            settle(folder)
            raise
        _forget(folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Alone among all who append in this folder."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise disk_error(error, folder / LOCK) from error
    try:
        _wait_for_lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, folder: Path) -> None:
    end = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                problem = f"another process has held {folder / LOCK} for {LOCK_WAIT_S:.0f} s"
                raise TargetError(problem, "find it with fuser, and end it") from None
            time.sleep(0.005)


def settle(folder: Path) -> None:
    """Undo what a writer that died has left half done. Under the lock."""
    path = folder / RECORD
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return
    except msgspec.MsgspecError as error:
        raise PipelineError(
            f"{path} is damaged: {error}", "look at the files that were written last; remove it"
        ) from None
    except OSError as error:
        raise disk_error(error, path, "read") from error
    entry = read_entry(Path(record.journal))
    if entry is None or entry.batch != record.batch:
        for touched in record.files:
            _undo(folder / touched.path, touched)
    _forget(folder)


def _undo(path: Path, touched: Touched) -> None:
    try:
        held = os.stat(path)
        if touched.before == NEW:
            _check_ours(path, held.st_size, touched)
            path.unlink()
        elif held.st_ino == touched.inode and held.st_size > touched.before:
            _check_ours(path, held.st_size, touched)
            os.truncate(path, touched.before)
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_error(error, path, "cut to the size that it had") from error


def _check_ours(path: Path, size: int, touched: Touched) -> None:
    if size > touched.after:
        raise PipelineError(
            f"{path} has {size:,} bytes, and {touched.after:,} would be ours: another program"
            " has written to it since the pipeline was killed",
            f"take out what follows byte {max(0, touched.before):,} and is not wanted, then remove {RECORD}",
        )


def _forget(folder: Path) -> None:
    try:
        (folder / RECORD).unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(error, folder / RECORD, "removed") from error


def _touched(folder: Path, path: str, spool: Spool) -> Touched:
    count = spool.bytes_for(path)
    try:
        held = os.stat(folder / path)
    except FileNotFoundError:
        return Touched(path, NEW, count, 0)
    except OSError as error:
        raise disk_error(error, folder / path) from error
    if not stat.S_ISREG(held.st_mode):
        raise PipelineError(f"{folder / path} is not a file any more", "see what has been put there")
    return Touched(path, held.st_size, held.st_size + count, held.st_ino)


def _write(path: Path, chunks: Iterator[bytes]) -> None:
    with _opened(path) as file:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]


def _opened(path: Path) -> IO[bytes]:
    try:
        return open(path, "ab", buffering=0)
    except FileNotFoundError:  # somebody has tidied up
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "ab", buffering=0)


def _sync(folder: Path, record: Record) -> None:
    """Onto the disk, before the journal says so."""
    if len(record.files) > FILES_SYNCED_ONE_BY_ONE:
        os.sync()
        return
    for touched in record.files:
        path = folder / touched.path
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        if touched.before == NEW:
            sync_folder(path.parent)
