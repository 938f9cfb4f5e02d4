"""Attempts: which products fail, or end their nodes, and when one is given up. Plain arrays, as in ownership.py.

Of each slice, the table has the product that is suspected and how many attempts of it have failed; of each seat, the
product that a careful node has announced. A node that dies leaves its announcement as the proof.
"""

import numpy as np

from headrace.share.interface import NOBODY, Slices
from headrace.share.layout import ERROR_BYTES_MAX, PARKED, Table
from headrace.share.seats import check_seat
from headrace.share.sessions import Moment


class Attempts:
    """The attempts of one table. Seats are those of living nodes, which `instance` proves."""

    def __init__(self, table: Table) -> None:
        self._table, self._header, self._seats = table, table.header[0], table.seats

    def begin(self, seat: int, instance: int, slice: int, epoch: int, sequence: int) -> bool:
        """A careful node begins this product. If it dies, the product is blamed. False: the slice is another's.

        Sequence 0: it works on something else now, for which no product is to be blamed.
        """
        entry = check_seat(self._table, seat, instance)
        if sequence and not self._owns(seat, slice, epoch):
            return False
        entry["in_work"] = 0
        entry["in_work_slice"] = slice
        entry["in_work"] = sequence
        return True

    def fail(self, seat: int, instance: int, slice: int, epoch: int, sequence: int) -> int:
        """An attempt failed: how many have, by now. 0: the slice is another's."""
        entry = check_seat(self._table, seat, instance)
        if not self._owns(seat, slice, epoch):
            return 0
        self._header["failed"] += 1
        if int(entry["in_work"]) == sequence:
            entry["in_work"] = 0
        return self._count(slice, sequence)

    def park(
        self, seat: int, instance: int, slice: int, epoch: int, sequence: int, error: str, now: Moment, head: int
    ) -> bool:
        """Give a product up: list it, and confirm it. False: the slice is another's."""
        entry, table = check_seat(self._table, seat, instance), self._table
        if not self._owns(seat, slice, epoch) or not 0 < sequence < head:
            return False
        if sequence < int(table.positions[slice]):  # the call is repeated
            return True
        if not np.any((table.parked["sequence"] == sequence) & (table.parked["slice"] == slice)):
            place = int(self._header["parked"]) % PARKED
            text = error.encode()[:ERROR_BYTES_MAX]
            table.parked[place] = (0, now.wall_ns, slice, int(table.tries[slice]), entry["name"], text)
            self._header["parked"] += 1
            table.parked[place]["sequence"] = sequence  # last: the call is repeated until it is listed
        entry["in_work"] = 0
        table.positions[slice] = sequence + 1
        self.clear(np.array([slice], np.uint32))
        return True

    def mourn(self, seat: int, owned: Slices, head: int) -> None:
        """A node has died: the next owners of its slices are careful, and the product that it had announced is blamed.

        They are careful with the first product of each slice. If one dies before a slice has passed `head`, some
        product below that may be deadly, and the next one is careful up to there.
        """
        table, entry = self._table, self._seats[seat]
        is_first = table.mourned[owned] == 0
        table.careful[owned] = np.where(is_first, 1, table.mourned[owned])
        table.mourned[owned[is_first]] = head
        announced, where = int(entry["in_work"]), int(entry["in_work_slice"])
        entry["in_work"] = 0  # first: if this balancer is killed, the next one must not count it again
        if announced >= int(table.positions[where]) and where in owned:
            self._count(where, announced)

    def clear(self, slices: Slices) -> None:
        """Slices that went on: whatever was suspected of the products that they have passed is over."""
        table = self._table
        marked = slices[(table.mourned[slices] | table.suspects[slices]) != 0]
        for until in (table.careful, table.mourned):
            until[marked[table.positions[marked] >= until[marked]]] = 0
        passed = marked[table.positions[marked] > table.suspects[marked]]
        table.tries[passed] = table.suspects[passed] = 0

    def _owns(self, seat: int, slice: int, epoch: int) -> bool:
        words = self._table.words
        return 0 <= slice < len(words) and int(words[slice]) & ~(NOBODY << 16) == epoch << 32 | seat

    def _count(self, slice: int, sequence: int) -> int:
        table = self._table
        tries = int(table.tries[slice]) + 1 if int(table.suspects[slice]) == sequence else 1
        table.tries[slice] = min(tries, 255)
        table.suspects[slice] = sequence
        return tries
