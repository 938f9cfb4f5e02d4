"""Share: a group of nodes that share a stream, on the machine of the queue; Seat: the place of one node in it.

    share = queue.share("radar")                      the group `main` of the channel `radar`
    seat = share.join("node-1")
    exchanged = seat.exchange(Progress(seen=0))       heartbeat, confirmations, and what the seat holds

Programs use `headrace.slices.ProcessingNode` and `Balancer`, which do this for them. Each call holds the lock of the
group's table for some microseconds (file.py); what it changes is in ownership.py. A node that must look again is woken
through the queue, as by a put.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from headrace.channel.document import Definition
from headrace.errors import OptionError, ShareError
from headrace.log.cursor import check_name
from headrace.log.log import Log
from headrace.share import file as files
from headrace.share.interface import Exchanged, Parked, Progress, Reason, Sample, ShareState, ShareTerms, Slices
from headrace.share.layout import NAME_BYTES_MAX
from headrace.share.ownership import Ownership
from headrace.share.seats import seat_lost
from headrace.share.sessions import Moment
from headrace.share.show import history_of, parked_of, state_of

MAIN = "main"
LEASE_S_MAX = 3600.0
_Result = TypeVar("_Result")


class Seat:
    """A node's place; get one from `Share.join`. One thread at a time."""

    def __init__(self, share: "Share", number: int, instance: int, name: str) -> None:
        self._share, self.number, self.instance, self.name = share, number, instance, name

    @property
    def version(self) -> int:
        """Changes whenever the node has to look again at what it holds."""
        return int(self._share.table.seats["version"][self.number])

    def exchange(self, progress: Progress) -> Exchanged:
        """Confirm, release and report; what the node holds, if it does not know that. SeatLostError if it is dead."""
        share, head, lasting = self._share, self._share.head, bool(progress.confirm or progress.release)
        return share.change(
            lambda own, now: own.exchange(self.number, self.instance, progress, now, head), lasting=lasting
        )

    def check(self) -> int:
        """The version; SeatLostError if the node has lost its seat."""
        version = self.version
        self._share.check_there()
        if int(self._share.table.seats["instance"][self.number]) != self.instance:
            raise seat_lost()
        return version

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until the version is another one, or the timeout passes; the version. Puts do not wake it."""
        deadline, changes = time.monotonic() + timeout_s, self._share.changes
        number = changes.number
        while (version := self.version) == seen and (left := deadline - time.monotonic()) > 0:
            changes.wait(number, left)
            number = changes.number
        return version

    def begin(self, slice: int, epoch: int, sequence: int) -> bool:
        """Announce the next product of a careful slice. False: the slice is another's."""
        return self._share.change(lambda own, _: own.attempts.begin(self.number, self.instance, slice, epoch, sequence))

    def fail(self, slice: int, epoch: int, sequence: int) -> int:
        """An attempt failed; how many have, by now. 0: the slice is another's."""
        return self._share.change(lambda own, _: own.attempts.fail(self.number, self.instance, slice, epoch, sequence))

    def park(self, slice: int, epoch: int, sequence: int, error: str) -> bool:
        """Give a product up, and go on behind it. False: the slice is another's."""
        share, head = self._share, self._share.head
        return share.change(
            lambda own, now: own.attempts.park(self.number, self.instance, slice, epoch, sequence, error, now, head)
        )

    def leave(self) -> None:
        """Give the seat back. Slices that it still has wait for the balancer."""
        self._share.change(lambda own, now: own.leave(self.number, self.instance, now))


