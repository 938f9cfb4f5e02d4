"""One queue, read twice: by Headrace, and by the slow reader from its files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import reader

from headrace import Batch, Product, Queue
from headrace.product.options import encode_options


def typed(properties: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Properties so that True differs from 1, and one NaN equals another."""
    return {name: (type(value).__name__, repr(value)) for name, value in properties.items()}


def fast(product: Product) -> dict[str, Any]:
    """Every field of a product, read by Headrace."""
    return {
        "sequence": product.sequence,
        "feed": product.feed,
        "ident": product.ident,
        "payload": bytes(product.payload),
        "signature": product.signature,
        "origin": product.origin,
        "origin_sequence": product.origin_sequence,
        "previous": product.previous,
        "created_ns": product.created_ns,
        "inserted_ns": product.inserted_ns,
        "priority": product.priority,
        "expiry_ns": product.expiry_ns,
        "slice": product.slice,
        "properties": typed(product.properties),
        "options": encode_options(product.options),
    }


def slow(product: reader.Fields) -> dict[str, Any]:
    """The same fields from the slow reader; without a kind there is no signature."""
    said = {word: product[word] for word in fast_words if word in product}
    said["properties"] = typed(product["properties"])
    said["options"] = b"".join(bytes([kind, len(value)]) + value for kind, value in product["options"].items())
    said["signature"] = product["signature"] if product["signature_kind"] else b""
    return said


fast_words = (
    "sequence", "feed", "ident", "payload", "origin", "origin_sequence", "previous", "created_ns", "inserted_ns",
    "priority", "expiry_ns", "slice",
)  # fmt: skip


def read_all(queue: Queue) -> list[Batch]:
    """Every batch from the oldest product on."""
    batches, position = [], queue.oldest
    while position < queue.next:
        batches.append(queue.read_batch(position))
        position = batches[-1].next
    return batches


def assert_same(queue: Queue, now_ns: int = 0) -> list[reader.Fields]:
    """Both readers see the same products and records; return those of the slow reader, hidden and expired included."""
    everything = reader.read_queue(Path(queue.path))
    meant = [p for p in everything if not p["hidden"] and not (p["expiry_ns"] and p["expiry_ns"] <= now_ns)]
    batches = read_all(queue)
    assert [fast(product) for batch in batches for product in batch] == [slow(product) for product in meant]
    records = [batch.record(place) for batch in batches for place in range(len(batch))]
    assert records == [product["record"] for product in meant]
    assert queue.check() == []
    return everything
