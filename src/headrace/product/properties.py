"""Properties: a few named values that a product carries beside its payload.

The block in a record is a row of entries, each

    kind u8 | name length u8 | value length u16 | name (UTF-8) | value

with kind 1 int (i64), 2 float (f64), 3 str (UTF-8), 4 bool (u8). Names are unique and sorted, so that equal properties
have equal blocks. Limits: names 1-255 bytes, the block 65535 bytes.
"""

import struct
from collections.abc import Mapping
from types import MappingProxyType

from headrace.errors import PropertyError

PropertyValue = int | float | str | bool

BLOCK_BYTES_MAX = 65535
NAME_BYTES_MAX = 255
NO_PROPERTIES: Mapping[str, PropertyValue] = MappingProxyType({})
_INT, _FLOAT, _STR, _BOOL = 1, 2, 3, 4
_ENTRY = struct.Struct("<BBH")
_MAPPINGS = (dict, MappingProxyType, Mapping)  # an abstract class is slow to check: last


def encode_properties(properties: Mapping[str, PropertyValue]) -> bytes:
    """The block for a mapping; PropertyError names the invalid property."""
    if not isinstance(properties, _MAPPINGS):
        raise PropertyError(f"properties {properties!r} are not a mapping", "give a dict of name to value")
    parts = []
    for name in sorted(properties, key=str):
        encoded_name = _encode_name(name)
        kind, value = _encode_value(name, properties[name])
        parts.append(_ENTRY.pack(kind, len(encoded_name), len(value)) + encoded_name + value)
    block = b"".join(parts)
    if len(block) > BLOCK_BYTES_MAX:
        raise PropertyError(
            f"the properties take {len(block)} bytes, more than {BLOCK_BYTES_MAX}",
            "move the bulk into the payload",
        )
    return block


def _encode_name(name: object) -> bytes:
    if isinstance(name, str) and 1 <= len(encoded := _utf8(name, name)) <= NAME_BYTES_MAX:
        return encoded
    raise PropertyError(f"property name {name!r} is invalid", f"use text of 1 to {NAME_BYTES_MAX} bytes")


def _encode_value(name: str, value: object) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return _BOOL, bytes([value])
    if isinstance(value, int):
        try:
            return _INT, struct.pack("<q", value)
        except struct.error:
            raise PropertyError(f"property {name!r} = {value} needs more than 64 bits", "store it as text") from None
    if isinstance(value, float):
        return _FLOAT, struct.pack("<d", value)
    if isinstance(value, str):
        encoded = _utf8(name, value)
        if len(encoded) <= BLOCK_BYTES_MAX:
            return _STR, encoded
        raise PropertyError(f"property {name!r} has {len(encoded)} bytes", "move the bulk into the payload")
    raise PropertyError(
        f"property {name!r} is a {type(value).__name__}",
        "a property is an int, a float, a str or a bool",
    )


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise PropertyError(f"property {name!r} is not UTF-8", "remove lone surrogates") from None


def check_block(block: bytes) -> bytes:
    """Return a block that came from elsewhere if it is one that `encode_properties` could have made."""
    names = list(decode_properties(block))
    if names != sorted(names) or "" in names:
        raise PropertyError(
            "the names in the property block are empty or out of order", "sort them, as docs/format.md says"
        )
    return block


def decode_properties(block: bytes) -> Mapping[str, PropertyValue]:
    """The mapping in a block; PropertyError if it is not one."""
    if not block:
        return NO_PROPERTIES
    properties: dict[str, PropertyValue] = {}
    place = 0
    try:
        while place < len(block):
            kind, name_bytes, value_bytes = _ENTRY.unpack_from(block, place)
            place += _ENTRY.size
            name = block[place : place + name_bytes].decode()
            place += name_bytes
            if name in properties:
                raise KeyError(name)
            properties[name] = _decode_value(kind, block[place : place + value_bytes])
            place += value_bytes
    except (struct.error, UnicodeDecodeError, KeyError) as error:
        raise PropertyError(f"the property block is malformed at byte {place}", "drop the product") from error
    if place != len(block):
        raise PropertyError("the property block is cut short", "drop the product")
    return MappingProxyType(properties)


def _decode_value(kind: int, value: bytes) -> PropertyValue:
    if kind == _INT:
        number: int = struct.unpack("<q", value)[0]
        return number
    if kind == _FLOAT:
        real: float = struct.unpack("<d", value)[0]
        return real
    if kind == _BOOL and len(value) == 1:
        return value != b"\0"
    if kind == _STR:
        return value.decode()
    raise KeyError(kind)
