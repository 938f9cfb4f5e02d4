"""GRIB edition 2 and BUFR as bytes: messages in a payload, fields in a message.

A payload may have a heading before the first message and any bytes between messages. Only lengths are read here, and
each is checked against the bytes that exist; ecCodes reads the content of sections.

A GRIB message may have several fields: sections 2 to 7, 3 to 7 or 4 to 7 are repeated. `grib_fields` returns each field
as a message of its own.
"""

import struct
from collections.abc import Iterator

POINTS_MAX = 32 << 20  # of a field; the largest in operation have 25 million

_GRIB_HEAD = struct.Struct(">4sHBBQ")  # `GRIB`, reserved, discipline, edition, length
_SECTION = struct.Struct(">IB")
_END = b"7777"
_GRID, _BIT_MAP, _DATA = 3, 6, 7
_SAME_BIT_MAP = 254


def grib_messages(payload: bytes) -> Iterator[bytes]:
    """Complete messages of edition 2. ValueError: a message is incomplete or of another edition."""
    at = payload.find(b"GRIB")
    while at >= 0:
        if len(payload) - at < _GRIB_HEAD.size:
            raise ValueError("a GRIB message is truncated in its first section")
        _, _, _, edition, length = _GRIB_HEAD.unpack_from(payload, at)
        if edition != 2:
            raise ValueError(f"GRIB edition {edition}; only edition 2 is supported")
        yield _whole(payload, at, length, "GRIB")
        at = payload.find(b"GRIB", at + length)


def bufr_messages(payload: bytes) -> Iterator[bytes]:
    """Complete messages. ValueError: a message is incomplete."""
    at = payload.find(b"BUFR")
    while at >= 0:
        length = int.from_bytes(payload[at + 4 : at + 7], "big")
        yield _whole(payload, at, length, "BUFR")
        at = payload.find(b"BUFR", at + length)


def _whole(payload: bytes, at: int, length: int, name: str) -> bytes:
    if length < _GRIB_HEAD.size or length > len(payload) - at:
        raise ValueError(f"a {name} message of {length} bytes is truncated to {len(payload) - at}")
    if payload[at + length - 4 : at + length] != _END:
        raise ValueError(f"a {name} message of {length} bytes does not end in 7777")
    return payload[at : at + length]


def grib_fields(message: bytes) -> Iterator[bytes]:
    """Each field as a message. ValueError: the sections are invalid."""
    sections: dict[int, bytes] = {}
    bit_map = b""
    for number, section in _sections(message):
        if number == _BIT_MAP:
            section = bit_map if section[5:6] == bytes([_SAME_BIT_MAP]) and bit_map else section
            bit_map = section
        sections[number] = section
        if number == _GRID:
            _check_points(section)
        if number == _DATA:
            yield _message(message, sections)


def _sections(message: bytes) -> Iterator[tuple[int, bytes]]:
    at, end = _GRIB_HEAD.size, len(message) - len(_END)
    while at < end:
        if end - at < _SECTION.size:
            raise ValueError("a GRIB section is truncated")
        length, number = _SECTION.unpack_from(message, at)
        if not 1 <= number <= _DATA or not _SECTION.size <= length <= end - at:
            raise ValueError(f"GRIB section {number} of {length} bytes is invalid, or truncated to {end - at}")
        yield number, message[at : at + length]
        at += length


def _check_points(grid: bytes) -> None:
    points = int.from_bytes(grid[6:10], "big")
    if points > POINTS_MAX:
        raise ValueError(f"a grid of {points:,} points, more than {POINTS_MAX:,}")


def _message(message: bytes, sections: dict[int, bytes]) -> bytes:
    body = b"".join(sections[number] for number in sorted(sections)) + _END
    name, reserved, discipline, edition, _ = _GRIB_HEAD.unpack_from(message)
    return _GRIB_HEAD.pack(name, reserved, discipline, edition, _GRIB_HEAD.size + len(body)) + body
