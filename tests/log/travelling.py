"""Helpers for tests of records: make products, compare them, and forge records."""

import struct
from typing import Any

import numpy as np
import xxhash

from headrace import Batch, Product, Queue
from headrace.kernel import _kernel as kernel
from headrace.product.batch import rows_behind

FAR = 1 << 62
HEADER = struct.Struct("<2sBBIIHBB16sQQIHH")
FIELDS = (
    "magic", "version", "flags", "checksum", "payload_bytes", "ident_bytes", "feed_bytes", "origin_bytes", "signature",
    "created_ns", "origin_sequence", "previous_delta", "properties_bytes", "slice",
)  # fmt: skip


def page(batch: Batch, places: Any = None) -> bytes:
    """The records of a batch as they travel."""
    rows = rows_behind(batch)
    assert isinstance(rows, kernel.Rows)
    return rows.gather_records(None if places is None else np.array(places, np.uint32))


def facts(product: Product, *left_out: str) -> tuple[Any, ...]:
    """Every field of a product except its place in one queue."""
    names = [name for name in Product.__slots__ if name not in ("sequence", "inserted_ns", *left_out)]
    said = {name: getattr(product, name) for name in names}
    return tuple((said | {"payload": bytes(product.payload), "properties": dict(product.properties)}).values())


def put_some(queue: Queue, count: int = 6) -> Batch:
    """Products of several feeds, of the queue's own and another origin, with and without optional facts."""
    for n in range(count):
        extras: dict[str, Any] = {"properties": {"n": n, "size": 0.5, "text": "ü", "yes": True}} if n % 2 else {}
        if n % 3 == 0:
            extras |= {"origin": "elsewhere", "origin_sequence": n + 100, "previous": n + 40, "slice": n, "expiry": FAR}
        queue.put(b"payload %d" % n * n, feed=f"wx/{n % 2}", ident=f"ident {n} ü", priority=n % 8, **extras)
    return queue.read_batch()


def sealed(record: bytes | bytearray) -> bytes:
    """The record with a valid checksum."""
    (first,) = struct.unpack_from("<I", record)
    checksum = (xxhash.xxh3_64_intdigest(bytes(record[8:])) & 0xFFFFFFFF) ^ first
    return bytes(record[:4]) + struct.pack("<I", checksum) + bytes(record[8:])


def forged(
    feed: bytes = b"wx", origin: bytes = b"there", ident: bytes = b"", properties: bytes = b"", expiry: bytes = b"",
    payload: bytes = b"payload", pad: bytes = b"", behind: bytes = b"", **header: Any,
) -> bytes:  # fmt: skip
    """A record as a hostile peer that knows the format writes it: with a valid checksum, and padded."""
    fields = {
        "magic": b"HR", "version": 1, "flags": 4 | (64 if expiry else 0), "checksum": 0, "payload_bytes": len(payload),
        "ident_bytes": len(ident), "feed_bytes": len(feed), "origin_bytes": len(origin), "signature": bytes(16),
        "created_ns": 1, "origin_sequence": 1, "previous_delta": 0, "properties_bytes": len(properties), "slice": 65535,
    }  # fmt: skip
    start = HEADER.pack(*((fields | header)[name] for name in FIELDS)) + feed + origin + ident + properties + expiry
    record = sealed(start + (pad or bytes(-len(start) % 8)) + payload)
    return record + (behind or bytes(-len(record) % 8))
