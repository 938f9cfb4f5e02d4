"""Sessions: the record of how slices change hands, in a ring of the latest ones.

A session is begun by the balancer, and a giver is in one at a time: its seat has the number. When the giver has let go
of the last slice, the slices are removed; when the taker has said that it knows them, they are available, and the
session is done. A slice that a session has brought has its number in `fresh` until then.

Whom a slice belongs to is not decided here (ownership.py).
"""

from typing import NamedTuple

import numpy as np

from headrace.share.interface import NOBODY, Reason, Slices
from headrace.share.layout import SESSIONS, Table

REASONS: tuple[Reason, ...] = ("load", "join", "drain", "idle", "dead", "hand")
RUNNING, DONE, CANCELLED, DEAD = range(4)


class Moment(NamedTuple):
    """Now, by two clocks."""

    boot_ns: int  # since the machine's start: decides ages
    wall_ns: int  # since 1970: for people


class Sessions:
    """The sessions of one table."""

    def __init__(self, table: Table) -> None:
        self._table, self._header, self._seats = table, table.header[0], table.seats

    def begin(self, giver: int, taker: int, slices: int, reason: Reason, now: Moment) -> int:
        """The number of a new session; NOBODY gives slices without an owner."""
        number = int(self._header["sessions"]) + 1
        giver_name = b"" if giver == NOBODY else self._seats[giver]["name"]
        self._table.sessions[number % SESSIONS] = (
            number, now.wall_ns, 0, 0, 0, slices, slices, slices, giver, taker, REASONS.index(reason), RUNNING, b"",
            giver_name, self._seats[taker]["name"],
        )  # fmt: skip
        self._header["sessions"] = number
        return number

    def find(self, number: int) -> np.void | None:
        """A running session; None if it has ended, or is too old."""
        entry = self._table.sessions[number % SESSIONS]
        return entry if number and int(entry["number"]) == number and int(entry["outcome"]) == RUNNING else None

    def note_removed(self, giver: int, count: int, now: Moment) -> None:
        """The giver has let go of so many slices of its session."""
        number = int(self._seats[giver]["session"])
        if number:
            self.remove(number, count, now)
            entry = self.find(number)
            if entry is None or not entry["left"]:
                self._seats[giver]["session"] = 0

    def remove(self, number: int, count: int, now: Moment) -> None:
        """So many slices of this session have no giver any more."""
        entry = self.find(number)
        if entry is not None:
            entry["left"] = max(0, int(entry["left"]) - count)
            if not entry["left"]:
                entry["removed_ns"] = now.wall_ns

    def note_available(self, seat: int, owned: Slices, now: Moment) -> None:
        """The node has seen what it owns: it works on the slices that came."""
        table = self._table
        numbers, counts = np.unique(table.fresh[owned], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            entry = self.find(number)
            if entry is not None:
                entry["waits"] = max(0, int(entry["waits"]) - count)
                if not entry["waits"]:
                    entry["available_ns"] = entry["ended_ns"] = now.wall_ns
                    entry["outcome"] = DONE
        table.fresh[owned] = 0
        self._seats[seat]["fresh"] = 0

    def end(self, number: int, outcome: int, wall_ns: int) -> None:
        """End a session, unless it has ended."""
        entry = self.find(number)
        if entry is not None:
            entry["outcome"], entry["ended_ns"] = outcome, wall_ns
            giver = int(entry["giver_seat"])
            if giver != NOBODY and int(self._seats[giver]["session"]) == number:
                self._seats[giver]["session"] = 0
