"""Stations: all stations of a queue, as one opened Queue knows them.

Stations that stand one behind another, or side by side in a group, share a line: one shared file, one lock, one look at
the log. Everything else has a line of its own, so that stations do not wait for each other.

This is also where puts wait. A blocking station that is full, and products that a line keeps in the queue, make
the kernel refuse an append (kernel/log/gate.pxi); `make_way` then brings the station up to date, looks for dead
consumers, and sleeps until somebody has made room or the time is over.
"""

import contextlib
import os
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import BlockedError, QueueDamagedError, RejectedError, StationMissingError
from headrace.kernel import _kernel as kernel
from headrace.log.seams import RECHECK_S, Clock, Storage, Wait
from headrace.selection import Selection
from headrace.station.chain import OpenChain
from headrace.station.registry import FILE, FOLDER, StationDocument, line_path, load_stations, save_stations
from headrace.station.terms import StationTerms, for_kernel

_T = kernel.CODES


class Stations:
    """The stations of one queue, kept current by the number `stations` in the control file."""

    def __init__(self, log: kernel.Log, path: Path, storage: Storage | None, clock: Clock | None) -> None:
        self.log, self.path, self._storage, self._clock = log, path, storage, clock
        self._open: dict[int, OpenChain] = {}
        self._gates: list[tuple[StationTerms | None, OpenChain]] = []
        self._seen = -1
        self._document = StationDocument()

    # --- what there is ----------------------------------------------------------------------------

    @property
    def document(self) -> StationDocument:
        """The terms in force."""
        number = self.log.state["stations"]
        if number != self._seen:
            self._document, self._seen = load_stations(self.path), number
            lines = {terms.line for terms in self._document.stations}
            self._open = {number: line for number, line in self._open.items() if number in lines}
        return self._document

    def in_line(self, number: int) -> list[StationTerms]:
        """The stations of a line that says that its terms have changed: read anew, whatever the number says."""
        self._seen = -1
        return self.document.line(number)

    def line(self, number: int) -> OpenChain:
        """The line, mapped once and by current terms."""
        if number not in self._open:
            line = self._map(number)
            line.use(lambda: self.in_line(number))
            return self._open.setdefault(number, line)
        return self._open[number]

    def _map(self, number: int) -> OpenChain:
        try:
            return OpenChain(self.log, self.path, number)
        except QueueDamagedError:
            if any(terms.line == number for terms in load_stations(self.path).stations):
                raise
        raise StationMissingError("the station was removed meanwhile", "make it anew: queue.station(name, …)")

    def now_ns(self) -> int:
        return self._clock.now_ns() if self._clock else 0

    def elapsed_ns(self) -> int:
        return self._clock.elapsed_ns() if self._clock else 0

    def conduct(self, line: OpenChain) -> int:
        """Bring a line up to date; up to where the log was looked at."""
        return line.conduct(self.now_ns(), lambda: self.in_line(line.number))

    def look_after(self, line: OpenChain) -> None:
        """Take back what the dead hold; a station that is not durable goes with its last consumer."""
        bereaved = line.look_after()
        if not bereaved:
            return
        with self.log.held():
            attached = {member for _, member, *_ in line.kernel.consumers()}
            for terms in self.document.line(line.number):
                if not terms.durable and terms.member in bereaved - attached:
                    self.change(self.document.without(terms.name))

    # --- changes, all under the queue's lock ------------------------------------------------------

    def change(self, stations: StationDocument, position: int | None = None) -> None:
        """Put new terms into force, for everybody, from the next product on. New lines begin at `position`."""
        before = self.document
        (self.path / FOLDER).mkdir(exist_ok=True)
        for number in {terms.line for terms in stations.stations} - {terms.line for terms in before.stations}:
            self._make_line(number, self.log.tail if position is None else position)
        stations = msgspec.structs.replace(stations, number=self.log.state["stations"] + 1)
        save_stations(self.path, stations, self._storage)
        for number in {terms.line for terms in (*before.stations, *stations.stations)}:
            self._tell_line(number, before.line(number), stations.line(number))
        self.log.set_state(stations=stations.number)

    def finish(self) -> None:
        """Put into force what somebody wrote down and did not live to tell the lines."""
        stations = load_stations(self.path)
        if stations.number <= self.log.state["stations"]:
            return
        for number in {terms.line for terms in stations.stations}:
            line = OpenChain(self.log, self.path, number)
            _tell_members(line, stations.line(number))
            line.kernel.note_terms()
        self.log.set_state(stations=stations.number)

    def _make_line(self, number: int, position: int) -> None:
        file = line_path(self.path, number)
        file.unlink(missing_ok=True)  # left by somebody who died before the station was noted
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660)
        try:
            kernel.format_chain(descriptor, self.log.state["uuid"], number, position)
            if self._storage is not None:
                self._storage.sync_file(file)
                self._storage.sync_directory(self.path / FOLDER)
        finally:
            os.close(descriptor)

    def settle_line(self, number: int, trusted: bool) -> None:
        """Make a line usable that nobody else has open; one that cannot be read begins anew at the oldest product."""
        try:
            line = OpenChain(self.log, self.path, number)
        except QueueDamagedError:
            self._make_line(number, self.log.oldest)
            line = OpenChain(self.log, self.path, number)
            trusted = True
        line.kernel.settle_alone(trusted, self.log.tail)
        _tell_members(line, self.document.line(number))

    def _tell_line(self, number: int, before: list[StationTerms], after: list[StationTerms]) -> None:
        if before == after:
            return
        line = self._open.get(number) or OpenChain(self.log, self.path, number)
        if after:
            self._open[number] = line
        _tell_members(line, after)
        line.kernel.note_terms()
        if not after:
            self._open.pop(number, None)
            line_path(self.path, number).unlink(missing_ok=True)

    # --- those who put ----------------------------------------------------------------------------

    def make_way(self, error: kernel.KernelError, wait: Wait) -> None:
        """Deal with what an append was refused for, or wait for it."""
        if error.code == _T["stations"]:
            self.make_gates()
        else:
            self._wait_at(error, wait)

    def make_gates(self) -> None:
        """Tell the kernel which stations writers have to mind; nothing if it knows."""
        number = self.log.state["stations"]
        gates: list[tuple[kernel.Chain, int | None, npt.NDArray[np.uint8] | None]] = []
        told: list[tuple[StationTerms | None, OpenChain]] = []
        try:
            for terms in self.document.stations:
                if (terms.blocking and (terms.capacity or terms.group)) or terms.max_queue:
                    gates.append((self.line(terms.line).kernel, terms.member, self._feeds(terms)))
                    told.append((terms, self.line(terms.line)))
            for holding in sorted({terms.line for terms in self.document.stations if terms.blocking}):
                gates.append((self.line(holding).kernel, None, None))
                told.append((None, self.line(holding)))
        except StationMissingError:  # removed meanwhile: the next append asks for gates again
            return
        kernel.set_gates(self.log, number, gates)
        self._gates = told

    def _feeds(self, terms: StationTerms) -> npt.NDArray[np.uint8] | None:
        """Which feeds the station may want, by number: others need not wait for it."""
        selection = Selection.parse(terms.selection)
        position = self.line(terms.line).kernel.position
        if any(retired.until > position for retired in terms.retired) or selection.feed is None:
            return None
        end = self.log.learn_names()
        return np.array([bool(name) and selection.wants_feed(name) for name in self.log.names[:end]], np.uint8)

    def _wait_at(self, error: kernel.KernelError, wait: Wait) -> None:
        """The first refusal brings the line up to date and is tried again; only the next one waits, or ends it."""
        gate = self._gate(error)
        if gate is None:
            return
        terms, line = gate
        seen = line.kernel.watch_room(terms is None)
        if wait.seen.get(line.number) != seen:
            wait.seen[line.number] = seen
            if wait.left_s <= 0 or line.kernel.may_look():
                self.look_after(line)
            if terms is None or not line.kernel.is_surely_full(terms.member):
                self.conduct(line)
            if terms is not None and terms.retired:
                self.make_gates()  # by now an old selection may have nothing more to say
            return
        wait.seen.clear()
        if error.code == _T["rejected"] and terms is not None:
            line.kernel.count_rejected(terms.member)
        if error.code == _T["rejected"] or wait.left_s <= 0:
            self._refuse(error, terms, line)
        line.kernel.wait_room(seen, min(wait.left_s, RECHECK_S))

    def _gate(self, error: kernel.KernelError) -> tuple[StationTerms | None, OpenChain] | None:
        """Whom the refused append has to wait for; None if the stations have changed meanwhile."""
        gates = self._gates
        if error.code == _T["held"]:
            holding = [gate for gate in gates if gate[0] is None]
            return min(holding, key=lambda gate: gate[1].kernel.low, default=None)
        return gates[error.file] if error.file < len(gates) and gates[error.file][0] is not None else None

    def _refuse(self, error: kernel.KernelError, terms: StationTerms | None, line: OpenChain) -> NoReturn:
        names = ", ".join(repr(other.name) for other in self.document.line(line.number) if other.blocking)
        if error.code == _T["held"]:
            raise BlockedError(
                f"{self.path} is full of products that station {names} has not put yet; nothing was stored",
                "attach consumers to it, make the queue larger, or remove the station",
            )
        assert terms is not None
        if error.code == _T["rejected"]:
            raise RejectedError(
                f"station {terms.name!r} has {terms.max_queue} products waiting, as many as it takes; "
                "nothing was stored",
                "put again when its consumers have caught up, or raise max_queue",
            )
        raise BlockedError(
            f"the capacity of blocking station {terms.name!r} has been full ({terms.capacity} products) "
            "until the time was over; nothing was stored",
            "attach more consumers to it, lengthen its capacity, or give the put more time",
        )

    # --- at the end -------------------------------------------------------------------------------

    def save(self, storage: Storage) -> None:
        """Make positions survive a power failure."""
        for number in {terms.line for terms in self.document.stations}:
            with contextlib.suppress(StationMissingError, FileNotFoundError):  # removed meanwhile
                self.line(number).kernel.save_cell()
                storage.sync_file(line_path(self.path, number))


