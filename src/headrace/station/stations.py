"""Stations: all stations of a queue, as one opened Queue knows them, and how their terms change.

Stations in series (`after=`) or side by side (`group=`) share a chain: one shared file, one lock, one scan of the log.
Every other station has a chain of its own, so that stations do not wait for each other.

A change of terms is written to `stations.json` first and then copied into the chain files; the number in the control
file, raised last, says that it is in force. A process that dies in between leaves a document with a higher number than
the control file's: the next process that opens or changes a station completes the change (`finish`).

Not here: what makes puts wait for stations (gates.py), and handing out products (chain.py, consumer.py).
"""

import os
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

import msgspec

from headrace.errors import QueueDamagedError, StationMissingError
from headrace.files import make_folder, open_regular, open_to_read, write_regular
from headrace.kernel import _kernel as kernel
from headrace.log.documents import Identity, file_identity
from headrace.log.place import check_place
from headrace.log.seams import Clock, Storage
from headrace.selection.functions import Functions
from headrace.station.chain import OpenChain
from headrace.station.document import FILE, FOLDER, StationDocument, StationLines, chain_path, load_stations
from headrace.station.terms import StationTerms, for_kernel

_CONSUMERS_V1, _SLOTS_AT_V1 = 256, 66_560  # of chain files of version 1


class Attached(Protocol):
    """What Stations need of a consumer."""

    def detach(self, *, failed: bool) -> None: ...


