"""Append the rows of a batch to the ends of files, once, even if the process is killed at any point.

    1. spool the batch: contents one after the other, and for each path the pieces that belong to it
    2. lock the folder, and undo what a killed writer left unfinished there
    3. create new files, empty, and write the record                         <folder>/.headrace-append
       for each file: its inode, its size before and after, and how our part begins
    4. write the pieces, and flush them
    5. mark the batch as done in the journal                                 from here on it is done
    6. remove the record

A record that is found under the lock belongs to a writer that was killed between 3 and 6. If its journal says that the
batch is done, nothing remains to be done. Otherwise each file is truncated to the size that it had, and a file that was
new is removed. Every writer does that after it takes the lock, so several rules and several pipelines may append to the
same files.

Only our own bytes are undone. A file with another inode was replaced in the meantime, and is left as it is. A file that
is larger than its record allows, or that has other bytes where our part would begin, was written by a program that does
not take the lock. It is not touched, and the pipeline stops.

Durability: the record, the files and the journal survive a power failure, in this order. The lock dies with its
process.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from headrace.decoding import Decoder
from headrace.errors import PipelineError, TargetError
from headrace.files import read_regular
from headrace.log.documents import UNREADABLE, replace_file
from headrace.log.locks import FileLockedError, locked
from headrace.pipeline.actions.action import Counts
from headrace.pipeline.actions.disk import DISK, RESERVED, disk_error, make_folder, sync_names
from headrace.pipeline.actions.journal import Journal, read_entry

RECORD = f"{RESERVED}-append"
LOCK = f"{RESERVED}-append.lock"
LOCK_WAIT_S = 120.0
SPOOL_BYTES = 32 << 20  # kept in memory; a larger spool goes to a file in the state folder
FILES_SYNCED_ONE_BY_ONE = 32  # more are cheaper by one sync of everything
HEAD_BYTES = 64  # of our part of a file; enough to tell it from what others write
_COPY_BYTES = 1 << 20
NEW = -1  # the size of a file that did not exist


class Touched(msgspec.Struct, frozen=True, array_like=True):
    """A file that a batch appends to."""

    path: str  # below the folder
    before: int  # bytes, or NEW
    after: int
    inode: int
    head: bytes = b""  # how our part begins


class Record(msgspec.Struct, frozen=True):
    """What to undo unless `journal` says that the batch is done."""

    batch: int
    journal: str
    files: list[Touched]


_DECODER: Decoder[Record] = Decoder(Record, encoding="json")


class Spool:
    """The contents to append, with paths in the order of their first rows."""

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
    """Write the spool and mark the batch as done, unless another process has done so. PipelineError: neither happened.

    TargetError: the disk refused, and nothing is left of the batch.
    """
    with append_lock(folder):
        undo_unfinished(folder)
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
            undo_unfinished(folder)
            raise disk_error(error, error.filename or folder) from error
        except BaseException:
            undo_unfinished(folder)
            raise
        _remove_record(folder)
        return counts


@contextmanager
def append_lock(folder: Path) -> Iterator[None]:
    """Exclude all other writers of this folder. TargetError: another process holds the lock for too long."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / LOCK, wait=LOCK_WAIT_S))
        except FileLockedError as error:
            problem = f"another process has held {error.path} for {LOCK_WAIT_S:.0f} s"
            holder = f"process {error.holder}" if error.holder else "it (find it with fuser)"
            raise TargetError(problem, f"stop {holder}") from None
        except OSError as error:
            raise disk_error(error, folder / LOCK) from error
        yield


def undo_unfinished(folder: Path) -> None:
    """Undo what a killed writer left unfinished. The caller holds the lock."""
    path = folder / RECORD
    try:
        record = _DECODER.decode(read_regular(path))
    except FileNotFoundError:
        return
    except UNREADABLE as error:
        raise PipelineError(
            f"{path} is damaged: {error}", "check the files that were written last, then remove it"
        ) from None
    except OSError as error:
        raise disk_error(error, path, "read") from error
    entry = read_entry(Path(record.journal))
    if entry is None or entry.batch != record.batch:
        for touched in record.files:
            _undo(folder / touched.path, touched)
    _remove_record(folder)


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
        raise disk_error(error, path, "truncated") from error


def _check_ours(path: Path, size: int, touched: Touched) -> None:
    begin = max(0, touched.before)
    if size > touched.after:
        problem = f"{path} has {size:,} bytes, more than the {touched.after:,} that the pipeline would have written"
    elif not touched.head.startswith(_read(path, begin, len(touched.head)).rstrip(b"\0")):  # zeros: power failed
        problem = f"{path} continues after byte {begin:,} with bytes that are not from the pipeline"
    else:
        return
    raise PipelineError(
        f"{problem}: another program has written to it since the pipeline was killed",
        f"remove the unwanted bytes after byte {begin:,}, then remove {RECORD}",
    )


def _read(path: Path, begin: int, count: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(begin)
        return file.read(count)


def _remove_record(folder: Path) -> None:
    try:
        (folder / RECORD).unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(error, folder / RECORD, "removed") from error


def _begin(folder: Path, spool: Spool, journal: Journal, batch_id: int) -> Record:
    """Create the new files and the record of all files. If that fails, neither is left."""
    files: list[Touched] = []
    try:
        for path in spool.pieces:
            files.append(_touched(folder, path, spool))
        record = Record(batch_id, str(journal.path), files)
        replace_file(folder / RECORD, msgspec.json.encode(record), DISK)  # on disk before the first byte is appended
    except BaseException as error:
        for touched in files:
            _undo(folder / touched.path, touched)
        _remove_record(folder)
        if isinstance(error, OSError):
            raise disk_error(error, error.filename or folder) from error
        raise
    return record


def _touched(folder: Path, path: str, spool: Spool) -> Touched:
    held, is_new = _found(folder / path)
    if not stat.S_ISREG(held.st_mode):
        raise PipelineError(f"{folder / path} is not a regular file any more", "check what replaced it")
    before = NEW if is_new else held.st_size
    return Touched(path, before, held.st_size + spool.bytes_for(path), held.st_ino, spool.head(path))


def _found(path: Path) -> tuple[os.stat_result, bool]:
    """The file, and whether it is new. A missing file is created, so that its inode identifies it."""
    try:
        return os.stat(path), False
    except FileNotFoundError:
        target = Path(os.path.realpath(path))  # the target of a dangling link
    make_folder(target.parent)  # it may have been removed since the batch was spooled
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:  # another program has just created it
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
    """The file of the record and no other: only that one would be truncated."""
    with suppress(FileNotFoundError):
        file = open(path, "ab", buffering=0, opener=lambda name, flags: os.open(name, flags & ~os.O_CREAT))  # noqa: SIM115
        if os.fstat(file.fileno()).st_ino == inode:
            return file
        file.close()
    raise TargetError(
        f"{path} was removed or replaced before a batch was written to it",
        f"a program that removes or replaces files must hold {LOCK}; the batch is retried",
    )


def _sync(folder: Path, record: Record) -> None:
    """Flush the files: the journal must not be ahead of them."""
    if len(record.files) > FILES_SYNCED_ONE_BY_ONE:
        os.sync()
        return
    for touched in record.files:
        DISK.sync_file(folder / touched.path)
    new = (folder / touched.path for touched in record.files if touched.before <= 0)  # an empty file may be new too
    sync_names(folder, new)
