"""Products: batches of a queue as they go to remote users."""

from headrace.kernel import _kernel as kernel
from headrace.log.records import rows_of
from headrace.product.batch import Batch
from headrace.remote.protocol.answers import Products


def products_of(batch: Batch, head: int, count: int | None = None) -> tuple[Products, bytes]:
    """The answer with a batch, or its first `count` products, and their records."""
    rows = rows_of(batch)
    places, records = kernel.gather_placed(rows, len(rows) if count is None else count)
    lost = batch.lost
    first, last = (lost.first, lost.last) if lost is not None else (0, 0)
    return Products(batch.next, head, rows.bytes, places, first, last, rows.passed_over), records
