"""GRIB editions 1 and 2, and BUFR, as bytes: messages in a payload, fields in a message.

A payload may have a heading before the first message and any bytes between messages. Only lengths are read here, and
each is checked against the bytes that exist; ecCodes reads the content of sections.

A message of GRIB edition 2 may have several fields: sections 2 to 7, 3 to 7 or 4 to 7 are repeated. `grib_fields`
returns each field as a message of its own. A message of edition 1 is one field:

    GRIB, length, edition     3 bytes of length
    section 1 product   2 grid (flag 0x80)   3 bit map (flag 0x40)   4 data   7777

The length of edition 1 has 23 bits. For a longer message it is in units of 120 bytes, marked by its first bit, and the
length of section 4 is what must be subtracted from the product (a convention of ECMWF).
"""

import struct
from collections.abc import Iterator

POINTS_MAX = 32 << 20  # of a field; the largest in operation have 25 million

_GRIB_HEAD = struct.Struct(">4sHBBQ")  # `GRIB`, reserved, discipline, edition, length
_SECTION = struct.Struct(">IB")
_END = b"7777"
_GRID, _BIT_MAP, _DATA = 3, 6, 7
_SAME_BIT_MAP = 254
_HEAD1_BYTES = 8  # of edition 1
_HAS_GRID, _HAS_BIT_MAP = 0x80, 0x40
_LONG = 0x800000
_LONG_UNIT = 120
_REDUCED = 0xFFFF  # number of columns of a grid whose rows have different lengths


def grib_messages(payload: bytes) -> Iterator[bytes]:
    """Complete messages. ValueError: a message is incomplete or of another edition."""
    at = payload.find(b"GRIB")
    while at >= 0:
        if len(payload) - at < _GRIB_HEAD.size:
            raise ValueError("a GRIB message is truncated in its first section")
        _, _, _, edition, length = _GRIB_HEAD.unpack_from(payload, at)
        if edition == 1:
            length = _length1(payload, at)
        elif edition != 2:
            raise ValueError(f"GRIB edition {edition}; only editions 1 and 2 are supported")
        yield _whole(payload, at, length, "GRIB")
        at = payload.find(b"GRIB", at + length)


def _length1(payload: bytes, at: int) -> int:
    """The length of a message of edition 1."""
    length = _three(payload, at + 4)
    if not length & _LONG:
        return length
    *_, data = _starts1(payload, at)
    rest = _three(payload, data)
    return (length & ~_LONG) * _LONG_UNIT - rest + 4 if rest < _LONG_UNIT else length


def _starts1(payload: bytes, at: int) -> tuple[int, int]:
    """Where the grid (section 2) and the data (section 4) of a message of edition 1 begin."""
    product = at + _HEAD1_BYTES
    flags = payload[product + 7]
    grid = data = product + _three(payload, product)
    for flag in (_HAS_GRID, _HAS_BIT_MAP):
        data += _three(payload, data) if flags & flag else 0
    return grid, data


def _three(payload: bytes, at: int) -> int:
    return int.from_bytes(payload[at : at + 3], "big")


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
    if message[7] == 1:
        _check_points(_points1(message))
        yield message
        return
    sections: dict[int, bytes] = {}
    bit_map = b""
    for number, section in _sections(message):
        if number == _BIT_MAP:
            section = bit_map if section[5:6] == bytes([_SAME_BIT_MAP]) and bit_map else section
            bit_map = section
        sections[number] = section
        if number == _GRID:
            _check_points(int.from_bytes(section[6:10], "big"))
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


def _check_points(points: int) -> None:
    if points > POINTS_MAX:
        raise ValueError(f"a grid of {points:,} points, more than {POINTS_MAX:,}")


def _points1(message: bytes) -> int:
    """The points of the grid of a message of edition 1, as its second section states them; 0 if it has none."""
    grid, data = _starts1(message, 0)
    section = message[grid:data]
    if not message[_HEAD1_BYTES + 7] & _HAS_GRID or len(section) < 10:
        return 0
    columns, rows = struct.unpack_from(">HH", section, 6)
    if columns != _REDUCED:
        return int(columns * rows)
    lengths = section[4 * section[3] + section[4] - 1 :][: 2 * rows]
    return sum(struct.unpack(f">{len(lengths) // 2}H", lengths[: len(lengths) // 2 * 2]))


def _message(message: bytes, sections: dict[int, bytes]) -> bytes:
    body = b"".join(sections[number] for number in sorted(sections)) + _END
    name, reserved, discipline, edition, _ = _GRIB_HEAD.unpack_from(message)
    return _GRIB_HEAD.pack(name, reserved, discipline, edition, _GRIB_HEAD.size + len(body)) + body
