"""OpenChain: one chain of stations as this process sees it.

It scans the log for all stations of the chain at once (`conduct`): in the kernel if index rows decide for every
station, otherwise by reading what the selections want and handing the result to the kernel. Either way the position of
the chain moves once for all processes; a process that comes second finds the work done.

A function of a user, in a selection, may be slow, or unknown to this process. It is called for a moment at a time, and
other threads do not wait for it. Without the function this process does not scan at all: one that has it does.

It also detects dead consumers (`recover`). Each consumer holds a lock on one byte of the chain's file, which the
operating system releases the moment its process ends, and has a heartbeat as long as it does not hang.

Not here: the terms of the stations (stations.py), and the state itself (kernel/chain/).
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.errors import HeadraceError, OptionError, ProductDamagedError, QueueDamagedError, StationError
from headrace.files import open_regular
from headrace.kernel import _kernel as kernel
from headrace.log.explain import REPAIR, explain, explain_os_error
from headrace.log.locks import is_byte_locked, lock_byte
from headrace.log.place import check_place
from headrace.log.read import Reader, RowTerms
from headrace.product.batch import ROW, Batch
from headrace.product.product import Product
from headrace.selection import Selection
from headrace.selection.functions import Function, Functions, unknown_function
from headrace.station.document import chain_path
from headrace.station.statistics import ConsumerStatistics
from headrace.station.terms import Retired, StationTerms

NO_END = (1 << 63) - 1
_READ_AHEAD = 1000  # products read at once if index rows do not decide
_BYTES_AHEAD = 16 << 20
_TURN_S = 0.1  # how long one call scans by functions, and waits for another thread that does
_CODES = kernel.CODES

Stations = Callable[[], list[StationTerms]]
Readers = list[tuple[StationTerms, Reader | None]]


class _Ahead(NamedTuple):
    """What one station wants of the products up to `next`; no batch if the first of them is damaged."""

    terms: StationTerms
    reader: Reader
    next: int
    batch: Batch | None


class OpenChain:
    """A mapped chain, and the selections by which this process scans the log for it."""

    def __init__(self, log: kernel.Log, path: Path, number: int, named: Functions | None = None) -> None:
        """`named` are the functions that selections may name."""
        self.number = number
        self._named = named or Functions()
        self._log, self._path = log, path
        file = chain_path(path, number)
        try:
            self.kernel = kernel.Chain(log, open_regular(file, os.O_RDWR), number)
        except FileNotFoundError:
            raise QueueDamagedError(f"{file} is missing", REPAIR.format(path=path)) from None
        except OSError as error:
            raise explain_os_error(error, path) from None
        except kernel.KernelError as error:
            if error.code == _CODES["damaged"]:
                raise QueueDamagedError(
                    f"{file} is truncated or altered", "stop all programs that use the queue, then open it again"
                ) from None
            raise explain(error, path) from None
        self.functions: dict[str, Function] = {}  # selection functions, by station
        self.old_functions: dict[tuple[str, int], Function] = {}  # those of retired selections, by station and end
        self._lock = threading.RLock()  # of threads of this process, for what follows
        self._stations: list[StationTerms] = []
        self._rows: list[RowTerms] = []
        self._readers: Readers = []
        self._seen = 0
        self._until = NO_END
        self.conducts = False
        self.calls = False  # functions of users, to scan

    # --- terms ------------------------------------------------------------------------------------

    def use(self, stations: Stations) -> None:
        """Scan by the selections that hold at the chain's position; `stations` reads the terms."""
        with self._lock:
            seen = self.kernel.terms_number  # before the terms are read: newer terms have another number
            position = self.kernel.position
            chosen = [(terms, *self._selection_at(terms, position)) for terms in stations()]
            self._until = min((end for *_, end in chosen), default=NO_END)
            wanting = [(terms, selection) for terms, selection, _ in chosen if selection is not None]
            self._stations = [terms for terms, _ in wanting]
            self._rows = [RowTerms(self._log, selection) for _, selection in wanting]
            self.conducts = all(selection.is_cheap for _, selection in wanting)
            self._readers = [] if self.conducts else [(terms, self._reader(selection)) for terms, selection in wanting]
            self.calls = any(selection.function is not None for _, selection in wanting)
            self._seen = seen
            self._use_rows()

    def _use_rows(self) -> None:
        members = [terms.member for terms in self._stations]
        self.kernel.use_terms(self._seen, members, [rows.filter for rows in self._rows], self._until, self.conducts)

    def _selection_at(self, terms: StationTerms, position: int) -> tuple[Selection | None, int]:
        """The selection that decides about `position`, and where it ends; None for products older than the station."""
        for retired in terms.retired:
            if position < retired.until:
                return self._retired(terms.name, retired), retired.until
        selection = Selection.parse(terms.selection)
        if self.lacks(terms) is not None:
            return selection.replace(function=_unknown), NO_END
        if terms.local:
            return selection.replace(function=self.functions[terms.name]), NO_END
        return selection.bound(self._named), NO_END

    def lacks(self, terms: StationTerms) -> HeadraceError | None:
        """The error for a process that does not have the function of a station's selection; None if it does."""
        if terms.local and terms.name not in self.functions:
            return OptionError(
                f"the selection of station {terms.name!r} has a function, which this process does not have",
                "pass it: queue.station(name, selection=…)",
            )
        name = Selection.parse(terms.selection).function
        if name is None or name in self._named:
            return None
        error = unknown_function(str(name), ())
        return type(error)(f"station {terms.name!r} selects by function {name!r}: {error.problem}", error.hint)

    def _retired(self, name: str, retired: Retired) -> Selection | None:
        """A function that this process does not have counts as wanting everything, so that nothing is lost."""
        if retired.selection is None:
            return None
        selection = Selection.parse(retired.selection)
        if retired.local:
            return selection.replace(function=self.old_functions.get((name, retired.until)))
        is_known = selection.function is None or selection.function in self._named
        return selection.bound(self._named) if is_known else selection.replace(function=None)

    def _reader(self, selection: Selection) -> Reader | None:
        if selection.function is _unknown:
            return None
        return Reader(self._log, self._path, selection, brief=True)

    # --- from the log -----------------------------------------------------------------------------

    def attend(self, outcome: int, stations: Stations) -> None:
        """Give the kernel what it needs to go on (new terms, new feed names); raise any other outcome."""
        if outcome == _CODES["terms"]:
            self.use(stations)
            return
        if outcome == _CODES["unknown_feed"]:
            if self._learn_names():
                return
            outcome = _CODES["damaged"]  # a row names a feed that does not exist
        if outcome < 0:
            raise explain(kernel.KernelError(outcome, self._log.failed_file), self._path)

    def _learn_names(self) -> bool:
        """Decide about new names; False if none explains why the kernel stopped.

        Another thread may have learnt them since it stopped. Then there is nothing new, and the kernel goes on; if it
        stops again, for a name that was added meanwhile, there is.
        """
        with self._lock:
            learnt = self._learn()
            return learnt or self.kernel.conduct() != _CODES["unknown_feed"] or self._learn()

    def _learn(self) -> bool:
        learnt = [rows.learn() for rows in self._rows]
        self._use_rows()
        return any(learnt)

    def conduct(self, now_ns: int, stations: Stations, *, calls: bool = True) -> int:
        """Scan the log as far as the stations have room; returns the position up to which it was scanned.

        If functions of users decide, that is as far as it got in a moment; without `calls`, they are not called.
        """
        begun_s = time.monotonic() if self.calls else 0.0
        while True:
            if self.kernel.position >= self._until:
                self.use(stations)
            before, looked = self.kernel.position, self._log.head
            outcome = self.kernel.conduct()
            if outcome != 0:
                self.attend(outcome, stations)
                continue
            if self.calls and not calls:
                return self.kernel.position
            if not self.conducts and not self._conduct_by_reading(now_ns):
                return self.kernel.position
            if not before < self.kernel.position < looked:
                return looked
            if self.calls and time.monotonic() - begun_s > _TURN_S:
                return self.kernel.position

    def _conduct_by_reading(self, now_ns: int) -> bool:
        """Read what each station wants and hand it to the kernel, unless this process lacks a function.

        False if another thread is at it, and takes long.
        """
        if not self._lock.acquire(timeout=_TURN_S if self.calls else -1):
            return False
        try:
            self._conduct_alone(now_ns)
            return True
        finally:
            self._lock.release()

    def _conduct_alone(self, now_ns: int) -> None:
        seen, readers = self._seen, self._readers
        start, stop = self.kernel.position, min(self._log.head, self._until)
        if start >= stop or any(reader is None for _, reader in readers):
            return
        ahead = self._read_ahead(readers, start, stop, now_ns)
        if ahead is None:
            return
        end = min((each.next for each in ahead), default=stop)
        reached = self.kernel.admit(seen, start, end, *_merge(ahead, end))
        for each in ahead if reached else ():
            self._count_passed(each, start, reached, now_ns)

    def _read_ahead(self, readers: Readers, start: int, stop: int, now_ns: int) -> list[_Ahead] | None:
        """What each station wants, as far as its reader got; None if products were evicted."""
        ahead = []
        for terms, reader in readers:
            assert reader is not None
            try:
                batch = reader.read(start, _READ_AHEAD, _BYTES_AHEAD, now_ns, stop)
            except ProductDamagedError as error:
                ahead.append(_Ahead(terms, reader, error.next, None))
                continue
            if batch.lost:
                self.kernel.skip(start, batch.lost.last)
                return None
            ahead.append(_Ahead(terms, reader, batch.next, batch))
        return ahead

    def _count_passed(self, each: _Ahead, start: int, reached: int, now_ns: int) -> None:
        """Count what a station did not get of [start, reached), the range that was taken up.

        Its reader may have looked further, because another reader stopped or a station was full: what lies beyond is
        read once more later, and must not be counted twice.
        """
        terms, reader, looked, batch = each
        if batch is None:
            self.kernel.count_passed(terms.member, 0, int(reached > start))
            return
        late = int(np.count_nonzero(_is_late(batch.columns, terms) & (batch.columns["sequence"] < reached)))
        expired, damaged = batch.expired, batch.damaged
        if reached < looked and (expired or damaged):
            expired = damaged = 0
            while start < reached:
                taken = reader.read(start, _READ_AHEAD, NO_END, now_ns, reached)
                start, expired, damaged = taken.next, expired + taken.expired, damaged + taken.damaged
        if late or expired or damaged:
            self.kernel.count_passed(terms.member, expired + late, damaged)

    # --- consumers --------------------------------------------------------------------------------

    def claim(self, member: int) -> tuple[int, int, int]:
        """A slot for a consumer: its number, its epoch, and the descriptor whose lock marks it as alive."""
        try:
            descriptor = open_regular(chain_path(self._path, self.number), os.O_RDWR)
        except FileNotFoundError as error:
            check_place(self._log, self._path, always=True)
            raise QueueDamagedError(f"{error.filename} is missing", REPAIR.format(path=self._path)) from None
        try:
            taken = {slot for slot, *_ in self.kernel.consumers()}
            for slot in [slot for slot in range(kernel.CONSUMERS_MAX) if slot not in taken] + sorted(taken):
                with contextlib.suppress(BlockingIOError, PermissionError):
                    lock_byte(descriptor, kernel.CONSUMER_LOCKS_AT + slot)
                    return slot, self.kernel.attach(slot, member, os.getpid()), descriptor
            raise StationError(
                f"the chain has {kernel.CONSUMERS_MAX:,} consumers, the maximum",
                "detach one, or attach to a station of another chain",
            )
        except BaseException:
            os.close(descriptor)
            raise

    def is_alive(self, slot: int) -> bool:
        """Whether a process holds the lock of this consumer."""
        return is_byte_locked(self.kernel.fd, kernel.CONSUMER_LOCKS_AT + slot)

    def recover(self, only: int | None = None) -> set[int]:
        """Take back the leases of dead and hung consumers; returns the members that have lost a consumer.

        `only` this place is looked at, if it is given.
        """
        members = set()
        for slot, member, epoch, *_ in self.kernel.consumers():
            if only is not None and slot != only:
                continue
            if (not self.is_alive(slot) or self.kernel.hung(slot)) and self.kernel.recover(slot, epoch) >= 0:
                members.add(member)
        return members

    def consumers(self, station: str, member: int) -> list[ConsumerStatistics]:
        """The consumers of one station of this chain."""
        return [
            ConsumerStatistics(
                station, slot, pid, attached_ns, beat_age_ns / 1e9, leased, delivered, acknowledged,
                self.is_alive(slot) and not self.kernel.hung(slot),
            )
            for slot, number, _, pid, attached_ns, beat_age_ns, leased, delivered, acknowledged
            in self.kernel.consumers()
            if number == member
        ]  # fmt: skip


