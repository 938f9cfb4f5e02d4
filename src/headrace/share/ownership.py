"""Ownership: every change of a group's table, on plain arrays: no file, no lock, no clock.

A slice has an owner, or none, and while it is in session also a taker:

    unowned ── give ──► available ── begin ──► in session ── release ──► available, at the taker, epoch + 1
                            ▲                      │ │
                            └────── cancel ────────┘ └─── the taker is gone ──► unowned, epoch + 1
    seize (the owner is dead), leave: unowned, epoch + 1

A confirmation counts only if it comes from the owner, in the epoch of the owner. So two nodes never confirm one
product, whatever messages are late, repeated or lost: a position that the old owner sends after the change is refused.
The last confirmation and the change of the owner are one operation, in which the position is stored first. Killed in
between, it leaves the slice with its owner, further on.

The caller holds the group's lock and passes the moment. share/file.py does that for processes; the tests explore every
order of messages and deaths on this same code, and the simulation of a thousand nodes runs on it.
"""

from typing import cast

import msgspec
import numpy as np

from headrace.errors import BalancerDeposedError, OptionError, SeatLostError, SeatsFullError
from headrace.share.interface import (
    NOBODY,
    Exchanged,
    Flags,
    Holding,
    Load,
    Marks,
    Progress,
    Reason,
    Slices,
    Work,
)
from headrace.share.layout import (
    ERROR_BYTES_MAX,
    LOAD_BYTES_MAX,
    NAME_BYTES_MAX,
    PARKED,
    SAMPLES,
    SEATS,
    Table,
    epochs_of,
    owners_of,
    takers_of,
    words_of,
)
from headrace.share.sessions import CANCELLED, DEAD, RUNNING, Moment, Sessions

SAMPLE_NS = 1_000_000_000  # between two samples of a node's load
_NOTHING = np.zeros(0, np.uint32)


