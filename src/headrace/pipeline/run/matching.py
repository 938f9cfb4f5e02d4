"""Matching on rows: which of many rules select each row of a batch. Runs in executors.

Only selections that rows can decide are evaluated here (rules/otherwise.py: is_exact).
"""

from collections.abc import Collection, Iterator
from functools import lru_cache, partial

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.product.product import MadeProduct
from headrace.selection import Selection
from headrace.selection.table.table import SubscriptionTable

Selections = tuple[tuple[int, str], ...]  # numbers of rules, and the texts of their selections

_UNINDEXED_MAX = 100_000  # rules are the operator's own, so none is refused
_NOTHING = memoryview(b"")  # no selection here looks at the payload
_COLUMNS = ("feed", "ident", "origin", "priority", "slice")


def selecting(rows: pa.RecordBatch, selections: Selections) -> Iterator[Collection[int]]:
    """The rules that select each row."""
    table = _table(selections)
    for feed, ident, origin, priority, slice_ in zip(
        *(rows.column(name).to_pylist() for name in _COLUMNS), strict=True
    ):
        product = MadeProduct(feed, ident, _NOTHING, 0, b"", origin, 0, None, 0, 0, priority, None, slice_)
        yield table.matches(product)  # type: ignore[misc]  # keys are numbers of rules


@lru_cache(4)  # a worker is used again for the next batch
def _table(selections: Selections) -> SubscriptionTable:
    table = SubscriptionTable(unindexed_max=_UNINDEXED_MAX)
    for number, select in selections:
        table.add(number, Selection.parse(select) if select else Selection())
    return table


def without_selected(products: DataFrame, selections: Selections) -> DataFrame:
    """The products that none of these selections selects."""
    return products.mapInArrow(partial(_left_over, selections), products.schema)


def _left_over(selections: Selections, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        left = [place for place, rules in enumerate(selecting(batch, selections)) if not rules]
        yield batch.take(pa.array(left, pa.int32()))