def _unknown(product: Product) -> bool:
    """Stands for a selection function that this process does not have."""
    raise StationError(
        "this process does not have the function of the selection", "pass it: queue.station(name, selection=…)"
    )


Numbers = npt.NDArray[np.uint64]
Columns = tuple[Numbers, npt.NDArray[np.uint8], Numbers, Numbers, Numbers]
_TAKEN = ["sequence", "priority", "expires_ns", "inserted_ns"]


def _is_late(columns: npt.NDArray[np.void], terms: StationTerms) -> npt.NDArray[np.bool_]:
    """Which products were put after the stop time of the station."""
    late: npt.NDArray[np.bool_] = columns["inserted_ns"] >= (terms.stop_ns or NO_END)
    return late


def _merge(ahead: list[_Ahead], end: int) -> Columns:
    """One row for each product below `end` that any station wants: sequence, priority, members, expiry, insertion."""
    taken, wanted = [np.empty(0, ROW)[_TAKEN]], [np.empty(0, np.uint64)]
    for terms, _, _, batch in ahead:
        if batch is None:
            continue
        mine = batch.columns[(batch.columns["sequence"] < end) & ~_is_late(batch.columns, terms)]
        taken.append(mine[_TAKEN])
        wanted.append(np.full(len(mine), 1 << terms.member, np.uint64))
    every = np.concatenate(taken)
    sequences, first, row = np.unique(every["sequence"], return_index=True, return_inverse=True)
    members = np.zeros(len(sequences), np.uint64)
    np.bitwise_or.at(members, row, np.concatenate(wanted))
    rows = every[first]
    priorities, expires, inserted = (np.ascontiguousarray(rows[name]) for name in _TAKEN[1:])
    return sequences, priorities, members, expires, inserted
