"""LDM's metadata: what pqact writes before a product with its option -metadata.

    length of the metadata, this field included   4 bytes
    signature                                     16 bytes
    size of the data that follow                  4 bytes
    creation time: seconds since 1970             8 bytes
                   microseconds                   4 bytes
    feed type, one bit                            4 bytes
    sequence number at the origin                 4 bytes
    ident: its length, its bytes                  4 bytes + ident
    origin: its length, its bytes                 4 bytes + origin

Integers are little-endian: pqact writes them as its machine does, and decoders run on the same one. The signature is
that of the queue: LDM's MD5 if the product came with one, or if the queue has `dedup = "payload"` and `hash = "md5"`.
The feed type is that of the feed in product/ldm_feedtypes.py. A sequence number beyond 32 bits keeps its lowest ones.
"""

import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from headrace.pipeline.rules.rule import METADATA_COLUMNS
from headrace.product.ldm_feedtypes import feedtype_of

_FIXED = struct.Struct("<I16sIqiII")
_LENGTH = struct.Struct("<I")
_SIZE_MAX = 0xFFFFFFFF


def with_metadata(rows: pa.RecordBatch, data: Iterable[bytes], has_data: bool) -> Any:
    """A binary column: the metadata of each row, followed by its data if `has_data`."""
    columns = [
        _in_microseconds(rows.column(name)) if name == "created" else rows.column(name) for name in METADATA_COLUMNS
    ]
    facts = zip(*(column.to_pylist() for column in columns), data, strict=True)
    return pa.array([_metadata(*fact) + (fact[-1] if has_data else b"") for fact in facts], pa.binary())


def _in_microseconds(created: Any) -> Any:
    return created.cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def _metadata(
    signature: bytes | None, created_us: int | None, feed: str | None, sequence: int | None, ident: str | None,
    origin: str | None, data: bytes,
) -> bytes:  # fmt: skip
    seconds, microseconds = divmod(created_us or 0, 1_000_000)
    names = [(text or "").encode() for text in (ident, origin)]
    length = _FIXED.size + sum(_LENGTH.size + len(name) for name in names)
    fixed = _FIXED.pack(
        length, signature or b"", min(len(data), _SIZE_MAX), seconds, microseconds, feedtype_of(feed or "").bit,
        (sequence or 0) & _SIZE_MAX,
    )  # fmt: skip
    return b"".join([fixed, *(_LENGTH.pack(len(name)) + name for name in names)])
