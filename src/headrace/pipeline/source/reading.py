"""Reading: one span of a queue as Arrow batches, exactly.

What eviction took, and what is damaged, is data loss: an error that names the range, or a warning if the user said so.
Products that were deleted or have expired are not lost; they are not there.
"""

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.errors import DataLossError, ProductDamagedError
from headrace.log.weights import NO
from headrace.pipeline.source.columns import arrow_of
from headrace.pipeline.source.span import Span
from headrace.product.batch import NO_SLICE, Batch
from headrace.queue import Queue
from headrace.selection import Selection

_PRODUCTS = 16_384  # in one Arrow batch
_BYTES = 16 << 20

log = logging.getLogger("headrace.pipeline")


def read_span(
    queue: Queue, span: Span, selection: Selection, columns: Sequence[str], *, fail: bool
) -> Iterator[pa.RecordBatch]:
    """All products of the span that the selection wants, in order."""
    position = span.first
    while position < span.end:
        try:
            batch = queue.read(position, selection, limit=_PRODUCTS, bytes_limit=_BYTES, stop=span.end)
        except ProductDamagedError as error:
            tell_loss(queue, error.sequence, error.next - 1, "damaged", fail=fail)
            position = error.next
            continue
        if batch.lost and batch.lost.first < span.end:
            tell_loss(queue, batch.lost.first, min(batch.lost.last, span.end - 1), "evicted", fail=fail)
        position = max(batch.next, position + 1)
        if len(batch):
            arrow = arrow_of(batch, columns)
            yield arrow if span.slices is None else arrow.filter(pa.array(_of_slices(batch, span.slices)))


def _of_slices(batch: Batch, slices: tuple[int, ...]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    numbers = batch.columns["slice"].astype(np.int64)
    return np.isin(np.where(numbers == NO_SLICE, NO, numbers), slices)


def tell_loss(queue: Queue, first: int, last: int, why: str, *, fail: bool) -> None:
    """An error, or a word in the log."""
    told = f"products {first}-{last} of {queue.path} are gone ({why})"
    if fail:
        raise DataLossError(told, 'to go on without them: on_loss = "count", or option("failOnDataLoss", "false")')
    log.warning("%s; they are left out", told)
