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

Not here: products that fail (attempts.py), what nodes report (loads.py), the record of sessions (sessions.py).
"""

import numpy as np

from headrace.errors import BalancerDeposedError, SeatsFullError
from headrace.share.attempts import Attempts
from headrace.share.interface import NOBODY, Exchanged, Flags, Holding, Marks, Progress, Reason, Slices
from headrace.share.layout import NAME_BYTES_MAX, SEATS, Table, epochs_of, owners_of, takers_of, words_of
from headrace.share.loads import Loads, load_text
from headrace.share.seats import check_seat, check_taken, is_taken
from headrace.share.sessions import CANCELLED, DEAD, RUNNING, Moment, Sessions

_NOTHING = np.zeros(0, np.uint32)


class Ownership:
    """The transitions of one table."""

    def __init__(self, table: Table) -> None:
        self.table, self.sessions = table, Sessions(table)
        self.attempts, self._loads = Attempts(table), Loads(table)
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
        check_seat(self.table, seat, instance)
        self._vacate(seat, CANCELLED, now)

    def drain(self, seat: int) -> None:
        """Ask the node to leave, as soon as the balancer has moved its slices."""
        check_taken(self.table, seat)
        self._seats[seat]["draining"] = 1
        self._changed(seat)

    def seize(self, term: int, seat: int, now: Moment, head: int) -> Slices:
        """Take the slices of a dead node; those that it had. Nothing happens if it was heard of again."""
        self._check_term(term, now)
        if not self._seats[seat]["instance"] or self.is_alive(seat, now):
            return _NOTHING
        self._header["deaths"] += 1
        owned = self._owned(seat)
        self.attempts.mourn(seat, owned, head)
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
        self._loads.note_last(seat, now)
        entry["instance"] = 0
        self._changed(seat)  # a node that waits learns that it lost its seat

    # --- exchange ---------------------------------------------------------------------------------

    def exchange(self, seat: int, instance: int, progress: Progress, now: Moment, head: int) -> Exchanged:
        """Take in a node's progress; what it holds, if that is not what it knows. `head`: the queue's next sequence."""
        entry = check_seat(self.table, seat, instance)
        text = b"" if progress.load is None else load_text(progress.load)
        entry["heartbeat"] = now.boot_ns
        refused = self._confirm(seat, progress.confirm, head)
        if progress.work is not None:  # before the release: it counts for slices that the seat owns
            self._loads.count(seat, progress.work)
        refused_too = self._release(seat, progress.release, head, now)
        if progress.load is not None:
            self._loads.note(seat, progress.load, text, now)
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
        self.attempts.clear(slices)
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
        if giver == taker or not (
            is_taken(self.table, giver) and is_taken(self.table, taker) and self.is_alive(taker, now)
        ):
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
        if not is_taken(self.table, taker) or not self.is_alive(taker, now):
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
