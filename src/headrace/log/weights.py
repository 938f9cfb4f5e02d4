"""Weights: how the bytes of a range of sequences are distributed, from index rows alone.

A reader that divides a range among workers uses this, so that each gets about the same. Only index rows are read, no
payloads. Conditions that need more than rows are ignored, so a weight may be too high and is never too low.
"""

import msgspec
import numpy as np

from headrace.kernel import _kernel as kernel
from headrace.log.read import Allowed, RowTerms
from headrace.product.batch import ROW
from headrace.product.product import NO_SLICE
from headrace.selection import Selection

STRETCH_BYTES = 1 << 20
PRODUCT_BYTES = 256  # cost of a product besides its payload
NO = -1  # the slice of products that have none

_ROWS = 65_536  # at a time
_NO_LIMIT = (1 << 63) - 1
_UNKNOWN = kernel.CODES["unknown_feed"]


class Weights(msgspec.Struct, frozen=True):
    """Stretches of a range, each of about STRETCH_BYTES: where each ends (not included), and its bytes."""

    ends: list[int]
    sizes: list[int]
    slices: dict[int, int]  # bytes by slice

    @property
    def total(self) -> int:
        return sum(self.sizes)


def weigh(log: kernel.Log, selection: Selection, start: int, stop: int, allowed: Allowed | None = None) -> Weights:
    """Of the products from `start` up to `stop`, which is not included, in the feeds that `allowed` admits."""
    terms = RowTerms(log, selection, allowed)
    ends, sizes, slices = list[int](), list[int](), dict[int, int]()
    position, carried = max(start, log.first_from(start)), 0
    while position < min(stop, log.head):
        rows = log.rows()
        outcome = rows.pick(position, _ROWS, _NO_LIMIT, stop, terms.filter)
        if rows.next == position and not (outcome == _UNKNOWN and terms.learn()):
            break
        position = rows.next
        columns = np.frombuffer(rows, dtype=ROW)  # type: ignore[call-overload]
        bytes_ = columns["payload_bytes"].astype(np.int64) + PRODUCT_BYTES
        reached = carried + np.cumsum(bytes_)
        marks = np.flatnonzero(np.diff(reached // STRETCH_BYTES, prepend=carried // STRETCH_BYTES))
        before = 0
        for mark in marks.tolist():
            ends.append(int(columns["sequence"][mark]) + 1)
            sizes.append(int(reached[mark]) - before)
            before = int(reached[mark])
        carried = int(reached[-1]) - before if len(reached) else carried
        _add_slices(slices, columns["slice"], bytes_)
    if carried or not ends:
        ends.append(stop)
        sizes.append(carried)
    ends[-1] = stop
    return Weights(ends, sizes, slices)


def count_products(log: kernel.Log, selection: Selection, start: int, stop: int, allowed: Allowed | None = None) -> int:
    """How many there are from `start` up to `stop`, which is not included, in the feeds that `allowed` admits."""
    terms, position, count = RowTerms(log, selection, allowed), max(start, log.first_from(start)), 0
    while position < min(stop, log.head):
        rows = log.rows()
        outcome = rows.pick(position, _ROWS, _NO_LIMIT, stop, terms.filter)
        if rows.next == position and not (outcome == _UNKNOWN and terms.learn()):
            break
        position, count = rows.next, count + len(rows)
    return count


def _add_slices(slices: dict[int, int], numbers: "np.ndarray[tuple[int], np.dtype[np.uint16]]", bytes_: object) -> None:
    sizes = np.bincount(numbers, weights=bytes_)  # type: ignore[arg-type]
    for number in np.flatnonzero(sizes).tolist():
        size, number = int(sizes[number]), NO if number == NO_SLICE else number
        slices[number] = slices.get(number, 0) + size
