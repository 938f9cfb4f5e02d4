"""OpenLine: one line of stations as this process sees it.

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
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import ProductDamagedError, QueueDamagedError, StationError
from headrace.product.batch import ROW
from headrace.product.product import Product
from headrace.queue.kernel import _kernel as kernel
from headrace.queue.reading import Reader, RowTerms
from headrace.queue.trouble import REPAIR, explain
from headrace.selection import Selection
from headrace.station.registry import line_path
from headrace.station.terms import StationTerms

NO_END = (1 << 63) - 1
_READ_AHEAD = 1000  # products looked at in one go where index rows do not decide
_BYTES_AHEAD = 16 << 20
_FLOCK = struct.Struct("@hhqqi")
_OFD_GETLK, _OFD_SETLK = 36, 37
_LOCKS_AT = 1 << 40  # far behind the end of the file: bytes that exist only to be locked
_T = kernel.TROUBLE

Function = Callable[[Product], bool]


class OpenLine:
    """A mapped line, and the terms by which this process conducts it."""

    def __init__(self, log: kernel.Log, path: Path, number: int) -> None:
        self.number = number
        self._log, self._path = log, path
        file = line_path(path, number)
        try:
            self.kernel = kernel.Line(log, os.open(file, os.O_RDWR | os.O_CLOEXEC), number)
        except FileNotFoundError:
            raise QueueDamagedError(f"{file} is missing", REPAIR.format(path=path)) from None
        except kernel.KernelError as error:
            if error.code == _T["damaged"]:
                raise QueueDamagedError(
                    f"{file} is cut short or altered", "stop all programs that use the queue, then open it again"
                ) from None
            raise explain(error, path) from None
        self.functions: dict[str, Function] = {}
        self._stations: list[StationTerms] = []
        self._rows: list[RowTerms] = []
        self._readers: list[tuple[StationTerms, Reader | None]] = []
        self._seen = 0
        self._until = NO_END
        self.conducts = False

    # --- terms ------------------------------------------------------------------------------------

    def use(self, stations: list[StationTerms]) -> None:
        """Conduct by the selections that hold at the line's position."""
        self._seen = self.kernel.terms_number
        position = self.kernel.position
        selections = [self._selection_at(terms, position) for terms in stations]
        self._until = min((end for _, end in selections), default=NO_END)
        self._stations = stations
        self._rows = [RowTerms(self._log, selection) for selection, _ in selections]
        self.conducts = all(selection.is_cheap for selection, _ in selections)
        self._readers = [] if self.conducts else [
            (terms, self._reader(terms, selection)) for terms, (selection, _) in zip(stations, selections, strict=True)
        ]  # fmt: skip
        self._use_rows()

    def _use_rows(self) -> None:
        members = [terms.member for terms in self._stations]
        self.kernel.use_terms(self._seen, members, [rows.filter for rows in self._rows], self._until, self.conducts)

    def _selection_at(self, terms: StationTerms, position: int) -> tuple[Selection, int]:
        """The selection that decides about `position`, and where it ends."""
        for retired in terms.retired:
            if position < retired.until:
                return self._selection(terms.name, retired.selection, retired.local), retired.until
        return self._selection(terms.name, terms.selection, terms.local), NO_END

    def _selection(self, name: str, text: str, local: bool) -> Selection:
        selection = Selection.parse(text)
        return selection.replace(function=self.functions.get(name, _unknown)) if local else selection

    def _reader(self, terms: StationTerms, selection: Selection) -> Reader | None:
        if selection.function is _unknown:
            return None
        return Reader(self._log, self._path, selection)

    # --- from the log -----------------------------------------------------------------------------

    def attend(self, outcome: int, stations: Callable[[], list[StationTerms]]) -> None:
        """Learn what the kernel needs to know before it can go on; other trouble is raised."""
        if outcome == _T["unknown_feed"]:
            for rows in self._rows:
                rows.learn()
            self._use_rows()
        elif outcome == _T["terms"]:
            self.use(stations())
        elif outcome < 0:
            raise explain(kernel.KernelError(outcome, self._log.trouble_file), self._path)

    def conduct(self, now_ns: int, stations: Callable[[], list[StationTerms]]) -> int:
        """Look at the log as far as there is room; up to where it has been looked at."""
        while True:
            outcome = self.kernel.conduct()
            if outcome == 0:
                break
            self.attend(outcome, stations)
        looked = self._log.head
        if not self.conducts:
            start = -1
            while start < self.kernel.position < looked and self._has_room():
                start = self.kernel.position
                if not self._conduct_by_reading(now_ns):
                    break
                if self.kernel.position >= self._until:
                    self.use(stations())
        return looked

    def _has_room(self) -> bool:
        """Could any of the stations take more? One that is not blocking always does: it lets others go by."""
        return any(
            self.kernel.waiting(terms.member) < (terms.cue or 4096) or (terms.cue and not terms.blocking)
            for terms in self._stations
        )

    def _conduct_by_reading(self, now_ns: int) -> bool:
        """Read ahead what each station wants and hand it over; False if a function is missing here."""
        start, stop = self.kernel.position, min(self._log.head, self._until)
        if any(reader is None for _, reader in self._readers):
            return False
        end, found = stop, []
        passed: list[tuple[int, int, int]] = []
        for terms, reader in self._readers:
            assert reader is not None
            try:
                batch = reader.read(start, _READ_AHEAD, _BYTES_AHEAD, now_ns, stop)
            except ProductDamagedError as error:
                end = min(end, error.next)
                passed.append((terms.member, 0, 1))
                continue
            if batch.lost:
                self.kernel.skip(start, batch.lost.last)
                return True
            end = min(end, batch.next)
            found.append((terms, batch.columns))
            passed.append((terms.member, batch.expired, batch.damaged))
        if self.kernel.admit(self._seen, start, end, *_merge(found, end)):
            for member, expired, damaged in passed:
                self.kernel.count_passed(member, expired, damaged)
        return True

    # --- the living and the dead ------------------------------------------------------------------

    def claim(self, member: int) -> tuple[int, int, int]:
        """A consumer's place, its epoch, and the descriptor whose lock says that it lives."""
        descriptor = os.open(line_path(self._path, self.number), os.O_RDWR | os.O_CLOEXEC)
        taken = {place for place, *_ in self.kernel.consumers()}
        for place in [place for place in range(256) if place not in taken] + sorted(taken):
            with contextlib.suppress(BlockingIOError, PermissionError):
                fcntl.fcntl(descriptor, _OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, _LOCKS_AT + place, 1, 0))
                return place, self.kernel.attach(place, member, os.getpid()), descriptor
        os.close(descriptor)
        raise StationError("the line has as many consumers as it can", "detach one, or share work by another station")

    def is_alive(self, place: int) -> bool:
        """Does somebody hold the lock of this place?"""
        asked = _FLOCK.pack(fcntl.F_WRLCK, 0, _LOCKS_AT + place, 1, 0)
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


def _merge(found: list[tuple[StationTerms, npt.NDArray[np.void]]], end: int) -> Columns:
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