class Stations:
    """The stations of one queue; the number `stations` in the control file says when to read them again."""

    def __init__(
        self, log: kernel.Log, path: Path, storage: Storage | None, clock: Clock | None,
        functions: Functions | None = None,
    ) -> None:  # fmt: skip
        self.log, self.path, self._storage, self._clock = log, path, storage, clock
        self.functions = functions or Functions()  # that selections may name
        self._open: dict[int, OpenChain] = {}
        self._seen = -1
        self._document = StationDocument()
        self._lines = StationLines()
        self._finished: Identity | None = None  # the file that `finish` has seen last
        self.attached: WeakSet[Attached] = WeakSet()  # the consumers of this opened queue

    def now_ns(self) -> int:
        """The time by the queue's own clock; 0 if it has none and the kernel reads the machine's."""
        return self._clock.now_ns() if self._clock else 0

    def time_ns(self) -> int:
        """The time of the site, by the queue's own clock or by the kernel's."""
        return self._clock.now_ns() if self._clock else self.log.now_ns()

    def elapsed_ns(self) -> int:
        return self._clock.elapsed_ns() if self._clock else 0

    def detach_all(self, failed: bool) -> None:
        """Detach the consumers that were attached through this queue; their products go back."""
        for consumer in list(self.attached):
            consumer.detach(failed=failed)

    # --- look up ----------------------------------------------------------------------------------

    @property
    def document(self) -> StationDocument:
        """The terms in force."""
        number = self.log.state["stations"]
        if number != self._seen:
            self._document, self._seen = self._load(), number
            chains = self._document.chains
            self._open = {number: chain for number, chain in self._open.items() if number in chains}
        return self._document

    def _load(self) -> StationDocument:
        """The document in the file of this queue, which may have been moved or replaced by another queue."""
        check_place(self.log, self.path, always=True)
        try:
            return load_stations(self.path, self.log.state["stations"])
        except QueueDamagedError:
            check_place(self.log, self.path, always=True)  # it was moved at this moment
            raise

    def in_chain(self, number: int) -> list[StationTerms]:
        """The stations of a chain whose terms have changed: always read from the file."""
        self._seen = -1
        return self.document.chain(number)

    def chain(self, number: int) -> OpenChain:
        """The chain, mapped once per process, with current terms."""
        if number not in self._open:
            chain = self._map(number)
            chain.use(lambda: self.in_chain(number))
            return self._open.setdefault(number, chain)
        return self._open[number]

    def _map(self, number: int) -> OpenChain:
        try:
            return OpenChain(self.log, self.path, number, self.functions)
        except QueueDamagedError:
            if number in self._load().chains:
                raise
        raise StationMissingError("the station was removed", "create it again: queue.station(name, …)")

    # --- work on a chain --------------------------------------------------------------------------

    def conduct(self, chain: OpenChain, *, calls: bool = True) -> int:
        """Bring a chain up to date; returns the position up to which it looked at the log.

        Without `calls`, nothing is done if functions of users decide.
        """
        return chain.conduct(self.now_ns(), lambda: self.in_chain(chain.number), calls=calls)

    def recover(self, chain: OpenChain, only: int | None = None) -> None:
        """Take back the leases of dead consumers; a station that is not durable ends with its last consumer.

        `only` this place is looked at, if its consumer is known to be dead.
        """
        members = chain.recover(only)
        if not members:
            return
        with self.log.held():
            attached = {member for _, member, *_ in chain.kernel.consumers()}
            for terms in self.document.chain(chain.number):
                if not terms.durable and terms.member in members - attached:
                    self.change(self.document.without(terms.name))

    def end_if_unused(self, name: str) -> None:
        """Remove a station that is not durable if no consumer is left. The caller holds the queue's lock."""
        terms = self.document.find(name)
        if terms is None or terms.durable:
            return
        chain = self.chain(terms.chain)
        chain.recover()
        if not any(member == terms.member for _, member, *_ in chain.kernel.consumers()):
            self.change(self.document.without(name))

    # --- change, always under the queue's lock ----------------------------------------------------

    def change(self, stations: StationDocument, position: int | None = None) -> None:
        """Put new terms into force for every process, from the next product on. New chains begin at `position`."""
        before = self.document
        changed = sorted(stations.changed_chains(before))
        old = {number: before.chain(number) for number in changed}
        new = {number: stations.chain(number) for number in changed}
        stations = msgspec.structs.replace(stations, number=self.log.state["stations"] + 1)
        try:
            make_folder(self.path / FOLDER)
            for number in changed:
                if new[number] and not old[number]:
                    self._make_chain(number, self.log.tail if position is None else position)
            self._lines.save(self.path, stations, self._storage)
        except FileNotFoundError:
            check_place(self.log, self.path, always=True)
            raise
        for number in changed:
            self._update_chain(number, old[number], new[number])
        self.log.set_state(stations=stations.number)
        self._document, self._seen = stations, stations.number
        self._finished = file_identity(self.path / FILE)

    def finish(self) -> None:
        """Complete a change whose process wrote the document and died before it updated the chains."""
        found = file_identity(self.path / FILE)
        if found is not None and found == self._finished:
            return
        stations = self._load()
        self._finished = found
        if stations.number <= self.log.state["stations"]:
            return
        for number in stations.chains:
            chain = OpenChain(self.log, self.path, number)
            _update_members(chain, stations.chain(number))
            chain.kernel.note_terms()
        self.log.set_state(stations=stations.number)

    def _make_chain(self, number: int, position: int) -> None:
        file = chain_path(self.path, number)
        file.unlink(missing_ok=True)  # left by a process that died before it wrote the document
        descriptor = open_regular(file, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            kernel.format_chain(descriptor, self.log.state["uuid"], number, position)
            if self._storage is not None:
                self._storage.sync_file(file)
                self._storage.sync_directory(self.path / FOLDER)
        finally:
            os.close(descriptor)

    def _update_chain(self, number: int, before: list[StationTerms], after: list[StationTerms]) -> None:
        if before == after:
            return
        chain = self._open.get(number) or OpenChain(self.log, self.path, number, self.functions)
        if after:
            self._open[number] = chain
        _update_members(chain, after)
        chain.kernel.note_terms()
        if not after:
            self._open.pop(number, None)
            chain_path(self.path, number).unlink(missing_ok=True)

    def settle_chain(self, number: int, trusted: bool) -> None:
        """Make a chain usable while no other process has it open. A damaged one starts over at the oldest product."""
        try:
            chain = OpenChain(self.log, self.path, number)
        except QueueDamagedError:
            self._make_chain(number, self.log.oldest)
            chain = OpenChain(self.log, self.path, number)
            trusted = True
        chain.kernel.reset(trusted, self.log.tail)
        _update_members(chain, self.document.chain(number))


def _update_members(chain: OpenChain, stations: list[StationTerms]) -> None:
    """Make the members of a chain's file agree with the document."""
    for member in set(chain.kernel.members()) - {terms.member for terms in stations}:
        chain.kernel.remove_member(member)
    for terms in stations:
        beside = [other for other in stations if other.stage == terms.stage]
        later = sum(1 << other.member for other in stations if other.stage > terms.stage)
        chain.kernel.set_member(terms.member, for_kernel(terms, len(beside) > 1, later))


# --- opening and checking a queue -----------------------------------------------------------------


class StationFiles:
    """The stations' part in opening, checking and repairing a queue (log/seams.py: Resident)."""

    file = FILE

    def validate(self, path: Path) -> None:
        load_stations(path, 0)

    def settle(self, log: kernel.Log, path: Path, storage: Storage, trusted: bool) -> None:
        """The first process to attach: no consumer is left, and positions are corrected if they are not trusted."""
        document = load_stations(path, log.state["stations"])
        if not (path / FILE).exists():
            return
        _upgrade_files(path, storage)
        log.set_state(stations=max(log.state["stations"], document.number) + 1)
        (path / f"{FILE}.part").unlink(missing_ok=True)
        stations = Stations(log, path, storage, None)
        for number in stations.document.chains:
            stations.settle_chain(number, trusted)
        for name in [terms.name for terms in stations.document.stations if not terms.durable]:
            stations.change(stations.document.without(name))
        known = {chain_path(path, number) for number in stations.document.chains}
        for file in (path / FOLDER).glob("*.chain"):
            if file not in known:
                file.unlink()

    def forget(self, log: kernel.Log, path: Path) -> list[str]:
        """Without a document there are no stations: the queue opens again."""
        if (path / FILE).exists() or not log.state["stations"]:
            return []
        log.set_state(stations=0)
        return [f"{path / FILE} is missing: the queue has no stations any more; create them again"]

    def check(self, log: kernel.Log, path: Path) -> list[str]:
        """Every inconsistency of the chains, in words."""
        return [
            f"{chain_path(path, number).name}: {problem}"
            for number in sorted(load_stations(path, log.state["stations"]).chains)
            for problem in OpenChain(log, path, number).kernel.check()
        ]


def _upgrade_files(path: Path, storage: Storage) -> None:
    """Bring the files of older versions up to date, while no other process has the queue open.

    The oldest (stations/3.line) get the name and the magic of chains; nothing else in them differs. Chains of version 1
    get the places of more consumers.
    """
    lines = list((path / FOLDER).glob("*.line"))
    for file in lines:
        with os.fdopen(open_regular(file, os.O_RDWR), "r+b") as header:
            header.write(kernel.CHAIN_MAGIC)
        file.rename(file.with_suffix(".chain"))
    if lines:
        StationLines().save(path, load_stations(path, 0), storage)
    for file in (path / FOLDER).glob("*.chain"):
        _widen(file, storage)


def _widen(file: Path, storage: Storage) -> None:
    """Version 1 of a chain file has 256 consumers: insert the places of the others, before the slots."""
    with open_to_read(file) as old:
        if old.read(12) != kernel.CHAIN_MAGIC + (1).to_bytes(4, "little"):
            return
        old.seek(0)
        data = old.read()
    wider = bytes((kernel.CONSUMERS_MAX - _CONSUMERS_V1) * kernel.CONSUMER_BYTES)
    part = file.with_suffix(".part")
    head = kernel.CHAIN_MAGIC + kernel.CHAIN_VERSION.to_bytes(4, "little")
    write_regular(part, head + data[12:_SLOTS_AT_V1] + wider + data[_SLOTS_AT_V1:])
    storage.sync_file(part)
    part.replace(file)
    storage.sync_directory(file.parent)
