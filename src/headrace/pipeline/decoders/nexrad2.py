"""NEXRAD Level II: the headers of a volume, or of a chunk of one.

    AR2V0006.  312  day, ms of the day  KFTG      volume header, 24 bytes, in the first chunk only
    length     bzip2 stream of messages           a record; length is negative in the last one

One row for each product. Values that the volume header lacks (later chunks have none) come from the ident, if it has
the form `L2-BZIP2/KFTG/20150430141912/312/17/I/V06/0`. The first record is decompressed up to 1 MiB, to find the
coverage pattern (VCP) and the first radial; if that fails, these are null. Radar moments are not read.

Layouts: ICD 2620010 (volume) and 2620002 (messages 1, 2, 5 and 31).
"""

import bz2
import re
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.pipeline.decoders.day_of_month import US_PER_DAY
from headrace.pipeline.decoders.decoder import (
    TIME,
    Decoded,
    Decoder,
    Errors,
    idents,
    make_decoder,
    payload_buffers,
    rows_of,
)

SCHEMA = pa.schema(
    {
        "station": pa.string(),
        "version": pa.string(),
        "volume": pa.int32(),
        "time": TIME,
        "chunk": pa.int32(),
        "chunk_type": pa.string(),
        "records": pa.int32(),
        "vcp": pa.int32(),
        "latitude": pa.float64(),
        "longitude": pa.float64(),
        "radial_time": TIME,
        "elevation_number": pa.int32(),
        "elevation": pa.float64(),
        "azimuth": pa.float64(),
    }
)
UNPACKED_BYTES_MAX = 1 << 20
RECORDS_MAX = 10_000
MESSAGES_MAX = 600

_VOLUME = struct.Struct(">9s3sII4s")
_VERSION = re.compile(rb"(?:AR2V00[0-9]{2}|ARCHIVE2)\.")
_IDENT = re.compile(r"L2-[A-Z0-9]+/([A-Z0-9]{4})/([0-9]{14})/([0-9]{1,4})/([0-9]{1,5})/([SIE])/(V[0-9]{2})/[0-9]+")
_LENGTH = struct.Struct(">i")
_MESSAGE = struct.Struct(">HBBHHIHH")  # halfwords, channel, type, sequence, day, ms, segments, segment
_RADIAL = struct.Struct(">4sIHHfBBHBBBBfBBH")  # of message 31
_COMMUNICATION_BYTES = 12
_BLOCK_BYTES = 2432  # size of messages that have no length of their own
_MS_PER_DAY = 86_400_000
_VCP_MAX = 767


class _Volume(NamedTuple):
    station: str | None = None
    version: str | None = None
    volume: int | None = None
    time_us: int | None = None


class _Radial(NamedTuple):
    latitude: float | None = None
    longitude: float | None = None
    time_us: int | None = None
    elevation_number: int | None = None
    elevation: float | None = None
    azimuth: float | None = None


def decode(products: pa.RecordBatch) -> Decoded:
    rows, errors = list[tuple[Any, ...]](), Errors()
    names = idents(products)
    for place, payload in payload_buffers(products):
        row = _row(payload, names[place])
        if row is None:
            errors.append((place, "it begins neither with a volume header (AR2V) nor with a bzip2 record of Level II"))
        else:
            rows.append((place, *row))
    return Decoded(rows_of(SCHEMA, rows), errors)


def _row(payload: memoryview, ident: str) -> tuple[Any, ...] | None:
    head = _volume(payload)
    start = _VOLUME.size if head.version is not None else 0
    records = list(_records(payload, start))
    if head.version is None and not records:
        return None
    named, chunk, chunk_type = _from_ident(ident)
    vcp, radial = _first_record(records[0]) if records else (None, _Radial())
    volume = [other if own is None else own for own, other in zip(head, named, strict=True)]
    return (*volume, chunk, chunk_type, len(records), vcp, *radial)


