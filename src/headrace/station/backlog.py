"""Backlog: how many products of the log, behind the position of a chain, a station will get.

A chain stops scanning where a station is full, so most of a backlog may still be in the log, among products that the
station does not select. Here they are counted by its selection: by index rows if these decide, otherwise by reading.
The work is bounded: beyond the limit the count is a lower bound, and says so. A function, which may be slow, is not
called: it counts as wanting everything.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ProductDamagedError
from headrace.kernel import _kernel as kernel
from headrace.log.read import Reader
from headrace.log.weights import weigh
from headrace.selection import Selection
from headrace.station.terms import StationTerms

ROWS_MAX = 1 << 20  # examined by index rows for one count
_STEP = 1 << 16  # rows at a time
_IDENT_COST = 10  # of an ident, in rows
_READ_COST = 50  # of a product that is read, in rows
_BATCH_PRODUCTS, _BATCH_BYTES = 1000, 16 << 20

Piece = tuple[Selection, int, int]  # decides about the sequences from the first number up to the second


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a station will get of the products that its chain has not scanned yet."""

    products: int
    first: int  # the sequence of the first of them; 0: none was found
    at_least: bool  # not everything was examined


def pieces_of(terms: StationTerms, position: int, head: int) -> list[Piece]:
    """The selections that decide about the products from `position` up to `head`; none for those before the station."""
    pieces = []
    for retired in terms.retired:
        end = min(retired.until, head)
        if position < end:
            if retired.selection is not None:
                pieces.append((_without_function(retired.selection), position, end))
            position = end
    if position < head:
        pieces.append((_without_function(terms.selection), position, head))
    return pieces


def _without_function(selection: str) -> Selection:
    return Selection.parse(selection).replace(function=None)


def count_backlog(log: kernel.Log, path: Path, pieces: Iterable[Piece], prescale: int, now_ns: int) -> Backlog:
    """Count what the selections want, as far as ROWS_MAX allows."""
    products, first, left = 0, 0, ROWS_MAX
    for selection, start, stop in pieces:
        found, position, left = _count(log, path, selection, start, stop, now_ns, left)
        products += found // selection.every
        if found and not first:
            first = _first_of(log, path, selection, start, position, now_ns)
        if position < stop:
            return Backlog(products // prescale, first, True)
    return Backlog(products // prescale, first, False)


def _count(
    log: kernel.Log, path: Path, selection: Selection, position: int, stop: int, now_ns: int, left: int
) -> tuple[int, int, int]:
    """(products, up to which sequence, what is left of the limit)."""
    products = 0
    by_rows = selection.is_by_ident_alone
    cost = 1 if selection.is_cheap else _IDENT_COST if by_rows else _READ_COST
    reader = Reader(log, path, selection.replace(every=1))
    while position < stop and left > 0:
        position = max(position, log.first_from(position))
        end = min(stop, position + max(1, min(_STEP, left // cost)))
        if by_rows:
            left -= cost * max(1, log.count_between(position, end))
            products, position = products + weigh(log, selection, position, end).count, end
            continue
        try:
            batch = reader.read(position, _BATCH_PRODUCTS, _BATCH_BYTES, now_ns, end)
            left -= cost * max(1, batch.scanned)
            products, position = products + len(batch), batch.next
        except ProductDamagedError as error:
            position = error.next
    return products, min(position, stop), left


def _first_of(log: kernel.Log, path: Path, selection: Selection, start: int, stop: int, now_ns: int) -> int:
    try:
        batch = Reader(log, path, selection.replace(every=1)).read(start, 1, 1, now_ns, stop)
    except ProductDamagedError as error:
        return error.sequence
    return int(batch.sequences[0]) if len(batch) else 0
