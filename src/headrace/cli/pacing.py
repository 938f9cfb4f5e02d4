"""Drafts at the pace of their arrival, in batches of those that are due."""

import time
from collections.abc import Iterable, Iterator

from headrace.queue import AnyQueue, Receipt
from headrace.testing import Draft

BATCH_PRODUCTS_MAX = 500
BATCH_BYTES_MAX = 4 << 20


def due_batches(drafts: Iterable[Draft], fast: bool, bytes_max: int = BATCH_BYTES_MAX) -> Iterator[list[Draft]]:
    """Batches of drafts, none before its `at_s`; as fast as they are taken if `fast`.

    A producer that falls behind gets larger batches and so catches up.
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
    """One batch into the queue, created now; BlockedError: a station has kept it out for longer than `timeout`."""
    return queue.put_many(
        [draft.payload for draft in batch],
        feed=[draft.feed for draft in batch],
        ident=[draft.ident for draft in batch],
        priority=[draft.priority for draft in batch],
        timeout=timeout,
    )
