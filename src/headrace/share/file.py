"""The files of the groups of a queue.

    shares.json        the terms of all groups: one document, replaced as a whole
    shares/lock        held (flock) while groups are made and removed
    shares/wake        a word that changes with every table; nodes and sites that wait for a change sleep on it (futex)
    shares/3.share     group number 3: its table (layout.py), mapped by every process that uses it

Changes of a table are serialised by a lock on its file (flock), which the operating system releases with its holder,
however that ends. Every single change is one store of eight bytes (ownership.py), so there is nothing to undo after a
death. Under durability `disk` a change is on the disk before it is acknowledged.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from headrace.errors import HeadraceError, QueueDamagedError, ShareError, ShareMissingError
from headrace.files import make_folder, open_regular
from headrace.kernel import _kernel as kernel
from headrace.log.documents import Document
from headrace.log.explain import explain_os_error
from headrace.log.locks import held_by, lock_file, locked
from headrace.log.seams import Disk, Storage
from headrace.share.interface import ELSEWHERE, NOBODY, ShareTerms
from headrace.share.layout import MAGIC, SEATS, VERSION, Table, new_table, owners_of, table_bytes, table_over, takers_of
from headrace.share.ownership import Ownership

FORMAT = 1
FILE = "shares.json"
FOLDER = "shares"
_WAKE_BYTES = 64
_LOCK_S = 5.0  # a process that holds the lock of a table for longer is stopped, or the machine is
_LEAP = 1 << 16  # epochs
_REMEDY = "restore it from a backup, or run: headrace queue repair {path}, then start the nodes again"


class ShareDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of `shares.json`."""

    format: int = FORMAT
    next_number: int = 1
    groups: tuple[ShareTerms, ...] = ()

    def find(self, stream: str, group: str) -> ShareTerms | None:
        return next((each for each in self.groups if (each.stream, each.group) == (stream, group)), None)


_DOCUMENT = Document(ShareDocument, FORMAT, field="format", remedy=_REMEDY)


def read_document(path: Path) -> ShareDocument:
    """The groups of the queue at `path`; QueueDamagedError if there were some and the document is missing."""
    document = _DOCUMENT.read(path / FILE)
    if document is None and (path / FOLDER).exists():
        raise _DOCUMENT.damaged(path / FILE, "it is missing, though the queue had groups of nodes")
    return document or ShareDocument()


def write_document(path: Path, document: ShareDocument) -> None:
    """Replace the document; after return it survives a power failure. Only while `changing`."""
    try:
        _DOCUMENT.write(path / FILE, document, Disk())
    except OSError as error:
        raise explain_os_error(error, path) from error


@contextmanager
def changing(path: Path) -> Iterator[ShareDocument]:
    """Hold the lock for making and removing groups; yields the document."""
    try:
        if not (path / FOLDER).exists():
            _make_folder(path)
        held = locked(path / FOLDER / "lock")
        with held:
            yield read_document(path)
    except OSError as error:
        raise explain_os_error(error, path) from error


