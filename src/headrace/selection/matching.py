"""Matching: the clauses of a selection, asked one after the other, the cheapest first.

Over a batch each clause is asked only about the products that all before it wanted: times are numbers in the rows,
idents one Arrow column, tags and conditions columns over the properties, and only what is left has its payload parsed
or is shown to a function. For one product the first clause that refuses it ends the matter, and its name is the
answer to why.

Not here: clauses that index rows have decided before a batch exists (`headrace.log.read`).
"""

import time
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.product.batch import Batch
from headrace.product.product import Product
from headrace.selection import regex
from headrace.selection.columns import Fields, Places
from headrace.selection.vector import is_true

if TYPE_CHECKING:
    from headrace.selection.selection import Selection


def narrowed(selection: "Selection", batch: Batch, places: Places, now_ns: int, idents_decided: bool = False) -> Places:
    """Those of `places` that all clauses want but the ones that index rows decide, and but `every`."""
    if selection.created is not None or selection.max_age_s is not None:
        places = places[_timely(selection, batch.columns["created_ns"][places], now_ns)]
    if not idents_decided and (selection.ident is not None or selection.not_ident is not None):
        places = places[selection.wants_idents(batch.ident_column().take(pa.array(places)))]
    dear = selection.compiled
    if dear.tags is not None or dear.where is not None:
        places = _by_properties(selection, batch, places)
    if dear.xpath is not None:
        path = dear.xpath
        places = _kept(places, [path.test(batch.payload(place)) for place in places.tolist()])
    if dear.function is not None:
        function = dear.function
        places = _kept(places, [function.test(batch[place]) for place in places.tolist()])
    return places


def _kept(places: Places, wanted: list[bool]) -> Places:
    return places[np.array(wanted, np.bool_)]


def _by_properties(selection: "Selection", batch: Batch, places: Places) -> Places:
    dear = selection.compiled
    if dear.tags is not None:
        places = places[is_true(dear.tags, Fields(batch, places))]
    return places if dear.where is None else places[dear.where.mask_of(Fields(batch, places))]


def _timely(selection: "Selection", created_ns: npt.NDArray[np.uint64], now_ns: int) -> npt.NDArray[np.bool_]:
    first, last = bounds(selection, now_ns)
    return (created_ns >= np.uint64(first)) & (created_ns < np.uint64(last))


def bounds(selection: "Selection", now_ns: int) -> tuple[int, int]:
    """Creation times from the first and before the last are wanted."""
    first, last = selection.created or (None, None)
    begin, end = first or 0, 1 << 63 if last is None else last
    if selection.max_age_s is not None:
        begin = max(begin, (now_ns or time.time_ns()) - round(selection.max_age_s * 1e9) + 1)
    return begin, end


def refused_by(selection: "Selection", product: Product, now_ns: int) -> str | None:
    """The name of the first clause that does not want the product; None if it is wanted."""
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
    if selection.ident is not None and not regex.compiled(selection.ident).search(product.ident):
        return "ident"
    if selection.not_ident is not None and regex.compiled(selection.not_ident).search(product.ident):
        return "not_ident"
    return _refused_by_content(selection, product)


def _untimely(selection: "Selection", product: Product) -> str:
    first, last = selection.created or (None, None)
    in_range = (first or 0) <= product.created_ns < (1 << 63 if last is None else last)
    return "max_age_s" if in_range else "created"


def _refused_by_content(selection: "Selection", product: Product) -> str | None:
    dear = selection.compiled
    if dear.tags_of_one is not None and dear.tags_of_one(product) is not True:
        return "tags"
    if dear.where is not None and not dear.where.test(product):
        return "where"
    if dear.xpath is not None and not dear.xpath.test(product.payload):
        return "xpath"
    if dear.function is not None and not dear.function.test(product):
        return "function"
    return None
