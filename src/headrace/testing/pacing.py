"""Generated products at their pace: batches of the drafts that are due, and one call that puts a batch.

`headrace generate` and `headrace demo` feed queues with it. Not here: the generator, which knows no clock.
"""

import time
from collections.abc import Iterable, Iterator

from headrace.queue import AnyQueue, Receipt
from headrace.testing import Draft

BATCH_PRODUCTS_MAX = 500
BATCH_BYTES_MAX = 4 << 20


def due_batches(drafts: Iterable[Draft], fast: bool, bytes_max: int = BATCH_BYTES_MAX) -> Iterator[list[Draft]]:
    """Batches of drafts, none before its `at_s`; with `fast`, as soon as the caller asks for them.

    A producer that falls behind gets larger batches, and so catches up.
    """
    began_s = time.monotonic()
    batch: list[Draft] = []
    size = 0
    for draft in drafts:
        late_s = 0.0 if fast else time.monotonic() - began_s - draft.at_s
        if batch and (late_s < 0 or len(batch) >= BATCH_PRODUCTS_MAX or size + len(draft.payload) > bytes_max):
            yield batch
            batch, size = [], 0
            late_s = 0.0 if fast else time.monotonic() - began_s - draft.at_s
        if late_s < 0:
            time.sleep(-late_s)
        batch.append(draft)
        size += len(draft.payload)
    if batch:
        yield batch


def put_drafts(queue: AnyQueue, batch: list[Draft], timeout: float | None = None) -> Receipt:
    """Put one batch, created now. BlockedError if a blocking station stays full for `timeout`."""
    return queue.put_many(
        [draft.payload for draft in batch],
        feed=[draft.feed for draft in batch],
        ident=[draft.ident for draft in batch],
        priority=[draft.priority for draft in batch],
        timeout=timeout,
    )
