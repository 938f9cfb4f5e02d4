"""The slice of a product, computed slowly from docs/channels.md alone, with another implementation of XXH3."""

import math
import struct
from typing import Any

import xxhash


def hashed(data: bytes, slices: int) -> int:
    return xxhash.xxh3_64_intdigest(data) * slices // 2**64


def value_bytes(value: Any) -> bytes:
    if isinstance(value, bool):
        return bytes([value])
    if isinstance(value, int):
        return struct.pack("<q", value)
    return struct.pack("<d", value) if isinstance(value, float) else value.encode()


def cell(latitude: Any, longitude: Any, rows: int, columns: int) -> int | None:
    for coordinate in (latitude, longitude):
        if isinstance(coordinate, bool) or not isinstance(coordinate, int | float):
            return None
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 360):
        return None
    x = longitude + 180
    x = x - 360 if x >= 360 else x
    row = min(math.floor((latitude + 90) * rows / 180), rows - 1)
    return row * columns + min(math.floor(x * columns / 360), columns - 1)


def slice_of(assign: str, slices: int, ident: str, properties: dict[str, Any]) -> int | None:
    """The slice by a function that depends on the product alone; None if it lacks what the function needs."""
    how, _, rest = assign.partition(":")
    if how == "ident":
        return hashed(ident.encode(), slices) if ident else None
    if how == "property":
        return hashed(value_bytes(properties[rest]), slices) if rest in properties else None
    if how == "modulo":
        value = properties.get(rest)
        return value % slices if isinstance(value, int) and not isinstance(value, bool) else None
    assert how == "grid"
    latitude, longitude, size = rest.split(",")
    rows, columns = map(int, size.split("x"))
    found = cell(properties.get(latitude), properties.get(longitude), rows, columns)
    return None if found is None else found % slices
