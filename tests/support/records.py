"""Records as a hostile peer writes them, that knows the format: altered, with a valid checksum."""

import struct

import xxhash
from blake3 import blake3


def sealed(record: bytes | bytearray) -> bytes:
    """The record with a valid checksum."""
    (first,) = struct.unpack_from("<I", record)
    checksum = (xxhash.xxh3_64_intdigest(bytes(record[8:])) & 0xFFFFFFFF) ^ first
    return bytes(record[:4]) + struct.pack("<I", checksum) + bytes(record[8:])


def with_signature(record: bytes, kind: int, signature: bytes) -> bytes:
    """The record with another signature, which says that it is of this kind."""
    changed = bytearray(record)
    changed[3] = changed[3] & ~0x38 | kind << 3
    changed[16:32] = signature
    return sealed(changed)


def identity(feed: str, ident: str, payload: bytes) -> bytes:
    """The signature that a queue computes by default."""
    head = struct.pack("<4H", len(feed), len(ident), 0, 0)
    return blake3(head + feed.encode() + ident.encode() + payload).digest()[:16]
