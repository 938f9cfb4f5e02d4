"""Helpers for tests of selections: products without a queue, and batches from a queue."""

from collections.abc import Sequence
from typing import Any

from headrace import Batch, Product, Queue
from headrace.product.product import MadeProduct
from headrace.product.properties import NO_PROPERTIES

NOW_NS = 1_800_000_000 * 10**9


def product(
    feed: str = "wx/text", ident: str = "SAUS70 KWBC", payload: bytes = b"payload", *, created_ns: int = NOW_NS,
    priority: int = 4, slice: int | None = None, origin: str = "here", expiry_ns: int | None = None, **properties: Any,
) -> Product:  # fmt: skip
    return MadeProduct(
        feed=feed, ident=ident, payload=memoryview(payload), sequence=7, signature=b"", origin=origin,
        origin_sequence=3, previous=None, created_ns=created_ns, inserted_ns=created_ns + 5, priority=priority,
        expiry_ns=expiry_ns, slice=slice, properties=properties or NO_PROPERTIES,
    )  # fmt: skip


def batch_of(queue: Queue, rows: Sequence[dict[str, Any]]) -> Batch:
    """A batch of products with these properties."""
    start = queue.next
    queue.put_many([b"%d" % (start + n) for n in range(len(rows))], feed="a", properties=list(rows))
    return queue.read_batch(start)
