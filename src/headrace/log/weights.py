"""Weights: how the bytes and the products of a range of sequences are spread, without reading payloads.

A reader that divides a range among workers uses this, so that each gets about the same; and a reader that takes so many
products at a time, to find where they end. Index rows decide, and idents where the selection has a condition on them.
Conditions that need more of a product (`where`, `xpath`, `created`, `age`) are ignored, so a weight may be too high and
is never too low.
"""

from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from headrace.kernel import _kernel as kernel
from headrace.log.read import Allowed, RowTerms
from headrace.product.batch import ROW
from headrace.product.product import NO_SLICE
from headrace.selection import Selection
from headrace.selection.matching import gathered

STRETCH_BYTES = 1 << 20
PRODUCT_BYTES = 256  # cost of a product besides its payload
NO = -1  # the slice of products that have none

_ROWS = 65_536  # at a time, where idents decide
_NO_LIMIT = (1 << 63) - 1
_UNKNOWN, _GONE = kernel.CODES["unknown_feed"], kernel.CODES["gone"]


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stretches of a range, each of about STRETCH_BYTES: where each ends (not included), its bytes, its products."""

    ends: list[int]
    sizes: list[int]
    slices: dict[int, int]  # bytes by slice
    products: list[int]
    slice_products: dict[int, int] = {}  # products by slice

    @property
    def total(self) -> int:
        return sum(self.sizes)

    @property
    def count(self) -> int:
        """Products in all."""
        return sum(self.products)


def weigh(
    log: kernel.Log,
    selection: Selection,
    start: int,
    stop: int,
    allowed: Allowed | None = None,
    limit: int | None = None,
) -> Weights:
    """Of the products from `start` up to `stop`, which is not included, in the feeds that `allowed` admits.

    With a `limit`, the range ends after so many products, if there are as many before `stop`.
    """
    terms = RowTerms(log, selection, allowed)
    by_ident = selection.ident is not None or selection.not_ident is not None
    weigher: _Weigher = _ByIdent(log, selection) if by_ident else kernel.Weigher(log, STRETCH_BYTES, PRODUCT_BYTES)
    products_max = _NO_LIMIT if limit is None else limit
    position = max(start, log.first_from(start))
    while position < min(stop, log.head) and weigher.products < products_max:
        outcome = weigher.run(position, stop, products_max, terms.filter)
        if outcome == _GONE:
            position = max(weigher.next, log.first_from(weigher.next))
        elif weigher.next == position and not (outcome == _UNKNOWN and terms.learn()):
            break  # damaged: a task that reads it reports that
        else:
            position = weigher.next
    end = weigher.next if weigher.products >= products_max else stop
    ends, sizes, products, slices, slice_products = weigher.finish(end)
    if len(ends) > 1 and not sizes[-1]:
        ends[-2:], sizes, products = ends[-1:], sizes[:-1], products[:-1]
    return Weights(ends, sizes, _by_number(slices), products, _by_number(slice_products))


def _by_number(slices: dict[int, int]) -> dict[int, int]:
    return {NO if number == NO_SLICE else number: value for number, value in slices.items()}


class _Weigher(Protocol):
    """What `kernel.Weigher` does: add up stretch after stretch."""

    @property
    def next(self) -> int: ...
    @property
    def products(self) -> int: ...
    def run(self, start: int, stop: int, products_max: int, row_filter: kernel.RowFilter | None) -> int: ...
    def finish(self, end: int) -> tuple[list[int], list[int], list[int], dict[int, int], dict[int, int]]: ...


class _ByIdent:
    """A weigher that looks at idents too; each run is one stretch."""

    def __init__(self, log: kernel.Log, selection: Selection) -> None:
        self._log, self._selection = log, selection
        self._ends, self._sizes, self._counts = list[int](), list[int](), list[int]()
        self._slices, self._slice_products = dict[int, int](), dict[int, int]()
        self.next = self.products = 0

    def run(self, start: int, stop: int, products_max: int, row_filter: kernel.RowFilter | None) -> int:
        rows = self._log.rows()
        outcome = rows.pick(start, _ROWS, STRETCH_BYTES, stop, row_filter)
        self.next = rows.next
        if not len(rows):
            return outcome
        columns = np.frombuffer(rows, dtype=ROW)  # type: ignore[call-overload]
        places = np.flatnonzero(gathered(self._selection, len(rows), *rows.gather_idents(0), once=True))
        left = products_max - self.products
        if len(places) >= left:
            places, self.next = places[:left], int(columns["sequence"][places[left - 1]]) + 1
        bytes_ = columns["payload_bytes"][places].astype(np.int64) + PRODUCT_BYTES
        self.products += len(places)
        self._ends.append(self.next)
        self._sizes.append(int(bytes_.sum()))
        self._counts.append(len(places))
        _add_slices(self._slices, columns["slice"][places], bytes_)
        _add_slices(self._slice_products, columns["slice"][places], None)
        return outcome

    def finish(self, end: int) -> tuple[list[int], list[int], list[int], dict[int, int], dict[int, int]]:
        return [*self._ends, end], [*self._sizes, 0], [*self._counts, 0], self._slices, self._slice_products


class RowCounts(NamedTuple):
    """How many products of a range index rows select, and how many of these were deleted or damaged instead."""

    products: int
    deleted: int
    damaged: int  # as marked by a repair; of any feed, because nothing is known of them


def count_rows(
    log: kernel.Log, selection: Selection, start: int, stop: int, allowed: Allowed | None = None
) -> RowCounts:
    """Of the range from `start` up to `stop`, which is not included, in the feeds that `allowed` admits."""
    terms, position = RowTerms(log, selection, allowed), max(start, log.first_from(start))
    products = deleted = damaged = 0
    while position < min(stop, log.head):
        rows = log.rows()
        outcome = rows.pick(position, _ROWS, _NO_LIMIT, stop, terms.filter)
        if rows.next == position and not (outcome == _UNKNOWN and terms.learn()):
            break
        position, products = rows.next, products + len(rows)
        deleted, damaged = deleted + rows.passed_over[2], damaged + rows.passed_over[3]
    return RowCounts(products, deleted, damaged)


def _add_slices(slices: dict[int, int], numbers: "np.ndarray[tuple[int], np.dtype[np.uint16]]", bytes_: object) -> None:
    sizes = np.bincount(numbers, weights=bytes_)  # type: ignore[arg-type]
    for number in np.flatnonzero(sizes).tolist():
        slices[number] = slices.get(number, 0) + int(sizes[number])