def _tell_members(line: OpenChain, stations: list[StationTerms]) -> None:
    """Bring the members of a line's file to what the document says."""
    for member in set(line.kernel.members()) - {terms.member for terms in stations}:
        line.kernel.remove_member(member)
    for terms in stations:
        beside = [other for other in stations if other.stage == terms.stage]
        later = sum(1 << other.member for other in stations if other.stage > terms.stage)
        line.kernel.set_member(terms.member, for_kernel(terms, len(beside) > 1, later))


class StationFiles:
    """The stations' part in opening, checking and repairing a queue (log/seams.py: Resident)."""

    file = FILE

    def validate(self, path: Path) -> None:
        load_stations(path)

    def settle(self, log: kernel.Log, path: Path, storage: Storage, trusted: bool) -> None:
        if (path / FILE).exists():
            settle_lines(log, path, storage, trusted)

    def check(self, log: kernel.Log, path: Path) -> list[str]:
        return check_lines(log, path)


def settle_lines(log: kernel.Log, path: Path, storage: Storage, trusted: bool) -> None:
    """What the first process to attach does about the stations: no consumers, and positions to be believed."""
    log.set_state(stations=max(log.state["stations"], load_stations(path).number) + 1)
    (path / "stations.json.part").unlink(missing_ok=True)
    stations = Stations(log, path, storage, None)
    for number in {terms.line for terms in stations.document.stations}:
        stations.settle_line(number, trusted)
    transient = [terms.name for terms in stations.document.stations if not terms.durable]
    for name in transient:
        stations.change(stations.document.without(name))
    known = {line_path(path, terms.line) for terms in stations.document.stations}
    for file in (path / FOLDER).glob("*.chain"):
        if file not in known:
            file.unlink()


def check_lines(log: kernel.Log, path: Path) -> list[str]:
    """What is inconsistent about the lines of a queue."""
    numbers = {terms.line for terms in load_stations(path).stations}
    return [
        f"{line_path(path, number).name}: {problem}"
        for number in sorted(numbers)
        for problem in OpenChain(log, path, number).kernel.check()
    ]


def next_line(stations: StationDocument) -> tuple[StationDocument, int]:
    number = stations.next_line
    return msgspec.structs.replace(stations, next_line=number + 1), number