class Ownership:
    """The transitions of one table."""

    def __init__(self, table: Table) -> None:
        self.table, self.sessions = table, Sessions(table)
        self._header, self._seats = table.header[0], table.seats
        self._dead_after_ns = int(self._header["dead_after_ns"])

    # --- seats ------------------------------------------------------------------------------------

    def join(self, name: str, instance: int, now: Moment, *, pid: int = 0, user: str = "") -> int:
        """Take a free seat; `instance` is a number unlike that of any other node."""
        free = np.flatnonzero(self._seats["instance"] == 0)
        if not len(free):
            raise SeatsFullError(f"the group has {SEATS} nodes, the maximum", "stop some, or make a second group")
        seat = int(free[0])
        entry = self._seats[seat]
        version = int(entry["version"])
        self._seats[seat] = np.zeros((), self._seats.dtype)
        entry = self._seats[seat]
        entry["version"], entry["heartbeat"], entry["joined_ns"] = version + 1, now.boot_ns, now.wall_ns
        entry["name"], entry["user"], entry["pid"] = name.encode(), user.encode()[:NAME_BYTES_MAX], pid
        entry["instance"] = instance  # last: it makes the seat valid
        self._changed(seat)
        return seat

    def is_alive(self, seat: int, now: Moment) -> bool:
        """Whether the seat is taken, and its node was heard of lately."""
        entry = self._seats[seat]
        age = now.boot_ns - int(entry["heartbeat"])
        return bool(entry["instance"]) and 0 <= age <= self._dead_after_ns

    def leave(self, seat: int, instance: int, now: Moment) -> None:
        """Give the seat back; slices that it still has are unowned."""
        self._check_seat(seat, instance)
        self._vacate(seat, CANCELLED, now)

    def drain(self, seat: int) -> None:
        """Ask the node to leave, as soon as the balancer has moved its slices."""
        self._check_taken(seat)
        self._seats[seat]["draining"] = 1
        self._changed(seat)

    def seize(self, term: int, seat: int, now: Moment, head: int) -> Slices:
        """Take the slices of a dead node; those that it had. Nothing happens if it was heard of again.

        The next owner is careful with the first product of each. If it dies before a slice has passed `head`, some
        product below that may be deadly, and its next owner is careful up to there.
        """
        self._check_term(term, now)
        if not self._seats[seat]["instance"] or self.is_alive(seat, now):
            return _NOTHING
        self._header["deaths"] += 1
        owned, table = self._owned(seat), self.table
        is_first = table.mourned[owned] == 0
        table.careful[owned] = np.where(is_first, 1, table.mourned[owned])
        table.mourned[owned[is_first]] = head
        announced, where = int(self._seats[seat]["in_work"]), int(self._seats[seat]["in_work_slice"])
        self._seats[seat]["in_work"] = 0  # first: if this balancer is killed, the next one must not count it again
        if announced >= int(table.positions[where]) and where in owned:
            self._count_try(where, announced)
        self._vacate(seat, DEAD, now)
        return owned

    def _vacate(self, seat: int, outcome: int, now: Moment) -> None:
        """Free a seat: its slices are unowned in a new epoch, and nothing comes to it any more."""
        entry, words = self._seats[seat], self.table.words
        coming = np.flatnonzero(takers_of(words) == seat).astype(np.uint32)
        owned = self._owned(seat)
        self.sessions.end(int(entry["session"]), outcome, now.wall_ns)
        for giver in {int(each) for each in owners_of(words[coming])}:
            self.sessions.end(int(self._seats[giver]["session"]), outcome, now.wall_ns)
        sessions = self.table.sessions
        unseen = (sessions["number"] > 0) & (sessions["taker_seat"] == seat) & (sessions["outcome"] == RUNNING)
        for number in sessions["number"][unseen].tolist():  # it was given slices, and never said that it works on them
            self.sessions.end(number, outcome, now.wall_ns)
        self._untake(np.concatenate([owned, coming]))
        self._disown(owned)
        self._add_sample(seat, Load(), 0.0, now)  # its last: it has nothing any more
        entry["instance"] = 0
        self._changed(seat)  # a node that waits learns that it lost its seat

    # --- exchange ---------------------------------------------------------------------------------

    def exchange(self, seat: int, instance: int, progress: Progress, now: Moment, head: int) -> Exchanged:
        """Take in a node's progress; what it holds, if that is not what it knows. `head`: the queue's next sequence."""
        entry = self._check_seat(seat, instance)
        load_text = b"" if progress.load is None else _load_text(progress.load)
        entry["heartbeat"] = now.boot_ns
        refused = self._confirm(seat, progress.confirm, head)
        if progress.work is not None:  # before the release: it counts for slices that the seat owns
            self._count_work(seat, progress.work)
        refused_too = self._release(seat, progress.release, head, now)
        if progress.load is not None:
            self._note_load(seat, progress.load, load_text, now)
        version = int(entry["version"])
        if entry["fresh"] and progress.seen == version:
            self.sessions.note_available(seat, self._owned(seat), now)
        holding = None if progress.seen == version else self.holding(seat)
        if len(refused) or len(refused_too):
            self._header["refused"] += len(refused) + len(refused_too)
            refused = np.concatenate([refused, refused_too])
        return Exchanged(version, holding, refused)

    def holding(self, seat: int) -> Holding:
        """The slices of a seat."""
        table = self.table
        owned = self._owned(seat)
        words = table.words[owned]
        coming = np.flatnonzero(takers_of(table.words) == seat).astype(np.uint32)
        return Holding(
            owned, epochs_of(words), table.positions[owned], takers_of(words) != NOBODY,
            table.careful[owned], table.suspects[owned], table.tries[owned], coming,
            bool(self._seats[seat]["draining"]),
        )  # fmt: skip

    def _confirm(self, seat: int, confirmed: Marks, head: int) -> Slices:
        """Store the positions of slices that the seat owns; the slices that it does not."""
        if not confirmed:
            return _NOTHING
        table = self.table
        counts = self._is_owner(seat, confirmed, head)
        refused: Slices = confirmed.slices[~counts]
        slices, positions = confirmed.slices[counts], confirmed.positions[counts]
        further = positions > table.positions[slices]
        slices, positions = slices[further], positions[further]
        table.positions[slices] = positions
        self._clear(slices)
        return refused

    def _release(self, seat: int, released: Marks, head: int, now: Moment) -> Slices:
        """Store the last positions, then make the takers the owners; the slices that the seat does not own."""
        if not released:
            return _NOTHING
        counts = self._is_owner(seat, released, head)
        slices = released.slices[counts]
        self._confirm(seat, released.where(counts), head)
        takers = takers_of(self.table.words[slices])
        for taker in {int(each) for each in takers}:
            given = slices[takers == taker]
            if taker != NOBODY and self.is_alive(taker, now):
                self._hand_over(seat, taker, given, now)
            else:
                self._disown(given)
                self.sessions.note_removed(seat, len(given), now)
        self._changed(seat)
        return released.slices[~counts]

    def _hand_over(self, giver: int, taker: int, slices: Slices, now: Moment) -> None:
        table = self.table
        table.fresh[slices] = self._seats[giver]["session"]
        table.words[slices] = words_of(taker, NOBODY, epochs_of(table.words[slices]) + np.uint32(1))
        self._seats[taker]["fresh"] = 1
        self.sessions.note_removed(giver, len(slices), now)
        self._changed(taker)

    def _is_owner(self, seat: int, of: Marks, head: int) -> Flags:
        """Which of the marks are of slices that the seat owns, in their epochs, and possible."""
        words = self.table.words
        known = of.slices < len(words)
        at = words[np.where(known, of.slices, 0)]
        counts: Flags = known & (owners_of(at) == seat) & (epochs_of(at) == of.epochs) & (of.positions <= head)
        return counts

    def _clear(self, slices: Slices) -> None:
        """Slices that went on: whatever was suspected of the products that they have passed is over."""
        table = self.table
        marked = slices[(table.mourned[slices] | table.suspects[slices]) != 0]
        for until in (table.careful, table.mourned):
            until[marked[table.positions[marked] >= until[marked]]] = 0
        passed = marked[table.positions[marked] > table.suspects[marked]]
        table.tries[passed] = table.suspects[passed] = 0

    # --- attempts ---------------------------------------------------------------------------------

    def begin_product(self, seat: int, instance: int, slice: int, epoch: int, sequence: int) -> bool:
        """A careful node begins this product. If it dies, the product is blamed. False: the slice is another's.

        Sequence 0: it works on something else now, for which no product is to be blamed.
        """
        entry = self._check_seat(seat, instance)
        if sequence and not self._owns(seat, slice, epoch):
            return False
        entry["in_work"] = 0
        entry["in_work_slice"] = slice
        entry["in_work"] = sequence
        return True

    def fail(self, seat: int, instance: int, slice: int, epoch: int, sequence: int) -> int:
        """An attempt failed: how many have, by now. 0: the slice is another's."""
        entry = self._check_seat(seat, instance)
        if not self._owns(seat, slice, epoch):
            return 0
        self._header["failed"] += 1
        if int(entry["in_work"]) == sequence:
            entry["in_work"] = 0
        return self._count_try(slice, sequence)

    def park(
        self, seat: int, instance: int, slice: int, epoch: int, sequence: int, error: str, now: Moment, head: int
    ) -> bool:
        """Give a product up: list it, and confirm it. False: the slice is another's."""
        entry = self._check_seat(seat, instance)
        if not self._owns(seat, slice, epoch) or not 0 < sequence < head:
            return False
        if sequence < int(self.table.positions[slice]):  # the call is repeated
            return True
        if not np.any((self.table.parked["sequence"] == sequence) & (self.table.parked["slice"] == slice)):
            place = int(self._header["parked"]) % PARKED
            text = error.encode()[:ERROR_BYTES_MAX]
            tries = int(self.table.tries[slice])
            self.table.parked[place] = (0, now.wall_ns, slice, tries, entry["name"], text)
            self._header["parked"] += 1
            self.table.parked[place]["sequence"] = sequence  # last: the call is repeated until it is listed
        entry["in_work"] = 0
        self.table.positions[slice] = sequence + 1
        self._clear(np.array([slice], np.uint32))
        return True

    def _owns(self, seat: int, slice: int, epoch: int) -> bool:
        return (
            0 <= slice < len(self.table.words) and int(self.table.words[slice]) & ~(NOBODY << 16) == epoch << 32 | seat
        )

    def _count_try(self, slice: int, sequence: int) -> int:
        table = self.table
        tries = int(table.tries[slice]) + 1 if int(table.suspects[slice]) == sequence else 1
        table.tries[slice] = min(tries, 255)
        table.suspects[slice] = sequence
        return tries

    # --- the balancer -----------------------------------------------------------------------------

    def lead(self, balancer: str, lease_ns: int, now: Moment, *, yields: bool = False) -> int:
        """Become the balancer, or stay it; the term, or 0 if another one leads.

        A balancer that `yields` leads only as long as none wants to that does not.
        """
        header, name = self._header, balancer.encode()[:NAME_BYTES_MAX]
        until = int(header["leader_until"])
        held = now.boot_ns <= until <= now.boot_ns + 3_600_000_000_000
        is_other = held and bytes(header["leader"]) != name
        if is_other and (yields or not header["leader_yields"]):
            return 0
        if is_other or not held:
            header["term"] += 1
        header["leader"], header["leader_yields"] = name, yields
        header["leader_until"] = now.boot_ns + lease_ns
        return int(header["term"])

    def begin(self, term: int, giver: int, taker: int, slices: Slices, reason: Reason, now: Moment) -> int:
        """Begin a session: these slices are to move. How many of them the giver owns, and are in no session.

        A giver is in one session at a time; 0 if it is in another, or a node is gone.
        """
        self._check_term(term, now)
        if giver == taker or not (self._is_seat(giver) and self._is_seat(taker) and self.is_alive(taker, now)):
            return 0
        if self._seats[giver]["session"] or self._seats[taker]["draining"]:
            return 0
        table, slices = self.table, self._valid(slices)
        words = table.words[slices]
        moving = slices[(owners_of(words) == giver) & (takers_of(words) == NOBODY)]
        if not len(moving):
            return 0
        self._seats[giver]["session"] = self.sessions.begin(giver, taker, len(moving), reason, now)
        table.words[moving] = words_of(giver, taker, epochs_of(table.words[moving]))
        self._changed(giver)
        self._changed(taker)
        return len(moving)

    def cancel(self, term: int, slices: Slices, now: Moment) -> int:
        """End the sessions of these slices; they stay with their givers. How many there were."""
        self._check_term(term, now)
        slices = self._valid(slices)
        words = self.table.words[slices]
        moving = slices[takers_of(words) != NOBODY]
        givers = {int(each) for each in owners_of(self.table.words[moving])}
        self._untake(moving)
        for giver in givers:
            if giver != NOBODY and not np.any(takers_of(self.table.words[self._owned(giver)]) != NOBODY):
                self.sessions.end(int(self._seats[giver]["session"]), CANCELLED, now.wall_ns)
                self._header["cancelled"] += 1
        return len(moving)

    def give(self, term: int, taker: int, slices: Slices, reason: Reason, now: Moment) -> int:
        """Give slices without an owner to a node; how many there were."""
        self._check_term(term, now)
        if not self._is_seat(taker) or not self.is_alive(taker, now):
            return 0
        table, slices = self.table, self._valid(slices)
        given = slices[owners_of(table.words[slices]) == NOBODY]
        if len(given):
            session = self.sessions.begin(NOBODY, taker, len(given), reason, now)
            table.fresh[given] = session
            table.words[given] = words_of(taker, NOBODY, epochs_of(table.words[given]))
            self._seats[taker]["fresh"] = 1
            self.sessions.remove(session, len(given), now)
            self._changed(taker)
        return len(given)

    def _check_term(self, term: int, now: Moment) -> None:
        """0 is a person, who needs no lease."""
        if term and (term != int(self._header["term"]) or now.boot_ns > int(self._header["leader_until"])):
            raise BalancerDeposedError(
                f"the lease of term {term} is over: another balancer leads", "stand by, and try to lead again"
            )

    # --- loads ------------------------------------------------------------------------------------

    def _count_work(self, seat: int, work: Work) -> None:
        """Work on slices that the seat does not own counts for the node only."""
        entry, words = self._seats[seat], self.table.words
        if work.number <= int(entry["reported"]):
            return
        entry["reported"] = work.number
        known = work.slices < len(words)
        known &= owners_of(words[np.where(known, work.slices, 0)]) == seat
        np.add.at(self.table.products, work.slices[known], work.products[known])
        np.add.at(self.table.busy_ns, work.slices[known], work.busy_ns[known])
        entry["products"] += np.uint64(work.products.sum())
        entry["busy_ns"] += np.uint64(work.busy_ns.sum())
        if work.lost is not None:  # other nodes may have missed a part of the same range
            first = max(work.lost.first, int(self._header["lost_last"]) + 1)
            self._header["lost"] += max(0, work.lost.last + 1 - first)
            self._header["lost_last"] = max(work.lost.last, int(self._header["lost_last"]))

    def _note_load(self, seat: int, load: Load, text: bytes, now: Moment) -> None:
        entry = self._seats[seat]
        entry["load_bytes"], entry["load"] = len(text), text
        since = now.boot_ns - int(entry["sampled"])
        if since >= SAMPLE_NS:
            busy = (int(entry["busy_ns"]) - int(entry["sampled_busy_ns"])) / since if entry["sampled"] else 0.0
            entry["sampled"], entry["sampled_busy_ns"] = now.boot_ns, entry["busy_ns"]
            self._add_sample(seat, load, busy, now)

    def _add_sample(self, seat: int, load: Load, busy: float, now: Moment) -> None:
        place = int(self._header["samples"]) % SAMPLES
        name, slices = self._seats[seat]["name"], len(self._owned(seat))
        self.table.samples[place] = (now.wall_ns, load.waiting, load.cpu, busy, slices, seat, name)
        self._header["samples"] += 1

    # --- small ------------------------------------------------------------------------------------

    def _owned(self, seat: int) -> Slices:
        return np.flatnonzero(owners_of(self.table.words) == seat).astype(np.uint32)

    def _disown(self, slices: Slices) -> None:
        words = self.table.words
        words[slices] = words_of(NOBODY, NOBODY, epochs_of(words[slices]) + np.uint32(1))

    def _untake(self, slices: Slices) -> None:
        words = self.table.words
        before = words[slices]
        words[slices] = words_of(owners_of(before), NOBODY, epochs_of(before))
        for seat in {int(each) for each in (*owners_of(before), *takers_of(before))} - {NOBODY}:
            self._changed(seat)

    def _changed(self, seat: int) -> None:
        """The node has to look again."""
        self._seats[seat]["version"] += 1
        self._header["changes"] = (int(self._header["changes"]) + 1) & 0xFFFFFFFF

    def _valid(self, slices: Slices) -> Slices:
        return slices[slices < len(self.table.words)]

    def _is_seat(self, seat: int) -> bool:
        return 0 <= seat < SEATS and bool(self._seats[seat]["instance"])

    def _check_taken(self, seat: int) -> None:
        if not self._is_seat(seat):
            raise SeatLostError(f"there is no node at seat {seat}", "list the nodes: headrace slices status")

    def _check_seat(self, seat: int, instance: int) -> np.void:
        """The seat of this very node; SeatLostError if it was taken away."""
        if not 0 <= seat < SEATS or not instance or int(self._seats[seat]["instance"]) != instance:
            raise seat_lost()
        return cast(np.void, self._seats[seat])


def seat_lost() -> SeatLostError:
    return SeatLostError(
        "the node was not heard of for too long, and its slices went to others", "join the group again"
    )


def _load_text(load: Load) -> bytes:
    """A load as a table has it."""
    text = msgspec.json.encode(load)
    if len(text) > LOAD_BYTES_MAX:
        raise OptionError(f"a load of {len(text)} bytes is too long", f"report at most {LOAD_BYTES_MAX} bytes")
    return text
