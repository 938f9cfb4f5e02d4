"""NEXRAD Level III: the message header and the product description block.

    SDUS55 KFTG 301419         WMO heading and product line, optional
    N0QFTG
    message header             18 bytes: code, day, seconds, length, source, destination, blocks
    description block          102 bytes: place, product, coverage pattern, times, elevation, thresholds

One row for each product. The symbology block is not read. A message that is compressed as a whole (zlib frames, as on
NOAAPort) is decompressed only as far as its headers need.

Layout: ICD 2620001, figures 3-3 and 3-6.
"""

import struct
import zlib
from typing import Any

import pyarrow as pa

from headrace.pipeline.decoders.day_of_month import US_PER_DAY
from headrace.pipeline.decoders.decoder import TIME, Decoded, Decoder, Errors, make_decoder, payload_buffers, rows_of
from headrace.pipeline.decoders.wmo import find_heading

SCHEMA = pa.schema(
    {
        "code": pa.int32(),
        "awips": pa.string(),
        "center": pa.string(),
        "time": TIME,
        "length": pa.int64(),
        "source": pa.int32(),
        "latitude": pa.float64(),
        "longitude": pa.float64(),
        "height_m": pa.float64(),
        "mode": pa.int32(),
        "vcp": pa.int32(),
        "sequence": pa.int32(),
        "volume": pa.int32(),
        "volume_time": TIME,
        "generated": TIME,
        "elevation_number": pa.int32(),
        "elevation": pa.float64(),
        "thresholds": pa.list_(pa.int32()),
        "version": pa.int32(),
    }
)
UNPACKED_BYTES_MAX = 4096

_HEADER = struct.Struct(">hhiihhh")
_DESCRIPTION = struct.Struct(">hiihhhhhhhihihhhh16h7hBBiii")
_DIVIDER = -1
_M_PER_FOOT = 0.3048
_HEAD_BYTES = 300
_SECONDS_PER_DAY = 86_400
_BY_ELEVATION = frozenset((*range(16, 31), 55, 56, 93, 94, 99, 132, 133, *range(153, 169), *range(180, 188), 195))


def decode(products: pa.RecordBatch) -> Decoded:
    rows, errors = list[tuple[Any, ...]](), Errors()
    for place, payload in payload_buffers(products):
        row = _row(payload)
        if row is None:
            errors.append((place, "no message header and product description block of Level III"))
        else:
            rows.append((place, *row))
    return Decoded(rows_of(SCHEMA, rows), errors)


def _row(payload: memoryview) -> tuple[Any, ...] | None:
    awips, center, start = _heading(bytes(payload[:_HEAD_BYTES]))
    head = bytes(payload[start : start + _HEADER.size + _DESCRIPTION.size])
    if head[:1] == b"\x78":
        unpacked = _unpack(payload[start:])
        inner_awips, inner_center, start = _heading(unpacked[:_HEAD_BYTES])
        awips, center, head = inner_awips or awips, inner_center or center, unpacked[start:]
    if len(head) < _HEADER.size + _DESCRIPTION.size:
        return None
    header, block = _HEADER.unpack_from(head), _DESCRIPTION.unpack_from(head, _HEADER.size)
    if block[0] != _DIVIDER or header[0] < 0 or header[0] != block[4]:
        return None
    return _columns(header, block, awips, center)


def _columns(header: tuple[int, ...], block: tuple[int, ...], awips: str | None, center: str | None) -> tuple[Any, ...]:
    code, day, second, length, source, _, _ = header
    _, latitude, longitude, height_ft, _, mode, vcp, sequence, volume, *times = block[:13]
    volume_day, volume_second, made_day, made_second = times
    elevation_number, angle = block[15], block[16]
    return (
        code, awips, center, _moment_us(day, second), length, source, latitude / 1000, longitude / 1000,
        height_ft * _M_PER_FOOT, mode, vcp, sequence, volume, _moment_us(volume_day, volume_second),
        _moment_us(made_day, made_second), elevation_number, angle / 10 if code in _BY_ELEVATION else None,
        block[17:33], block[40],
    )  # fmt: skip


def _heading(text: bytes) -> tuple[str | None, str | None, int]:
    """AWIPS identifier, centre, and the offset of the message."""
    heading = find_heading(text.decode("latin-1"))
    if heading is None:
        return None, None, 0
    end = heading.end
    while text[end : end + 1] in (b"\r", b" "):
        end += 1
    return heading.awips, heading.center, end + (text[end : end + 1] == b"\n")


def _unpack(packed: memoryview) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, UNPACKED_BYTES_MAX)
    except zlib.error:
        return b""


def _moment_us(day: int, second: int) -> int | None:
    """Days count from 1970-01-01 as 1."""
    day &= 0xFFFF
    return (day - 1) * US_PER_DAY + second * 1_000_000 if day and 0 <= second < _SECONDS_PER_DAY else None


DECODER: Decoder = make_decoder("nexrad3", SCHEMA, decode)
