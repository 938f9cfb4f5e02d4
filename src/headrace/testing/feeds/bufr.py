"""Observations as BUFR edition 4.

    0 `BUFR`, total length, edition   1 identification   2 local use
    3 description                     4 data             5 `7777`

The description lists five elements (latitude, longitude, temperature, pressure, relative
humidity), which together take 11 bytes. A message has as many subsets of them as fit; large ones
repeat the five for 32 levels in each subset, as a sounding does. All lengths are true and the
elements are as wide as the tables say, but the values are random. The local section carries a
number that is unique in the stream.
"""

import random
import struct
import time
from collections.abc import Sequence

from headrace.testing.feeds.content import S_PER_MINUTE, Content, Noise
from headrace.testing.feeds.headings import Heading

FEED = "wx/obs/bufr"

_ELEMENTS = ((0, 5, 1), (0, 6, 1), (0, 12, 101), (0, 10, 4), (0, 13, 3))  # F, X, Y
_ELEMENTS_BYTES = 11  # 25 + 26 + 16 + 14 + 7 bits
_LEVELS = 32
_LARGE_BYTES = 100_000
_SUBSETS_MAX = 0xFFFF

_INDICATOR = struct.Struct(">4s3sB")
_IDENTIFICATION = struct.Struct(">3sBHHBBBBBBBHBBBBB")
_LOCAL = struct.Struct(">3sxQ")
_DESCRIPTION = struct.Struct(">3sxHB")
_DATA = struct.Struct(">3sx")
_END = b"7777"
_OBSERVED = 0x80
_CENTRES = ("KWBC", "EGRR", "EDZW", "LFPW", "RJTD", "CWAO", "AMMC")
_CATEGORIES = (("ISMD", 0), ("ISND", 0), ("IUKD", 2), ("IUAD", 4), ("IOBD", 31), ("ISSD", 1))


def encode(category: int, time_s: float, serial: int, size: int, noise: Noise) -> bytes:
    """A BUFR message of `size` bytes, or the smallest one if `size` is below that."""
    levels = _LEVELS if size >= _LARGE_BYTES else 1
    local = _LOCAL.pack(_length(_LOCAL.size), serial)
    middle = _identification(category, time_s) + local
    descriptors = _descriptors(levels)
    description_size = _DESCRIPTION.size + len(descriptors)
    fixed = _INDICATOR.size + len(middle) + description_size + _DATA.size + len(_END)
    total = max(size, fixed + _ELEMENTS_BYTES * levels)
    subsets = min((total - fixed) // (_ELEMENTS_BYTES * levels), _SUBSETS_MAX)
    description = _DESCRIPTION.pack(_length(description_size), subsets, _OBSERVED) + descriptors
    data = _DATA.pack(_length(total - fixed + _DATA.size))
    head = _INDICATOR.pack(b"BUFR", _length(total), 4) + middle + description + data
    return noise.between(head, total, _END)


def _length(size: int) -> bytes:
    return size.to_bytes(3, "big")


def _identification(category: int, time_s: float) -> bytes:
    moment = time.gmtime(time_s)
    tables = (0, 7, 0, 0, _OBSERVED, category, 0, 0, 28, 0)  # a local section follows
    return _IDENTIFICATION.pack(_length(_IDENTIFICATION.size), *tables, *moment[:6])


def _descriptors(levels: int) -> bytes:
    repeat: Sequence[tuple[int, int, int]] = () if levels == 1 else ((1, len(_ELEMENTS), levels),)
    return b"".join(bytes((f << 6 | x, y)) for f, x, y in (*repeat, *_ELEMENTS))


class BufrMaker:
    """Observations compiled at several centres."""

    def __init__(self, source: random.Random, noise: Noise) -> None:
        self._random = source
        self._noise = noise

    def make(self, time_s: float, serial: int, size: int) -> Content:
        data_type, category = _CATEGORIES[int(self._random.random() * len(_CATEGORIES))]
        centre = _CENTRES[int(self._random.random() * len(_CENTRES))]
        name = f"{data_type}{1 + int(self._random.random() * 90):02d}"
        line = Heading(name, centre, int(time_s) // S_PER_MINUTE).text("")
        return Content(FEED, line, encode(category, time_s, serial, size, self._noise), 4)