def _make_folder(path: Path) -> None:
    """Make the folder of the tables, after a document: alone is a sign of damage. Others may do the same now."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock_file(descriptor)
        if not (path / FOLDER).exists():
            if not (path / FILE).exists():
                write_document(path, ShareDocument())
            make_folder(path / FOLDER)
    finally:
        os.close(descriptor)


def table_path(path: Path, terms: ShareTerms) -> Path:
    return path / FOLDER / f"{terms.number}.share"


def make_table(path: Path, terms: ShareTerms, start: int, only: tuple[int, ...] | None) -> None:
    """Make the file of a new group. A file that a killed process left under this number is replaced."""
    file = table_path(path, terms)
    try:
        with os.fdopen(open_regular(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC), "r+b") as made:
            made.truncate(table_bytes(terms.slices))
        mapped = _map(file, table_bytes(terms.slices))
        new_table(memoryview(mapped), terms.slices, start, terms.dead_after_s, terms.tries_max, only)
        Disk().sync_file(file)
        Disk().sync_directory(file.parent)
    except OSError as error:
        raise explain_os_error(error, path) from error


class ShareFile:
    """The mapped table of one group, and its lock. Several threads may use it, and both sides of a fork."""

    def __init__(self, path: Path, terms: ShareTerms) -> None:
        self.path = table_path(path, terms)
        size = table_bytes(terms.slices)
        try:
            if self.path.stat().st_size != size:
                raise damaged(self.path, f"it does not have {size} bytes")
            self._mapped = _map(self.path, size)
        except OSError as error:
            raise explain_os_error(error, path) from error
        self.table = table_over(memoryview(self._mapped), terms.slices)
        check_header(self.path, self.table, terms.slices)
        self._ownership = Ownership(self.table)
        self._lock = _Lock(self.path)

    @contextmanager
    def held(self) -> Iterator[Ownership]:
        """Hold the lock of the table, against all processes and threads; ShareError if that takes too long."""
        self.check_whole()
        lock = self._lock
        if lock.pid != os.getpid():  # a forked child would share the parent's
            lock = self._lock = _Lock(self.path)
        with lock.threads:
            if not lock_file(lock.descriptor, wait=_LOCK_S):
                raise ShareError(
                    f"the table {self.path} is locked for {_LOCK_S:g} s{held_by(lock.descriptor)}",
                    "that process is stopped, or its disk is: let it go on, or end it",
                )
            try:
                self.check_whole()
                yield self._ownership
            finally:
                fcntl.flock(lock.descriptor, fcntl.LOCK_UN)

    def flush(self, storage: Storage) -> None:
        """After return, what this thread has changed is on the disk."""
        self._lock.flush(storage, self.path)

    @property
    def is_whole(self) -> bool:
        return bytes(self.table.header[0]["magic"]) == MAGIC

    def check_whole(self) -> None:
        """QueueDamagedError if the file is damaged, ShareMissingError if the group was removed."""
        magic = bytes(self.table.header[0]["magic"])
        if magic == MAGIC:
            return
        if self._mapped.holed:
            raise damaged(self.path, "it was truncated while it was in use")
        if magic:
            raise damaged(self.path, "it is no table of a group any more")
        raise _removed()


class _Lock:
    """An open file for the lock of a table, in one process. Threads that open two exclude each other as processes do.

    One flush serves all threads that asked for one before it began.
    """

    def __init__(self, path: Path) -> None:
        self.pid, self.threads, self.descriptor = os.getpid(), threading.Lock(), -1
        self._flushing, self._asking = threading.Lock(), threading.Lock()
        self._asked = self._flushed = 0
        try:
            self.descriptor = open_regular(path, os.O_RDWR)
        except FileNotFoundError:
            raise _removed() from None
        except OSError as error:
            raise explain_os_error(error, path) from error

    def flush(self, storage: Storage, path: Path) -> None:
        with self._asking:
            self._asked += 1
            ticket = self._asked
        with self._flushing:
            if self._flushed < ticket:
                upto = self._asked
                storage.sync_file(path)
                self._flushed = upto

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


class Changes:
    """Tells processes that the table of some group has changed. Threads may share it, and both sides of a fork."""

    def __init__(self, path: Path) -> None:
        """Of the queue at `path`, which has groups, or had some."""
        try:
            descriptor = open_regular(path / FOLDER / "wake", os.O_RDWR | os.O_CREAT)
            try:
                if os.fstat(descriptor).st_size < _WAKE_BYTES:
                    os.ftruncate(descriptor, _WAKE_BYTES)
                self._mapped = kernel.Mapped(descriptor, _WAKE_BYTES)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise explain_os_error(error, path) from error
        self._words = memoryview(self._mapped).cast("I")

    @property
    def number(self) -> int:
        """Another one after each change."""
        return self._words[0]

    def wait(self, seen: int, timeout_s: float) -> None:
        """Sleep until the number is not `seen`, or `timeout_s` or a second has passed."""
        self._mapped.wait(0, seen, max(0.0, timeout_s))

    def tell(self) -> None:
        self._mapped.wake(0)


def check_header(path: Path, table: Table, slices: int) -> None:
    """QueueDamagedError if the file is not the table of a group with so many slices."""
    header = table.header[0]
    if bytes(header["magic"]) != MAGIC:
        raise damaged(path, "it does not begin as a table of a group does")
    if int(header["version"]) != VERSION or int(header["slices"]) != slices:
        raise damaged(path, f"it is version {header['version']} with {header['slices']} slices")


def faults_of(table: Table, head: int) -> list[str]:
    """What is impossible in a table, in words."""
    owners, takers = owners_of(table.words), takers_of(table.words)
    strange = np.count_nonzero((owners >= SEATS) & (owners != NOBODY) & (owners != ELSEWHERE))
    strange += np.count_nonzero((takers >= SEATS) & (takers != NOBODY))
    ahead = np.count_nonzero(table.positions > head)
    found = [f"{strange} slices have owners that cannot exist"] if strange else []
    return found + ([f"{ahead} slices are past the end of the queue"] if ahead else [])


class ShareFiles:
    """The groups' part in opening, checking and repairing a queue (log/seams.py: Resident)."""

    file = FILE

    def validate(self, path: Path) -> None:
        read_document(path)

    def settle(self, log: kernel.Log, path: Path, storage: Storage, trusted: bool) -> None:
        """After a restart of the machine: no node is alive, and nothing is confirmed that the queue has lost.

        Epochs leap, because a sink may have seen later ones than those that reached the disk.
        """
        if trusted:
            return
        for terms in read_document(path).groups:
            file = ShareFile(path, terms)
            with file.held() as ownership:
                ownership.table.seats["heartbeat"] = 0
                ownership.table.header["leader_until"] = 0
                ownership.table.words[:] += np.uint64(_LEAP << 32)
                np.minimum(ownership.table.positions, np.uint64(log.head), out=ownership.table.positions)

    def forget(self, log: kernel.Log, path: Path) -> list[str]:
        """Without a document there are no groups: an empty one says so."""
        if (path / FILE).exists() or not (path / FOLDER).exists():
            return []
        write_document(path, ShareDocument())
        return [f"{path / FILE} is missing: the queue has no groups of nodes any more; start the nodes again"]

    def check(self, log: kernel.Log, path: Path) -> list[str]:
        """What is wrong with the document and the tables, in words."""
        found = []
        try:
            for terms in read_document(path).groups:
                found += [
                    f"{table_path(path, terms)}: {each}" for each in faults_of(ShareFile(path, terms).table, log.head)
                ]
        except HeadraceError as error:
            found.append(error.problem)
        return found


def _removed() -> ShareMissingError:
    return ShareMissingError("the group was removed", "open it again, which makes a new one")


def damaged(path: Path, reason: str) -> QueueDamagedError:
    return QueueDamagedError(f"{path} is invalid: {reason}", _REMEDY.format(path=path.parent.parent))


def _map(path: Path, size: int) -> kernel.Mapped:
    descriptor = open_regular(path, os.O_RDWR)
    try:
        return kernel.Mapped(descriptor, size)
    finally:
        os.close(descriptor)
