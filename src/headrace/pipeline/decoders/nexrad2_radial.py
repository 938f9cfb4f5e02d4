"""The first radial of NEXRAD Level II data, and the coverage pattern (VCP): read from records of messages.

    record 1    RDA status, coverage pattern and other metadata       messages 2, 5 and others; no radials
    record 2    radials                                               message 31, or 1 before 2008

A whole volume begins with metadata, so the first radial is in a later record; a chunk in the middle of a volume has it
in its first record. Messages of kind 1 do not tell where the radar is.

Limits: RECORDS_TRIED records, up to 1 MiB of each. Radar moments are not read.

Layouts: ICD 2620002, messages 1, 2, 5 and 31.
"""

import bz2
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.pipeline.decoders.day_of_month import US_PER_DAY

UNPACKED_BYTES_MAX = 1 << 20
RECORDS_TRIED = 4
MESSAGES_MAX = 600

_MESSAGE = struct.Struct(">HBBHHIHH")  # halfwords, channel, type, sequence, day, ms, segments, segment
_RADIAL = struct.Struct(">4sIHHfBBHBBBBfBBH")  # of message 31
_LEGACY_RADIAL = struct.Struct(">IHHHHHHH")  # of message 1: ms, day, range, azimuth, number, status, elevation, number
_COMMUNICATION_BYTES = 12
_BLOCK_BYTES = 2432  # size of messages that have no length of their own
_LONG = 0xFFFF  # halfwords of a message whose length is in the segment words
_OWN_LENGTH = (29, 31)
_VCP_AT = {1: 44, 2: 14, 5: 4}
_VCP_MAX = 767
_POINTERS_MAX = 10
_DEGREES = 360 / 65_536
_MS_PER_DAY = 86_400_000


class Radial(NamedTuple):
    latitude: float | None = None
    longitude: float | None = None
    time_us: int | None = None
    elevation_number: int | None = None
    elevation: float | None = None
    azimuth: float | None = None


class Found(NamedTuple):
    vcp: int | None = None
    radial: Radial | None = None
    problem: str | None = None


def search_records(records: Sequence[memoryview]) -> Found:
    """The first radial of compressed records."""
    vcp, problem = None, None
    for number, record in enumerate(records[:RECORDS_TRIED], 1):
        data = _unpack(record)
        if not data:
            problem = problem or f"record {number} of {len(records)} does not decompress"
        own, radial = search_messages(data)
        vcp = own or vcp
        if radial is not None:
            return Found(vcp, radial, problem)
    if problem is None and len(records) > 1:
        problem = f"no radial in the first {min(len(records), RECORDS_TRIED)} of {len(records)} records"
    return Found(vcp, None, problem)


def search_messages(data: bytes) -> tuple[int | None, Radial | None]:
    """Coverage pattern and first radial of messages in a row."""
    vcp = None
    for kind, message in _messages(data):
        if kind in _VCP_AT:
            vcp = _vcp_at(message, _VCP_AT[kind]) or vcp
        if kind == 1 and len(message) >= _LEGACY_RADIAL.size:
            return vcp, _read_legacy_radial(message)
        if kind == 31 and len(message) >= _RADIAL.size:
            own, radial = _read_radial(message)
            return own or vcp, radial
    return vcp, None


def moment_us(day: int, ms: int) -> int | None:
    """Days count from 1970-01-01 as 1."""
    return (day - 1) * US_PER_DAY + ms * 1000 if 0 < day <= 0xFFFF and ms < _MS_PER_DAY else None


def _unpack(record: memoryview) -> bytes:
    try:
        return bz2.BZ2Decompressor().decompress(record, UNPACKED_BYTES_MAX)
    except (OSError, EOFError, ValueError):
        return b""


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and content of each message."""
    at = 0
    for _ in range(MESSAGES_MAX):
        start = at + _COMMUNICATION_BYTES
        if len(data) < start + _MESSAGE.size:
            return
        halfwords, _, kind, _, _, _, segments, segment = _MESSAGE.unpack_from(data, start)
        size = segments << 16 | segment if halfwords == _LONG else 2 * halfwords
        if size > _MESSAGE.size:
            yield kind, data[start + _MESSAGE.size : start + size]
        own_length = (kind in _OWN_LENGTH or halfwords == _LONG) and size > _MESSAGE.size
        at += _COMMUNICATION_BYTES + size if own_length else _BLOCK_BYTES


def _vcp_at(message: bytes, offset: int) -> int | None:
    if len(message) < offset + 2:
        return None
    vcp = abs(struct.unpack_from(">h", message, offset)[0])  # negative: selected at the radar itself
    return vcp if 0 < vcp <= _VCP_MAX else None


def _read_radial(message: bytes) -> tuple[int | None, Radial]:
    """Message 31: its header, and the block of volume constants that one of its pointers leads to."""
    values = _RADIAL.unpack_from(message)
    ms, day, azimuth, elevation_number, elevation, blocks = *values[1:3], values[4], values[10], values[12], values[15]
    vcp = latitude = longitude = None
    for number in range(min(blocks, _POINTERS_MAX, (len(message) - _RADIAL.size) // 4)):
        (at,) = struct.unpack_from(">I", message, _RADIAL.size + 4 * number)
        if message[at : at + 4] == b"RVOL" and len(message) >= at + 44:
            latitude, longitude = struct.unpack_from(">ff", message, at + 8)
            vcp = _vcp_at(message, at + 40)
            break
    return vcp, Radial(latitude, longitude, moment_us(day, ms), elevation_number, elevation, azimuth)


def _read_legacy_radial(message: bytes) -> Radial:
    """Message 1: angles are 16-bit fractions of a turn."""
    ms, day, _, azimuth, _, _, elevation, number = _LEGACY_RADIAL.unpack_from(message)
    signed = elevation - 65_536 if elevation >= 32_768 else elevation
    return Radial(None, None, moment_us(day, ms), number, signed * _DEGREES, azimuth * _DEGREES)