class Share:
    """A group; get one from `Queue.share`. Several threads may use it."""

    def __init__(self, log: Log, terms: ShareTerms, definition: Definition) -> None:
        self.log, self.terms, self.feed = log, terms, definition.feed
        self._file = files.ShareFile(log.path, terms)
        self.table, self.changes = self._file.table, files.Changes(log.path)

    @property
    def head(self) -> int:
        """The sequence that the queue's next product will have."""
        return self.log.next

    def change(self, change: Callable[[Ownership, Moment], _Result], *, lasting: bool = True) -> _Result:
        """Change the table under its lock, make that as safe as the queue promises, and wake whom it concerns.

        What is not `lasting`, such as a heartbeat, means nothing after a restart of the machine.
        """
        self.log.check_open(always=False)
        before = int(self.table.header["changes"][0])
        with self._file.held() as ownership:
            result = change(ownership, self._now())
        if lasting:
            self._make_lasting()
        if int(self.table.header["changes"][0]) != before:
            self.changes.tell()
            self.log.kernel.wake_all()  # nodes that wait for products as well
        return result

    def _make_lasting(self) -> None:
        if self.log.is_disk:
            self._file.flush(self.log.storage)

    @property
    def is_there(self) -> bool:
        """Whether the group was not removed, and its table is usable."""
        return self._file.is_whole

    def check_there(self) -> None:
        """ShareMissingError if the group was removed."""
        self._file.check_whole()

    def _now(self) -> Moment:
        wall_ns, boot_ns = self.log.now()
        if boot_ns:
            return Moment(boot_ns, wall_ns)
        return Moment(time.clock_gettime_ns(time.CLOCK_BOOTTIME), self.log.now_ns())

    # --- nodes ------------------------------------------------------------------------------------

    def join(
        self, node: str = "", *, instance: int = 0, user: str = "", pid: int | None = None, may_vary: bool = False
    ) -> Seat:
        """Take a seat. Without a name, the node has that of the machine and its process.

        ShareError if a node of that name is alive, unless the name `may_vary`: then a number is appended. A join that
        is repeated with its `instance` finds its seat.
        """
        name, number = check_node(node or default_node()), instance or new_instance()
        varies, dead_s = may_vary or not node, self.terms.dead_after_s

        def take(own: Ownership, now: Moment) -> Seat:
            seats = own.table.seats
            again = np.flatnonzero(seats["instance"] == number)
            if len(again):
                return Seat(self, int(again[0]), number, seats["name"][again[0]].decode())
            chosen = _free_name(own, now, name) if varies else name
            if (age_s := _age_s(own, now, chosen)) is not None:
                raise ShareError(
                    f"group {self.terms.group!r} has a node {chosen!r}, heard of {age_s:.1f} s ago",
                    f"stop that node, or choose another name; if it has died, its name is free {dead_s:g} s after that",
                )
            seat = own.join(chosen, number, now, pid=os.getpid() if pid is None else pid, user=user)
            return Seat(self, seat, number, chosen)

        return self.change(take)

    def seat(self, number: int, instance: int) -> Seat:
        """A seat that a node took earlier; the first use finds out whether it still has it."""
        return Seat(self, number, instance, "")

    # --- look -------------------------------------------------------------------------------------

    def state(self) -> ShareState:
        """The whole group now."""
        head = self.head
        return self.change(lambda own, now: state_of(own, self.terms, now, head), lasting=False)

    def history(self) -> list[Sample]:
        """The loads of its nodes, the oldest first; one a second for each node, the latest 32,768."""
        return self.change(lambda own, _: history_of(own.table), lasting=False)

    def parked(self) -> list[Parked]:
        """The products that were given up, the oldest first; the latest 4,096."""
        return self.change(lambda own, _: parked_of(own.table), lasting=False)

    def unpark(self, sequences: Sequence[int] | None = None) -> list[Parked]:
        """Take products off the list of those given up, or all of them; those that were on it."""

        def remove(own: Ownership, _: Moment) -> list[Parked]:
            chosen = [each for each in parked_of(own.table) if sequences is None or each.sequence in set(sequences)]
            for each in chosen:
                own.table.parked["sequence"][own.table.parked["sequence"] == each.sequence] = 0
            return chosen

        return self.change(remove)

    # --- balance ----------------------------------------------------------------------------------

    def lead(self, balancer: str, lease_s: float, *, yields: bool = False) -> int:
        """Become or stay the balancer for so long; the term, 0 if another one leads. `yields`: to one that does not."""
        if not 0 < lease_s <= LEASE_S_MAX:
            raise OptionError(f"a lease of {lease_s} s is out of range", f"use up to {LEASE_S_MAX:g} s")
        name, before = check_node(balancer), int(self.table.header["term"][0])
        term = self.change(lambda own, now: own.lead(name, int(lease_s * 1e9), now, yields=yields), lasting=False)
        if term > before:  # no other balancer ever has it
            self._make_lasting()
        return term

    def begin(self, term: int, giver: int, taker: int, slices: Slices, reason: Reason) -> int:
        """Begin a session, by hand with term 0; how many slices will move."""
        return self.change(lambda own, now: own.begin(term, giver, taker, slices, reason, now))

    def cancel(self, term: int, slices: Slices) -> int:
        """Leave slices in session with their givers after all; how many there were."""
        return self.change(lambda own, now: own.cancel(term, slices, now))

    def give(self, term: int, taker: int, slices: Slices, reason: Reason) -> int:
        """Give slices without an owner to a node; how many there were."""
        return self.change(lambda own, now: own.give(term, taker, slices, reason, now))

    def seize(self, term: int, seat: int) -> int:
        """Take the slices of a dead node; how many there were. A node that is alive keeps them."""
        head = self.head
        return len(self.change(lambda own, now: own.seize(term, seat, now, head)))

    def drain(self, seat: int) -> None:
        """Ask a node to leave as soon as its slices have moved."""
        self.change(lambda own, _: own.drain(seat))

    def remove(self) -> None:
        """Remove the group with its positions; ShareError if nodes are alive. The products stay."""
        state = self.state()
        alive = [node.name for node in state.nodes if node.is_alive]
        if alive:
            raise ShareError(f"group {self.terms.group!r} has nodes: {', '.join(alive)}", "stop them first")
        path = self.log.path
        with files.changing(path) as document:
            rest = tuple(each for each in document.groups if each.number != self.terms.number)
            files.write_document(path, msgspec.structs.replace(document, groups=rest))
            self.change(lambda own, _: own.table.header.__setitem__("magic", b""))
            self._file.path.unlink(missing_ok=True)

    def __repr__(self) -> str:
        return f"<Share {self.terms.group!r} of {self.terms.stream!r}>"


