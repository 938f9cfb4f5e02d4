"""OpenChain: one line of stations as this process sees it.

It knows how to look at the log on behalf of the line (`conduct`): in the kernel where index rows decide for all its
stations, otherwise by reading what the selections want and handing the kernel the result. Either way the line's
position moves once for everybody; who comes second finds the work done.

It also tells the dead from the living (`look_after`): each consumer holds a lock on one byte of the line's file, which
the operating system takes away from a dead process at once, and beats for as long as it is not hung.
"""

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import ProductDamagedError, QueueDamagedError, StationError
from headrace.kernel import _kernel as kernel
from headrace.log.explain import REPAIR, explain
from headrace.log.read import Reader, RowTerms
from headrace.product.batch import ROW
from headrace.product.product import Product
from headrace.selection import Selection
from headrace.station.registry import line_path
from headrace.station.terms import Retired, StationTerms

NO_END = (1 << 63) - 1
_READ_AHEAD = 1000  # products looked at in one go where index rows do not decide
_BYTES_AHEAD = 16 << 20
_FLOCK = struct.Struct("@hhqqi")
_OFD_GETLK, _OFD_SETLK = 36, 37
_T = kernel.CODES

Function = Callable[[Product], bool]
Stations = Callable[[], list[StationTerms]]
Readers = list[tuple[StationTerms, Reader | None]]
Found = list[tuple[StationTerms, npt.NDArray[np.void]]]
Passed = list[tuple[int, int, int]]  # member, expired, damaged


