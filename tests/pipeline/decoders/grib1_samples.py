"""GRIB edition 1, written byte by byte from the code tables of FM 92-IX: an encoder that knows nothing of ecCodes."""

import math
import struct
from collections.abc import Sequence


def three(value: int) -> bytes:
    return value.to_bytes(3, "big")


def signed(value: int, size: int) -> bytes:
    """Sign and magnitude."""
    return (abs(value) | (1 << 8 * size - 1 if value < 0 else 0)).to_bytes(size, "big")


def ibm_float(value: float) -> bytes:
    """A float of 4 bytes: sign, exponent of 16 with an offset of 64, fraction of 24 bits."""
    if value == 0:
        return bytes(4)
    exponent = math.floor(math.log(abs(value), 16)) + 1
    fraction = round(abs(value) / 16.0**exponent * (1 << 24))
    if fraction == 1 << 24:
        fraction, exponent = fraction >> 4, exponent + 1
    return bytes([(128 if value < 0 else 0) | exponent + 64]) + three(fraction)


def field(
    values: Sequence[float | None],
    columns: int,
    *,
    table: int = 2,
    parameter: int = 11,
    level_type: int = 100,
    level: int = 500,
    forecast_h: int = 18,
    center: int = 7,
) -> bytes:
    """A field on a latitude-longitude grid from 60 N 5 E to 50 N 15 E, 16 bits for each value that is not None."""
    rows = len(values) // columns
    masked = any(value is None for value in values)
    flags = 0x80 | (0x40 if masked else 0)
    moment = (20, 1, 6, 12, 0)  # year of the century, month, day, hour, minute
    product = struct.pack(">BBBBBBBH5BBBBBHBBB", table, center, 96, 255, flags, parameter, level_type, level, *moment,
                          1, forecast_h, 0, 0, 0, 0, 21, 0)  # fmt: skip
    product = three(3 + len(product) + 2) + product + signed(0, 2)
    corners = (60_000, 5_000), (50_000, 15_000)
    grid = struct.pack(">BBBHH", 0, 255, 0, columns, rows) + signed(corners[0][0], 3) + signed(corners[0][1], 3)
    grid += b"\x80" + signed(corners[1][0], 3) + signed(corners[1][1], 3)
    grid += struct.pack(">HHB4x", 10_000 // max(columns - 1, 1), 10_000 // max(rows - 1, 1), 0)
    grid = three(3 + len(grid)) + grid
    body = product + grid + (_bit_map(values) if masked else b"")
    body += _data([value for value in values if value is not None]) + b"7777"
    return b"GRIB" + three(8 + len(body)) + b"\x01" + body


def _bit_map(values: Sequence[float | None]) -> bytes:
    spare = -len(values) % 16
    bits = "".join("0" if value is None else "1" for value in values) + "0" * spare
    packed = int(bits, 2).to_bytes(len(bits) // 8, "big")
    return three(6 + len(packed)) + bytes([spare]) + bytes(2) + packed


def _data(values: Sequence[float]) -> bytes:
    """Simple packing: reference value, and steps of a power of two above it."""
    low = min(values, default=0.0)
    reference = ibm_float(low)
    start = _value(reference)
    span = max(max(values, default=0.0) - start, 1e-6)
    scale = math.ceil(math.log2(span / 65_535))
    steps = [max(round((value - start) / 2.0**scale), 0) for value in values]
    packed = struct.pack(f">{len(steps)}H", *steps)
    spare = (11 + len(packed)) % 2
    return (
        three(11 + len(packed) + spare)
        + bytes([8 * spare])
        + signed(scale, 2)
        + reference
        + b"\x10"
        + packed
        + bytes(spare)
    )


def _value(raw: bytes) -> float:
    sign = -1 if raw[0] & 128 else 1
    return float(sign * int.from_bytes(raw[1:], "big") / (1 << 24) * 16.0 ** ((raw[0] & 127) - 64))
