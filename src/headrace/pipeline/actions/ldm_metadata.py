"""LDM's metadata: what pqact writes around a product, so that programs made for it work unchanged.

`ldm`, before the product, by the option -metadata:

    length of the metadata, this field included   4 bytes
    signature                                     16 bytes
    size of the data that follow                  4 bytes
    creation time: seconds since 1970             8 bytes
                   microseconds                   4 bytes
    feed type, one bit                            4 bytes
    sequence number at the origin                 4 bytes
    ident: its length, its bytes                  4 bytes + ident
    origin: its length, its bytes                 4 bytes + origin

`ldm-spipe`, around the product, by the action SPIPE:

    0x1DFCCF1A                                    8 bytes
    ident: its length, its bytes                  8 bytes + ident
    data: their length plus 2, the data           8 bytes + data
    ETX, RS                                       2 bytes

`ldm-xpipe`, by the action XPIPE: the product in XDR (RFC 4506), as LDM stores it and sends it over the network:

    creation time: seconds, microseconds          4 bytes, 4 bytes
    signature                                     16 bytes
    origin: its length, its bytes                 4 bytes + origin, padded to a multiple of 4
    feed type, sequence number at the origin      4 bytes, 4 bytes
    ident: its length, its bytes                  4 bytes + ident, padded
    data: their length, the data                  4 bytes + data, padded

XDR is big-endian. In the other two, integers are little-endian: pqact writes them as its machine does, and decoders run
on the same one. The signature is that of the queue: LDM's MD5 if the product came with one, or if the queue has
`dedup = "payload"` and `hash = "md5"`. The feed type is that of the feed in product/ldm_feedtypes.py. A sequence number
beyond 32 bits keeps its lowest ones.
"""

import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.pipeline.rules.rule import METADATA_COLUMNS, Metadata
from headrace.product.ldm_feedtypes import feedtype_of

_FIXED = struct.Struct("<I16sIqiII")
_LENGTH = struct.Struct("<I")
_SPIPE = struct.Struct("<QQ")
_SPIPE_SYNC, _SPIPE_END = 0x1DFCCF1A, b"\x03\x1e"
_XDR_BEGIN, _XDR_TYPE, _XDR_LENGTH = struct.Struct(">II16s"), struct.Struct(">II"), struct.Struct(">I")
_U32_MAX = 0xFFFFFFFF


class Facts(NamedTuple):
    """What metadata is made of, by the columns of rule.METADATA_COLUMNS."""

    signature: bytes | None
    created_us: int | None
    feed: str | None
    sequence: int | None
    ident: str | None
    origin: str | None

    @property
    def time(self) -> tuple[int, int]:
        return divmod(self.created_us or 0, 1_000_000)

    @property
    def names(self) -> tuple[bytes, bytes]:
        """Ident and origin."""
        return (self.ident or "").encode(), (self.origin or "").encode()

    @property
    def numbers(self) -> tuple[int, int]:
        """Feed type and sequence number."""
        return feedtype_of(self.feed or "").bit, (self.sequence or 0) & _U32_MAX


def with_metadata(rows: pa.RecordBatch, data: Iterable[bytes], kind: Metadata, has_data: bool = True) -> Any:
    """A binary column: each row's data with its metadata; without `has_data`, the metadata alone."""
    columns = [
        _in_microseconds(rows.column(name)) if name == "created" else rows.column(name) for name in METADATA_COLUMNS
    ]
    facts = map(Facts._make, zip(*(column.to_pylist() for column in columns), strict=True))
    wrap = _WRAPS[kind]
    return pa.array([wrap(fact, each, has_data) for fact, each in zip(facts, data, strict=True)], pa.binary())


def _in_microseconds(created: Any) -> Any:
    return created.cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def _plain(facts: Facts, data: bytes, has_data: bool) -> bytes:
    length = _FIXED.size + sum(_LENGTH.size + len(name) for name in facts.names)
    size = min(len(data), _U32_MAX)
    fixed = _FIXED.pack(length, facts.signature or b"", size, *facts.time, *facts.numbers)
    return b"".join([fixed, *(_LENGTH.pack(len(name)) + name for name in facts.names), data if has_data else b""])


def _spipe(facts: Facts, data: bytes, has_data: bool) -> bytes:
    ident, _ = facts.names
    length = (len(data) + len(_SPIPE_END)).to_bytes(8, "little")
    return b"".join([_SPIPE.pack(_SPIPE_SYNC, len(ident)), ident, length, data, _SPIPE_END])


def _xpipe(facts: Facts, data: bytes, has_data: bool) -> bytes:
    seconds, microseconds = facts.time
    ident, origin = facts.names
    begin = _XDR_BEGIN.pack(seconds & _U32_MAX, microseconds, facts.signature or b"")
    return b"".join([begin, _xdr(origin), _XDR_TYPE.pack(*facts.numbers), _xdr(ident), _xdr(data)])


def _xdr(data: bytes) -> bytes:
    return _XDR_LENGTH.pack(len(data) & _U32_MAX) + data + b"\0" * (-len(data) % 4)


_WRAPS = {"ldm": _plain, "ldm-spipe": _spipe, "ldm-xpipe": _xpipe}