class OpenChain:
    """A mapped line, and the terms by which this process conducts it."""

    def __init__(self, log: kernel.Log, path: Path, number: int) -> None:
        self.number = number
        self._log, self._path = log, path
        file = line_path(path, number)
        try:
            self.kernel = kernel.Chain(log, os.open(file, os.O_RDWR | os.O_CLOEXEC), number)
        except FileNotFoundError:
            raise QueueDamagedError(f"{file} is missing", REPAIR.format(path=path)) from None
        except kernel.KernelError as error:
            if error.code == _T["damaged"]:
                raise QueueDamagedError(
                    f"{file} is cut short or altered", "stop all programs that use the queue, then open it again"
                ) from None
            raise explain(error, path) from None
        self.functions: dict[str, Function] = {}  # of selections, by station
        self.old_functions: dict[tuple[str, int], Function] = {}  # and of retired ones, by where they end
        self._lock = threading.RLock()  # threads of this process over what follows
        self._stations: list[StationTerms] = []
        self._rows: list[RowTerms] = []
        self._readers: Readers = []
        self._seen = 0
        self._until = NO_END
        self.conducts = False

    # --- terms ------------------------------------------------------------------------------------

    def use(self, stations: Stations) -> None:
        """Conduct by the selections that hold at the line's position; `stations` reads the terms."""
        with self._lock:
            seen = self.kernel.terms_number  # before the terms are read: newer ones would show another number
            position = self.kernel.position
            chosen = [(terms, *self._selection_at(terms, position)) for terms in stations()]
            self._until = min((end for *_, end in chosen), default=NO_END)
            wanting = [(terms, selection) for terms, selection, _ in chosen if selection is not None]
            self._stations = [terms for terms, _ in wanting]
            self._rows = [RowTerms(self._log, selection) for _, selection in wanting]
            self.conducts = all(selection.is_cheap for _, selection in wanting)
            self._readers = [] if self.conducts else [(terms, self._reader(selection)) for terms, selection in wanting]
            self._seen = seen
            self._use_rows()

    def _use_rows(self) -> None:
        members = [terms.member for terms in self._stations]
        self.kernel.use_terms(self._seen, members, [rows.filter for rows in self._rows], self._until, self.conducts)

    def _selection_at(self, terms: StationTerms, position: int) -> tuple[Selection | None, int]:
        """The selection that decides about `position`, None if that was put before the station; and where it ends."""
        for retired in terms.retired:
            if position < retired.until:
                return self._retired(terms.name, retired), retired.until
        selection = Selection.parse(terms.selection)
        if terms.local:
            selection = selection.replace(function=self.functions.get(terms.name, _unknown))
        return selection, NO_END

    def _retired(self, name: str, retired: Retired) -> Selection | None:
        """A function that is not known any more wants everything: nothing may be lost with it."""
        if retired.selection is None:
            return None
        function = self.old_functions.get((name, retired.until)) if retired.local else None
        return Selection.parse(retired.selection).replace(function=function)

    def _reader(self, selection: Selection) -> Reader | None:
        if selection.function is _unknown:
            return None
        return Reader(self._log, self._path, selection)

    # --- from the log -----------------------------------------------------------------------------

    def attend(self, outcome: int, stations: Stations) -> None:
        """Learn what the kernel needs to know before it can go on; other trouble is raised."""
        if outcome == _T["terms"]:
            self.use(stations)
            return
        if outcome == _T["unknown_feed"]:
            with self._lock:
                learnt = [rows.learn() for rows in self._rows]
                self._use_rows()
            if any(learnt):
                return
            outcome = _T["damaged"]  # a row speaks of a feed that nobody knows
        if outcome < 0:
            raise explain(kernel.KernelError(outcome, self._log.failed_file), self._path)

    def conduct(self, now_ns: int, stations: Stations) -> int:
        """Look at the log as far as there is room; up to where it has been looked at."""
        while True:
            if self.kernel.position >= self._until:
                self.use(stations)
            before, looked = self.kernel.position, self._log.head
            outcome = self.kernel.conduct()
            if outcome != 0:
                self.attend(outcome, stations)
                continue
            if not self.conducts:
                self._conduct_by_reading(now_ns)
            if not before < self.kernel.position < looked:
                return looked

    def _conduct_by_reading(self, now_ns: int) -> None:
        """Read ahead what each station wants and hand it over, unless a function is not known here."""
        with self._lock:
            seen, readers = self._seen, self._readers
            start, stop = self.kernel.position, min(self._log.head, self._until)
            if start >= stop or any(reader is None for _, reader in readers):
                return
            end, found, passed = self._read_ahead(readers, start, stop, now_ns)
        if found is not None and self.kernel.admit(seen, start, end, *_merge(found, end)):
            for member, expired, damaged in passed:
                self.kernel.count_passed(member, expired, damaged)

    def _read_ahead(self, readers: Readers, start: int, stop: int, now_ns: int) -> tuple[int, Found | None, Passed]:
        """How far all readers came, what each found, and what they passed over; None if something was lost."""
        end, found, passed = stop, [], []
        for terms, reader in readers:
            assert reader is not None
            try:
                batch = reader.read(start, _READ_AHEAD, _BYTES_AHEAD, now_ns, stop)
            except ProductDamagedError as error:
                end = min(end, error.next)
                passed.append((terms.member, 0, 1))
                continue
            if batch.lost:
                self.kernel.skip(start, batch.lost.last)
                return end, None, passed
            end = min(end, batch.next)
            found.append((terms, batch.columns))
            passed.append((terms.member, batch.expired, batch.damaged))
        return end, found, passed

    # --- the living and the dead ------------------------------------------------------------------

    def claim(self, member: int) -> tuple[int, int, int]:
        """A consumer's place, its epoch, and the descriptor whose lock says that it lives."""
        descriptor = os.open(line_path(self._path, self.number), os.O_RDWR | os.O_CLOEXEC)
        taken = {place for place, *_ in self.kernel.consumers()}
        for place in [place for place in range(kernel.CONSUMERS_MAX) if place not in taken] + sorted(taken):
            with contextlib.suppress(BlockingIOError, PermissionError):
                at = kernel.CONSUMER_LOCKS_AT + place
                fcntl.fcntl(descriptor, _OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, at, 1, 0))
                try:
                    return place, self.kernel.attach(place, member, os.getpid()), descriptor
                except BaseException:
                    os.close(descriptor)
                    raise
        os.close(descriptor)
        raise StationError("the line has as many consumers as it can", "detach one, or share work by another station")

    def is_alive(self, place: int) -> bool:
        """Does somebody hold the lock of this place?"""
        asked = _FLOCK.pack(fcntl.F_WRLCK, 0, kernel.CONSUMER_LOCKS_AT + place, 1, 0)
        answer = fcntl.fcntl(self.kernel.fd, _OFD_GETLK, asked)
        return bool(_FLOCK.unpack_from(answer)[0] != fcntl.F_UNLCK)

    def look_after(self) -> set[int]:
        """Take back what dead and hung consumers hold; the members that have lost one."""
        bereaved = set()
        for place, member, epoch, *_ in self.kernel.consumers():
            if (not self.is_alive(place) or self.kernel.hung(place)) and self.kernel.recover(place, epoch) >= 0:
                bereaved.add(member)
        return bereaved


def _unknown(product: Product) -> bool:
    """Stands for a selection function that this process was not given."""
    raise StationError("this process does not know the function of the selection", "give it to queue.station(…)")


Numbers = npt.NDArray[np.uint64]
Columns = tuple[Numbers, npt.NDArray[np.uint8], Numbers, Numbers, Numbers]
_TAKEN = ["sequence", "priority", "expires_ns", "inserted_ns"]


def _merge(found: Found, end: int) -> Columns:
    """One row for each product below `end` that any station wants: sequence, priority, members, expiry, insertion."""
    taken, wanted = [np.empty(0, ROW)[_TAKEN]], [np.empty(0, np.uint64)]
    for terms, columns in found:
        mine = columns[(columns["sequence"] < end) & (columns["inserted_ns"] < (terms.stop_ns or NO_END))]
        taken.append(mine[_TAKEN])
        wanted.append(np.full(len(mine), 1 << terms.member, np.uint64))
    every = np.concatenate(taken)
    sequences, first, place = np.unique(every["sequence"], return_index=True, return_inverse=True)
    members = np.zeros(len(sequences), np.uint64)
    np.bitwise_or.at(members, place, np.concatenate(wanted))
    rows = every[first]
    priorities, expires, inserted = (np.ascontiguousarray(rows[name]) for name in _TAKEN[1:])
    return sequences, priorities, members, expires, inserted