# --- names ----------------------------------------------------------------------------------------


def check_node(name: str) -> str:
    """Return `name` if a node or a balancer may have it; OptionError otherwise."""
    check_name(name, "node", OptionError)
    if len(name.encode()) > NAME_BYTES_MAX:
        raise OptionError(f"node name {name!r} is too long", f"use at most {NAME_BYTES_MAX} bytes")
    return name


def _age_s(own: Ownership, now: Moment, name: str) -> float | None:
    """How long ago a node of this name was heard of; None if none is alive."""
    alive = [
        int(seat) for seat in np.flatnonzero(own.table.seats["name"] == name.encode()) if own.is_alive(int(seat), now)
    ]
    return min(((now.boot_ns - int(own.table.seats["heartbeat"][seat])) / 1e9 for seat in alive), default=None)


def _free_name(own: Ownership, now: Moment, first: str) -> str:
    stem = first.encode()[: NAME_BYTES_MAX - 5].decode(errors="ignore")
    names = (first if turn == 1 else f"{stem}.{turn}" for turn in range(1, len(own.table.seats) + 2))
    return next(name for name in names if _age_s(own, now, name) is None)


def default_node() -> str:
    """The name of a node that was given none: that of the machine and of this process."""
    return f"{socket.gethostname()[:40]}-{os.getpid()}"


def new_instance() -> int:
    """The number by which a node proves that a seat is its own: unlike that of any other, and not to be guessed."""
    return secrets.randbits(62) | 1
