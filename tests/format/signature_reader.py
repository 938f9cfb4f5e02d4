"""The slow reader: the signature of an origin, from docs/format.md alone, for products whose payload is as it was put."""

import struct

from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from reader import EXPIRES, RECORD_HEADER, RECORD_HEADER_BYTES, Fields, Layout, check, fields_of

PATH: Layout = {"put_ns": (0, "Q"), "place": (8, "B"), "kind": (9, "B")}
PATH_BYTES = 10
SIGNED_TYPE, PATH_TYPE = 4, 5
LEFT_OUT = {3, SIGNED_TYPE, PATH_TYPE, 128}


def leaf_of(product: Fields, put_ns: int, kind: int) -> bytes:
    header = fields_of(RECORD_HEADER, product["record"])
    texts_end = RECORD_HEADER_BYTES + sum(
        header[name] for name in ("feed_bytes", "origin_bytes", "ident_bytes", "properties_bytes")
    )
    texts_end += 8 if header["flags"] & EXPIRES else 0
    options = b"".join(
        bytes([kind, len(value)]) + value for kind, value in product["options"].items() if kind not in LEFT_OUT
    )
    data = b"\0" + struct.pack(
        "<QQQQIBB", header["created_ns"], header["origin_sequence"], put_ns, product["expiry_ns"] or 0,
        header["previous_delta"], product["priority"], kind,
    )  # fmt: skip
    data += header["signature"] if kind else bytes(16)
    data += struct.pack(
        "<HHBB", header["ident_bytes"], header["properties_bytes"], header["feed_bytes"], header["origin_bytes"]
    )
    data += product["record"][RECORD_HEADER_BYTES:texts_end] + struct.pack("<H", len(options)) + options
    return blake3(data + blake3(product["payload"]).digest()).digest()


def is_signed(product: Fields, public: bytes) -> bool:
    """Whether the product has a signature of this key."""
    signed, path = product["options"][SIGNED_TYPE], product["options"][PATH_TYPE]
    fields, beside = fields_of(PATH, path), path[PATH_BYTES:]
    check(len(beside) % 32 == 0 and len(beside) <= 7 * 32, f"a path of {len(path)} bytes")
    check(fields["place"] < 1 << len(beside) // 32, f"there is no leaf {fields['place']}")
    check(signed[:8] == blake3(public).digest()[:8], "it is of another key")
    digest = leaf_of(product, fields["put_ns"], fields["kind"])
    for level in range(len(beside) // 32):
        other = beside[32 * level : 32 * level + 32]
        pair = other + digest if fields["place"] >> level & 1 else digest + other
        digest = blake3(b"\1" + pair).digest()
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signed[8:], b"headrace products 1\0" + digest)
    except InvalidSignature:
        return False
    return True