def _volume(payload: memoryview) -> _Volume:
    if len(payload) < _VOLUME.size:
        return _Volume()
    version, number, day, ms, station = _VOLUME.unpack_from(payload)
    if _VERSION.fullmatch(version) is None:
        return _Volume()
    volume = int(number) if number.isdigit() else None
    return _Volume(_station(station), version[:-1].decode(), volume, _moment_us(day, ms))


def _station(raw: bytes) -> str | None:
    return raw.decode("ascii") if raw.isalnum() else None


def _moment_us(day: int, ms: int) -> int | None:
    """Days count from 1970-01-01 as 1."""
    return (day - 1) * US_PER_DAY + ms * 1000 if 0 < day <= 0xFFFF and ms < _MS_PER_DAY else None


def _from_ident(ident: str) -> tuple[_Volume, int | None, str | None]:
    match = _IDENT.fullmatch(ident)
    if match is None:
        return _Volume(), None, None
    station, start, volume, chunk, kind, version = match.groups()
    try:
        time_us = int(datetime.strptime(start, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()) * 1_000_000
    except ValueError:
        time_us = None
    return _Volume(station, f"AR2V00{version[1:]}", int(volume), time_us), int(chunk), kind


def _records(payload: memoryview, at: int) -> Iterator[memoryview]:
    """The compressed records; the last one may be truncated."""
    for _ in range(RECORDS_MAX):
        if len(payload) - at < _LENGTH.size + 4:
            return
        size = abs(_LENGTH.unpack_from(payload, at)[0])
        at += _LENGTH.size
        if bytes(payload[at : at + 3]) != b"BZh" or size < 4:
            return
        yield payload[at : at + size]
        at += size


def _first_record(record: memoryview) -> tuple[int | None, _Radial]:
    """Coverage pattern and first radial."""
    vcp, radial = None, _Radial()
    for kind, message in _messages(_unpack(record)):
        if kind in (1, 2, 5):
            vcp = _vcp_at(message, {1: 44, 2: 14, 5: 4}[kind]) or vcp
        elif kind == 31 and len(message) >= _RADIAL.size:
            own, radial = _read_radial(message)
            vcp = own or vcp
            break
    return vcp, radial


def _unpack(record: memoryview) -> bytes:
    try:
        return bz2.BZ2Decompressor().decompress(record, UNPACKED_BYTES_MAX)
    except (OSError, EOFError, ValueError):
        return b""


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and content of each complete message."""
    at = 0
    for _ in range(MESSAGES_MAX):
        start = at + _COMMUNICATION_BYTES
        if len(data) < start + _MESSAGE.size:
            return
        halfwords, _, kind, *_ = _MESSAGE.unpack_from(data, start)
        size = 2 * halfwords
        if size > _MESSAGE.size:
            yield kind, data[start + _MESSAGE.size : start + size]
        at += _COMMUNICATION_BYTES + size if kind in (29, 31) and size > _MESSAGE.size else _BLOCK_BYTES


def _vcp_at(message: bytes, offset: int) -> int | None:
    if len(message) < offset + 2:
        return None
    vcp = abs(struct.unpack_from(">h", message, offset)[0])  # negative: selected at the radar itself
    return vcp if 0 < vcp <= _VCP_MAX else None


def _read_radial(message: bytes) -> tuple[int | None, _Radial]:
    """Message 31: its header, and the block of volume constants that the first pointer leads to."""
    values = _RADIAL.unpack_from(message)
    ms, day, azimuth, elevation_number, elevation, blocks = *values[1:3], values[4], values[10], values[12], values[15]
    vcp = latitude = longitude = None
    if blocks and len(message) >= _RADIAL.size + 4:
        (at,) = struct.unpack_from(">I", message, _RADIAL.size)
        if message[at : at + 4] == b"RVOL" and len(message) >= at + 44:
            latitude, longitude = struct.unpack_from(">ff", message, at + 8)
            vcp = _vcp_at(message, at + 40)
    return vcp, _Radial(latitude, longitude, _moment_us(day, ms), elevation_number, elevation, azimuth)


DECODER: Decoder = make_decoder("nexrad2", SCHEMA, decode)
