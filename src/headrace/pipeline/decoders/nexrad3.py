"""NEXRAD Level III: the message header and the product description block.

    SDUS55 KFTG 301419         WMO heading and product line, optional
    N0QFTG
    message header             18 bytes: code, day, seconds, length, source, destination, blocks
    description block          102 bytes: place, product, coverage pattern, times, elevation, thresholds

One row for each product. The symbology block is not read.

On NOAAPort, a message is compressed as a whole, in zlib frames of some kilobytes. The first frame begins with a control
block (CCB) of 24 bytes, mostly, and then the heading again:

    SDUS55 KFTG 301419         heading
    N0QFTG
    zlib frame                 control block, heading, product line, message header, description block …
    zlib frame                 …

A general status message (code 2) has no description block, and only the columns that it knows. A truncated message is
named in `problem`.

Layout: ICD 2620001, figures 3-3, 3-6 and 3-17.
"""

import re
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
        "problem": pa.string(),
    }
)
UNPACKED_BYTES_MAX = 1 << 20
FRAMES_MAX = 300

_HEADER = struct.Struct(">hhiihhh")
_DESCRIPTION = struct.Struct(">hiihhhhhhhihihhhh16h7hBBiii")
_STATUS = struct.Struct(">hHhhh")  # of code 2: divider, length, mode, state of the radar, coverage pattern
_STATUS_CODE = 2
_STARTS = re.compile(rb"(?:SD|NO|NX)US[0-9]{2} [A-Z0-9]{4} [0-9]{6}")
_HEADING_WITHIN = 128  # bytes, of which a control block may be the first
_DIVIDER = -1
_M_PER_FOOT = 0.3048
_HEAD_BYTES = 300
_SECONDS_PER_DAY = 86_400
_BY_ELEVATION = frozenset((*range(16, 31), 55, 56, 93, 94, 99, 113, 132, 133, *range(153, 169), *range(180, 188), 195))


def decode(products: pa.RecordBatch) -> Decoded:
    rows, errors = list[tuple[Any, ...]](), Errors()
    for place, payload in payload_buffers(products):
        row = _row(payload)
        if isinstance(row, str):
            errors.append((place, row))
        else:
            rows.append((place, *row))
    return Decoded(rows_of(SCHEMA, rows), errors)


def _row(payload: memoryview) -> tuple[Any, ...] | str:
    """The columns, or the reason why the product is invalid."""
    head = bytes(payload[:_HEAD_BYTES])
    awips, center, start = _heading(head)
    message = payload[start:]
    if _is_zlib(message):
        unpacked = _unpack(message)
        inner_awips, inner_center, start = _heading(unpacked[:_HEAD_BYTES])
        awips, center, message = inner_awips or awips, inner_center or center, memoryview(unpacked)[start:]
        if not unpacked:
            return "the zlib frames of the message do not decompress"
    if len(message) < _HEADER.size:
        return _reason(head, message)
    header = _HEADER.unpack_from(message)
    columns = _status(message) if header[0] == _STATUS_CODE else _described(header[0], message)
    if columns is None:
        return _reason(head, message)
    code, day, second, length, source, _, _ = header
    time_us, problem = _moment_us(day, second), _truncated(message, length)
    return (code, awips, center, time_us, length, source, *columns, problem)


def _reason(head: bytes, message: memoryview) -> str:
    if head.lstrip(b"\x01\r\n 0123456789").startswith(b"NOUS"):
        return 'a text message, not a radar product of Level III; use decode = "wmo"'
    if len(message) < _HEADER.size + _DESCRIPTION.size:
        return f"truncated to {len(message)} bytes, less than the headers of Level III"
    return "no message header and product description block of Level III"


def _truncated(message: memoryview, length: int) -> str | None:
    if len(message) >= min(length, UNPACKED_BYTES_MAX - _HEAD_BYTES):
        return None
    return f"truncated to {len(message):,} of {length:,} bytes"


def _status(message: memoryview) -> tuple[Any, ...] | None:
    """Columns of a general status message: its mode and coverage pattern."""
    if len(message) < _HEADER.size + _STATUS.size:
        return None
    divider, _, mode, _, vcp = _STATUS.unpack_from(message, _HEADER.size)
    return (None, None, None, mode, vcp, *[None] * 8) if divider == _DIVIDER else None


def _described(code: int, message: memoryview) -> tuple[Any, ...] | None:
    """Columns of the description block."""
    if len(message) < _HEADER.size + _DESCRIPTION.size:
        return None
    block = _DESCRIPTION.unpack_from(message, _HEADER.size)
    divider, latitude, longitude, height_ft, product, mode, vcp, sequence, volume, *times = block[:13]
    if divider != _DIVIDER or code < 0 or code != product:
        return None
    volume_day, volume_second, made_day, made_second = times
    elevation_number, angle = block[15], block[16]
    return (
        latitude / 1000, longitude / 1000, height_ft * _M_PER_FOOT, mode, vcp, sequence, volume,
        _moment_us(volume_day, volume_second), _moment_us(made_day, made_second), elevation_number,
        angle / 10 if code in _BY_ELEVATION else None, block[17:33], block[40],
    )  # fmt: skip


def _heading(data: bytes) -> tuple[str | None, str | None, int]:
    """AWIPS identifier, centre, and the offset of the message; a control block before the heading is skipped."""
    starts = _STARTS.search(data, 0, _HEADING_WITHIN)
    skipped = starts.start() if starts else 0
    heading = find_heading(data[skipped:].decode("latin-1"))
    if heading is None:
        return None, None, 0
    end = skipped + heading.end
    while data[end : end + 1] in (b"\r", b" "):
        end += 1
    return heading.awips, heading.center, end + (data[end : end + 1] == b"\n")


def _is_zlib(data: memoryview) -> bool:
    start = bytes(data[:2])
    return start[:1] == b"\x78" and int.from_bytes(start, "big") % 31 == 0


def _unpack(packed: memoryview) -> bytes:
    """The content of all frames, and of what follows them; empty if the first frame is damaged."""
    unpacked, rest = bytearray(), bytes(packed[:UNPACKED_BYTES_MAX])
    for _ in range(FRAMES_MAX):
        frame = zlib.decompressobj()
        try:
            unpacked += frame.decompress(rest, UNPACKED_BYTES_MAX - len(unpacked))
        except zlib.error:
            return bytes(unpacked + rest) if unpacked else b""
        rest = frame.unused_data
        if not rest or len(unpacked) >= UNPACKED_BYTES_MAX:
            break
    return bytes(unpacked)


def _moment_us(day: int, second: int) -> int | None:
    """Days count from 1970-01-01 as 1."""
    day &= 0xFFFF
    return (day - 1) * US_PER_DAY + second * 1_000_000 if day and 0 <= second < _SECONDS_PER_DAY else None


DECODER: Decoder = make_decoder("nexrad3", SCHEMA, decode)
