"""What the signature of an origin covers: all that the origin said about a product, and its payload as it was put.

Not covered is what others may change on the way: the slice, the hops, whether the payload is compressed, and a
duplicate signature that the origin did not give. docs/format.md has the bytes.
"""

import struct
from dataclasses import dataclass
from typing import Any

from blake3 import blake3

from headrace.errors import OptionError
from headrace.kernel import _kernel as kernel

SIGNED, PROOF = 4, 5  # types of options
_HOPS, _COMPRESSION = 3, 128
_NOT_COVERED = frozenset({_HOPS, SIGNED, PROOF, _COMPRESSION})
_HEADER = struct.Struct("<2sBBIIHBB16sQQIHH")
_FACTS = struct.Struct("<QQQQIBB16sHHBB")
_EXPIRES = 0x40
_NO_SIGNATURE = bytes(16)

Entries = list[tuple[int, bytes]]  # of options


@dataclass(frozen=True, slots=True)
class Parts:
    """A record, taken apart."""

    header: tuple[Any, ...]  # as in the record, without magic and checksum
    texts: bytes  # feed, origin, ident, properties and expiry, as they stand in the record
    options: Entries
    payload: bytes  # as it stands in the record

    @property
    def kind(self) -> int:
        """Of the duplicate signature."""
        return int(self.header[2] >> 3 & 7)


def parts_of(record: bytes) -> Parts:
    """Of a record that is valid."""
    _, version, flags, _, payload_bytes, ident, feed, origin, *rest = _HEADER.unpack_from(record)
    end = _HEADER.size + feed + origin + ident + rest[4] + (8 if flags & _EXPIRES else 0)
    entries: Entries = []
    if version == 2:
        (size,) = struct.unpack_from("<H", record, end)
        place, stop = end + 2, end + 2 + size
        while place < stop:
            kind, value_bytes = record[place], record[place + 1]
            entries.append((kind, record[place + 2 : place + 2 + value_bytes]))
            place += 2 + value_bytes
    header = (version, payload_bytes, flags, ident, feed, origin, *rest)
    return Parts(header, record[_HEADER.size : end], entries, record[len(record) - payload_bytes :])


def leaf_of(parts: Parts, payload: Any, put_ns: int, kind: int) -> bytes:
    """The digest of what is covered: `payload` is as it was put, `kind` that of the signature at the origin."""
    _, _, flags, ident, feed, origin, signature, created, sequence, delta, properties, _ = parts.header
    expires = parts.texts[-8:] if flags & _EXPIRES else bytes(8)
    facts = _FACTS.pack(
        created, sequence, put_ns, int.from_bytes(expires, "little"), delta, flags & 7, kind,
        signature if kind else _NO_SIGNATURE, ident, properties, feed, origin,
    )  # fmt: skip
    options = b"".join(bytes([of, len(value)]) + value for of, value in parts.options if of not in _NOT_COVERED)
    content = blake3(payload).digest()
    return blake3(b"\0" + facts + parts.texts + len(options).to_bytes(2, "little") + options + content).digest()


def with_options(parts: Parts, more: Entries) -> bytes:
    """The record with these options instead of those of the same types; OptionError if they are too long."""
    _, payload_bytes, flags, ident, feed, origin, *rest = parts.header
    types = {kind for kind, _ in more}
    entries = sorted([entry for entry in parts.options if entry[0] not in types] + more)
    block = b"".join(bytes([kind, len(value)]) + value for kind, value in entries)
    if len(block) > kernel.OPTIONS_BYTES_MAX:
        raise OptionError(f"the options take {len(block)} bytes", "leave some out")
    head = _HEADER.pack(b"HR", 2, flags, 0, payload_bytes, ident, feed, origin, *rest)
    start = head + parts.texts + len(block).to_bytes(2, "little") + block
    record = start + bytes(-len(start) % 8) + parts.payload
    checksum = kernel.checksum(memoryview(record)[8:]) & 0xFFFFFFFF ^ int.from_bytes(record[:4], "little")
    return record[:4] + checksum.to_bytes(4, "little") + record[8:]
