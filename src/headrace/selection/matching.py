"""Matching: the clauses of a selection, evaluated one after the other, the cheapest first.

Over a batch, each clause looks only at the products that all clauses before it selected: times are numbers in the rows,
idents one Arrow column, tags and conditions columns over the properties, and only for the rest is the payload parsed
or a function called. For a single product, the first clause that rejects it decides, and its name is the reason.

Not here: clauses that index rows have decided before a batch exists (`headrace.log.read`).
"""

import itertools
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headrace.product.batch import Batch, rows_behind
from headrace.product.options import run_in
from headrace.product.product import Product
from headrace.selection import clauses

if TYPE_CHECKING:
    from headrace.selection.selection import Selection


Places = npt.NDArray[np.intp]
_FEW, _FEW_ONCE = 4, 4096  # idents, at 5 µs each; Arrow begins within 20 µs, and loads within 0.1 s


def narrowed(selection: "Selection", batch: Batch, places: Places, now_ns: int, idents_decided: bool = False) -> Places:
    """The `places` that all clauses select, except those that index rows decide and except `every`."""
    if selection.created is not None or selection.max_age_s is not None:
        places = places[_timely(selection, batch.columns["created_ns"][places], now_ns)]
    if not idents_decided and (selection.ident is not None or selection.not_ident is not None):
        places = places[selection.wants_idents(batch.ident_column().take(places))]
    if selection.replay is not None:
        places = _by_replay(selection.replay, batch, places)
    compiled = selection.compiled
    if compiled.tags is not None or compiled.where is not None:
        places = _by_properties(selection, batch, places)
    if compiled.xpath is not None:
        path = compiled.xpath
        places = _kept(places, [path.test(batch.payload(place)) for place in places.tolist()])
    if compiled.function is not None:
        function = compiled.function
        places = _kept(places, [function.test(batch[place]) for place in places.tolist()])
    return places


def gathered(
    selection: "Selection", count: int, offsets: bytes, data: bytes, *, once: bool = False
) -> npt.NDArray[np.bool_]:
    """Which of `count` idents are selected, as the kernel gathers them.

    A few are matched one by one, which takes less time than Arrow needs to begin. `once`: the caller does not repeat
    this, so more are matched one by one if Arrow would have to be loaded first.
    """
    if count > (_FEW_ONCE if once and "pyarrow" not in sys.modules else _FEW):
        from headrace.product.arrow import text_column

        return selection.wants_idents(text_column(count, offsets, data))
    ends = np.frombuffer(offsets, np.int32).tolist()
    wanted = [wants_ident(selection, data[begin:end].decode()) for begin, end in itertools.pairwise(ends)]
    return np.array(wanted, np.bool_)


def _kept(places: Places, wanted: list[bool]) -> Places:
    return places[np.array(wanted, np.bool_)]


def _by_replay(replay: bool | str, batch: Batch, places: Places) -> Places:
    """Only products with options are looked at: others were put by no replay."""
    rows = rows_behind(batch)
    runs = np.zeros(len(places), np.uint64)
    for index in np.flatnonzero(batch.columns["options_bytes"][places]).tolist():
        runs[index] = run_in(rows.options(int(places[index])))
    wanted = runs == np.uint64(int(replay, 16)) if isinstance(replay, str) else (runs != 0) == replay
    return places[np.asarray(wanted, np.bool_)]


def _by_properties(selection: "Selection", batch: Batch, places: Places) -> Places:
    from headrace.selection.where.columns import Fields  # slow to load, and few selections look at properties
    from headrace.selection.where.vector import is_true

    compiled = selection.compiled
    if compiled.tags is not None:
        places = places[is_true(compiled.tags, Fields(batch, places))]
    return places if compiled.where is None else places[compiled.where.mask_of(Fields(batch, places))]


def _timely(selection: "Selection", created_ns: npt.NDArray[np.uint64], now_ns: int) -> npt.NDArray[np.bool_]:
    first, last = bounds(selection, now_ns)
    return (created_ns >= np.uint64(first)) & (created_ns < np.uint64(last))


def bounds(selection: "Selection", now_ns: int) -> tuple[int, int]:
    """The first creation time that is selected, and the first that is not any more."""
    first, last = selection.created or (None, None)
    begin, end = first or 0, 1 << 63 if last is None else last
    if selection.max_age_s is not None:
        begin = max(begin, (now_ns or time.time_ns()) - round(selection.max_age_s * 1e9) + 1)
    return begin, end


def refused_by(selection: "Selection", product: Product, now_ns: int) -> str | None:
    """The name of the first clause that rejects the product; None if it is selected."""
    if not selection.wants_feed(product.feed):
        return "feed"
    if not selection.priorities >> product.priority & 1:
        return "priority"
    if not selection.wants_origin(product.origin):
        return "origin"
    if selection.slices is not None and product.slice not in selection.slices:
        return "slices"
    if selection.created is not None or selection.max_age_s is not None:
        begin, end = bounds(selection, now_ns)
        if not begin <= product.created_ns < end:
            return _untimely(selection, product)
    if selection.replay is not None and not _wants_replay(selection.replay, product):
        return "replay"
    if selection.ident is not None and not clauses.compiled(selection.ident).search(product.ident):
        return "ident"
    if selection.not_ident is not None and clauses.compiled(selection.not_ident).search(product.ident):
        return "not_ident"
    return _refused_by_content(selection, product)


def _wants_replay(replay: bool | str, product: Product) -> bool:
    mark = product.options.replay
    if isinstance(replay, str):
        return mark is not None and mark.run == int(replay, 16)
    return (mark is not None) == replay


def wants_ident(selection: "Selection", ident: str) -> bool:
    """Decide by one ident alone."""
    if selection.ident is not None and not clauses.compiled(selection.ident).search(ident):
        return False
    return selection.not_ident is None or not clauses.compiled(selection.not_ident).search(ident)


def _untimely(selection: "Selection", product: Product) -> str:
    first, last = selection.created or (None, None)
    in_range = (first or 0) <= product.created_ns < (1 << 63 if last is None else last)
    return "max_age_s" if in_range else "created"


def _refused_by_content(selection: "Selection", product: Product) -> str | None:
    compiled = selection.compiled
    if compiled.tags_of_one is not None and compiled.tags_of_one(product) is not True:
        return "tags"
    if compiled.where is not None and not compiled.where.test(product):
        return "where"
    if compiled.xpath is not None and not compiled.xpath.test(product.part):
        return "xpath"
    if compiled.function is not None and not compiled.function.test(product):
        return "function"
    return None
