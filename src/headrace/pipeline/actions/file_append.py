"""Append: the rows of a batch at the ends of files, once, however often the process is killed.

    1. the batch is spooled: contents one after the other, and for each path the pieces that belong to it
    2. the folder is locked, and what a dead writer left half done there is undone
    3. new files are made, empty, and the record is written: for each file   <folder>/.headrace-append
       its inode, its size before and after, and how our part begins
    4. the pieces are written
    5. the journal says that the batch is done                               from here on it is
    6. the record is removed

A record that is found under the lock belongs to a writer that died between 3 and 6. If its journal says that the batch
was done, nothing is left to do; otherwise each file is cut to the size that it had, and a file that was new is
removed. Whoever takes the lock does that, so several rules and several pipelines may append to the same files.

Only what is ours is undone. A file with another inode was replaced meanwhile, and is left as it is. One that is larger
than its record allows, or in which something else begins where our part would, was written by someone who does not
take the lock; it is not touched, and the pipeline stops."""

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions.action import Counts
from headrace.pipeline.actions.disk import RESERVED, disk_error, make_folder, sync_names, write_whole
from headrace.pipeline.actions.journal import Journal, read_entry

RECORD = f"{RESERVED}-append"
LOCK = f"{RESERVED}-append.lock"
LOCK_WAIT_S = 120.0
SPOOL_BYTES = 32 << 20  # in memory; more is spooled to a file of the state folder
FILES_SYNCED_ONE_BY_ONE = 32
HEAD_BYTES = 64  # of what we write to a file; enough to tell it from what others write
_COPY_BYTES = 1 << 20
NEW = -1  # the size of a file that was not there


class Touched(msgspec.Struct, frozen=True, array_like=True):
    """A file that is written to."""

    path: str  # below the folder
    before: int  # bytes, or NEW
    after: int
    inode: int
    head: bytes = b""  # how our part begins


class Record(msgspec.Struct, frozen=True):
    """What must be undone unless `journal` says that the batch is done."""

    batch: int
    journal: str
    files: list[Touched]


class Spool:
    """What is to be appended, with the paths in the order in which they came first."""

    def __init__(self, state: Path) -> None:
        make_folder(state)
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

    def head(self, path: str) -> bytes:
        """The first bytes for a path."""
        head = b""
        for begin, end in self.pieces[path]:
            self._file.seek(begin)
            head += self._file.read(min(HEAD_BYTES - len(head), end - begin))
            if len(head) == HEAD_BYTES:
                break
        return head

    def chunks(self, path: str) -> Iterator[bytes]:
        for begin, end in self.pieces[path]:
            self._file.seek(begin)
            while begin < end:
                data = self._file.read(min(_COPY_BYTES, end - begin))
                begin += len(data)
                yield data

    def close(self) -> None:
        self._file.close()


def append(folder: Path, spool: Spool, journal: Journal, batch_id: int, counts: Counts) -> Counts:
    """Write what is spooled and note the batch as done, unless another process has; PipelineError: neither."""
    with locked(folder):
        settle(folder)
        done = journal.done(batch_id)
        if done is not None:
            return done
        record = _begin(folder, spool, journal, batch_id)
        try:
            for touched in record.files:
                _write(folder / touched.path, touched.inode, spool.chunks(touched.path))
            _sync(folder, record)
            journal.mark(batch_id, counts)
        except OSError as error:
            settle(folder)
            raise disk_error(error, error.filename or folder) from error
        except BaseException:
            settle(folder)
            raise
        _forget(folder)
        return counts


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
        if held.st_ino != touched.inode or held.st_size <= touched.before:
            return
        _check_ours(path, held.st_size, touched)
        if touched.before == NEW:
            os.unlink(os.path.realpath(path))
        else:
            os.truncate(path, touched.before)
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_error(error, path, "cut to the size that it had") from error


def _check_ours(path: Path, size: int, touched: Touched) -> None:
    begin = max(0, touched.before)
    if size > touched.after:
        problem = f"{path} has {size:,} bytes, and {touched.after:,} would be ours"
    elif not touched.head.startswith(_read(path, begin, len(touched.head)).rstrip(b"\0")):  # zeros: power was lost
        problem = f"{path} goes on behind byte {begin:,} with something that is not ours"
    else:
        return
    raise PipelineError(
        f"{problem}: another program has written to it since the pipeline was killed",
        f"take out what follows byte {begin:,} and is not wanted, then remove {RECORD}",
    )


def _read(path: Path, begin: int, count: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read(count)


def _forget(folder: Path) -> None:
    try:
        (folder / RECORD).unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(error, folder / RECORD, "removed") from error


def _begin(folder: Path, spool: Spool, journal: Journal, batch_id: int) -> Record:
    """Make new files, and the record of all; if that fails, neither is there."""
    files: list[Touched] = []
    try:
        for path in spool.pieces:
            files.append(_touched(folder, path, spool))
        record = Record(batch_id, str(journal.path), files)
        write_whole(folder / RECORD, msgspec.json.encode(record))
    except BaseException as error:
        for touched in files:
            _undo(folder / touched.path, touched)
        _forget(folder)
        if isinstance(error, OSError):
            raise disk_error(error, error.filename or folder) from error
        raise
    return record


def _touched(folder: Path, path: str, spool: Spool) -> Touched:
    held, is_new = _found(folder / path)
    if not stat.S_ISREG(held.st_mode):
        raise PipelineError(f"{folder / path} is not a file any more", "see what has been put there")
    before = NEW if is_new else held.st_size
    return Touched(path, before, held.st_size + spool.bytes_for(path), held.st_ino, spool.head(path))


def _found(path: Path) -> tuple[os.stat_result, bool]:
    """A file, and whether it is new. One that is not there is made: its inode then tells it from any other."""
    try:
        return os.stat(path), False
    except FileNotFoundError:
        target = Path(os.path.realpath(path))  # behind a link that leads nowhere yet
    make_folder(target.parent)  # if somebody has tidied up
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:  # made by another program, just now
        return os.stat(path), False
    try:
        return os.fstat(descriptor), True
    finally:
        os.close(descriptor)


def _write(path: Path, inode: int, chunks: Iterator[bytes]) -> None:
    with _opened(path, inode) as file:
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]


def _opened(path: Path, inode: int) -> IO[bytes]:
    """The file that is in the record and no other, since no other would be cut."""
    with suppress(FileNotFoundError):
        file = open(path, "ab", buffering=0, opener=lambda name, flags: os.open(name, flags & ~os.O_CREAT))  # noqa: SIM115
        if os.fstat(file.fileno()).st_ino == inode:
            return file
        file.close()
    raise TargetError(
        f"{path} was removed or replaced before a batch was written to it",
        f"whoever does that takes {LOCK} meanwhile; the batch is done again",
    )


def _sync(folder: Path, record: Record) -> None:
    """Onto the disk, before the journal says so."""
    if len(record.files) > FILES_SYNCED_ONE_BY_ONE:
        os.sync()
        return
    for touched in record.files:
        with open(folder / touched.path, "rb") as file:
            os.fsync(file.fileno())
    new = (folder / touched.path for touched in record.files if touched.before <= 0)  # an empty one may be new too
    sync_names(folder, new)
