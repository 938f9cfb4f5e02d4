"""Weather radar: Level II chunks and Level III products of WSR-88D sites.

Level II travels while the antenna turns. A volume is cut into chunks, numbered from 1: the first
(S) opens with a volume header of 24 bytes, the others (I, and E for the last) are one compressed
record. A record is a control word, which is its length as a signed 32-bit number, negative in the
last one, and then a bzip2 stream.

    L2-BZIP2/KFTG/20150430141912/312/17/I/V06/0
    site, start of volume, number of volume, chunk, type, format

The stream is real, and short: one message, which is the coverage pattern in the first chunk and a
radial without moments in the others. After its end come a number that is unique to the product
and random bytes, so that a record has the size of a real one; readers ignore them.

Level III products are made from a volume: WMO heading, product line, then the binary message
(header block of 18 bytes, description block of 102 bytes) and its compressed symbology.

    SDUS55 KFTG 301419 /pN0QFTG

The symbology begins as bzip2 does, with a block checksum that is unique to the product. It does
not decompress.
"""

import bz2
import random
import struct
from dataclasses import dataclass
from functools import cache

from headrace.product.ldm_feedtypes import FEEDS
from headrace.testing.feeds.content import S_PER_DAY, S_PER_MINUTE, Content, Noise, stamp
from headrace.testing.feeds.headings import LINE_END, Heading

LEVEL2_FEED = FEEDS["NEXRAD2"][0]
LEVEL3_FEED = FEEDS["NEXRAD3"][0]

_SITES_BY_REGION = {
    1: "KAKQ KLWX KDIX KOKX KBOX KGYX KENX KBUF KPBZ KCLE",
    2: "KFFC KJAX KMLB KAMX KTBW KCLX KRAX",
    3: "KDTX KIWX KLOT KMKX KMPX KDLH KDMX KDVN KLSX KEAX KICT KDDC KGLD KOAX KUEX",
    4: "KTLX KFWS KEWX KHGX KLIX KMOB KBMX",
    5: "KFTG KPUX KGJX KABX KICX KMTX",
    6: "KATX KRTX KMUX KSOX",
}
SITES: tuple[tuple[str, int], ...] = tuple(  # name and region, the last digit of its headings
    (site, region) for region, sites in _SITES_BY_REGION.items() for site in sites.split()
)
_PRODUCTS: tuple[tuple[str, int], ...] = (
    ("N0Q", 94),
    ("N1Q", 94),
    ("N0U", 99),
    ("N0C", 161),
    ("N0K", 163),
    ("N0X", 159),
    ("N0H", 165),
    ("NET", 41),
    ("DTA", 172),
    ("NVW", 48),
    ("NST", 58),
    ("DVL", 134),
)

_BZIP2 = struct.Struct(">4s6sI")  # signature, block magic, block checksum
_CONTROL_WORD = struct.Struct(">i")
_VOLUME_HEADER = struct.Struct(">9s3sII4s")  # format, volume, day from 1970, ms of the day, site
_MESSAGE_HEADER = struct.Struct(">hhiihhh")
_DESCRIPTION = struct.Struct(">hiihhhhhhhihi68x")
_CHECKSUM_STEP = 2_654_435_761  # odd, so serials below 2**32 keep distinct checksums
_CHUNKS_MIN, _CHUNKS_MAX = 40, 75
_CHUNKS_PER_ELEVATION = 6
_VOLUMES = 999

# Level II messages: 12 unused bytes, the header, the content. Only radials have a length of their own.
_MESSAGE = struct.Struct(">12xHBBHHIHH")  # halfwords, channel, type, sequence, day, ms, segments, segment
_RADIAL = struct.Struct(">4sIHHfBBHBBBBfBBHI")  # of type 31, with a pointer to the constants
_CONSTANTS = struct.Struct(">4sHBBffhHfffffHH")
_PATTERN = struct.Struct(">HHH40x")  # of type 5: length, kind, coverage pattern
_SERIAL = struct.Struct(">4sQ")
_BLOCK_BYTES = 2432
_COVERAGE_PATTERN = 212
_ELEVATIONS = (0.48, 0.88, 1.32, 1.8, 2.42, 3.12, 4.0, 5.1, 6.42, 8.0, 10.02, 12.48, 15.6, 19.51)
_LATITUDE, _LONGITUDE, _HEIGHT_M = 39.786, -104.546, 1675
_START_OF_ELEVATION = 0


def _compressed_head(serial: int) -> bytes:
    checksum = serial * _CHECKSUM_STEP & 0xFFFFFFFF
    return _BZIP2.pack(b"BZh9", b"\x31\x41\x59\x26\x53\x59", checksum)


@dataclass(slots=True)
class _Volume:
    """How far a site has sent its current volume."""

    site: str
    number: int
    chunks: int
    sent: int
    started_s: float
    elevation: int = 0  # number of the one that is sent, from 1
    stream: bytes = b""  # its first radial, compressed


class Level2Maker:
    """Chunks of the volumes that all sites are sending at the same time."""

    def __init__(self, source: random.Random, noise: Noise) -> None:
        self._random = source
        self._noise = noise
        self._volumes = [_Volume(site, 1 + int(source.random() * _VOLUMES), 0, 0, 0.0) for site, _ in SITES]

    def make(self, time_s: float, serial: int, size: int) -> Content:
        volume = self._volumes[int(self._random.random() * len(self._volumes))]
        if volume.sent == volume.chunks:
            self._start(volume, time_s)
        volume.sent += 1
        kind = "S" if volume.sent == 1 else "E" if volume.sent == volume.chunks else "I"
        head = _volume_header(volume) if kind == "S" else b""
        stream = _pattern() if kind == "S" else _radial(volume, time_s)
        content = stream + _SERIAL.pack(b"FILL", serial)
        record_size = max(size - len(head) - _CONTROL_WORD.size, len(content))
        word = _CONTROL_WORD.pack(-record_size if kind == "E" else record_size)
        payload = self._noise.between(head + word + content, size)
        name = f"{volume.site}/{stamp(volume.started_s)}/{volume.number}/{volume.sent}"
        ident = f"L2-BZIP2/{name}/{kind}/V06/0"
        return Content(f"{LEVEL2_FEED}/{volume.site}", ident, payload, 4)

    def _start(self, volume: _Volume, time_s: float) -> None:
        volume.number = volume.number % _VOLUMES + 1
        volume.chunks = _CHUNKS_MIN + int(self._random.random() * (_CHUNKS_MAX - _CHUNKS_MIN))
        volume.sent = volume.elevation = 0
        volume.started_s = time_s


def _volume_header(volume: _Volume) -> bytes:
    day, second = divmod(volume.started_s, S_PER_DAY)
    number = f"{volume.number:03d}".encode()
    site = volume.site.encode()
    return _VOLUME_HEADER.pack(b"AR2V0006.", number, int(day) + 1, int(second * 1000), site)


@cache
def _pattern() -> bytes:
    """The stream of a first chunk: the coverage pattern."""
    content = _PATTERN.pack(_PATTERN.size // 2, 2, _COVERAGE_PATTERN)
    header = _MESSAGE.pack((16 + len(content)) // 2, 0, 5, 1, 0, 0, 1, 1)
    return bz2.compress((header + content).ljust(_BLOCK_BYTES, b"\0"))


def _radial(volume: _Volume, time_s: float) -> bytes:
    """The stream of a later chunk: the first radial of the elevation that is being sent."""
    number = 1 + (volume.sent - 2) // _CHUNKS_PER_ELEVATION
    if number != volume.elevation:
        volume.elevation, volume.stream = number, bz2.compress(_radial_message(volume.site, number, time_s))
    return volume.stream


def _radial_message(site: str, number: int, time_s: float) -> bytes:
    day, ms = int(time_s) // S_PER_DAY + 1, int(time_s % S_PER_DAY * 1000)
    angle = _ELEVATIONS[(number - 1) % len(_ELEVATIONS)]
    where = (site.encode(), ms, day, 1, 0.25, 0, 0, 0, 1, _START_OF_ELEVATION, number, 1, angle, 0, 0, 1, _RADIAL.size)
    place = (_LATITUDE, _LONGITUDE, _HEIGHT_M, 20)
    constants = _CONSTANTS.pack(b"RVOL", _CONSTANTS.size, 1, 0, *place, 0, 0, 0, 0, 0, _COVERAGE_PATTERN, 0)
    content = _RADIAL.pack(*where) + constants
    return _MESSAGE.pack((16 + len(content)) // 2, 0, 31, 1, day, ms, 1, 1) + content


class Level3Maker:
    """Products derived at the sites."""

    def __init__(self, source: random.Random, noise: Noise) -> None:
        self._random = source
        self._noise = noise

    def make(self, time_s: float, serial: int, size: int) -> Content:
        site, region = SITES[int(self._random.random() * len(SITES))]
        name, code = _PRODUCTS[int(self._random.random() * len(_PRODUCTS))]
        line = Heading(f"SDUS5{region}", site, int(time_s) // S_PER_MINUTE).text("")
        awips = name + site[1:]
        text = f"{line}{LINE_END}{awips}{LINE_END}".encode("ascii")
        head = text + _message_head(code, time_s, serial, size - len(text)) + _compressed_head(serial)
        payload = self._noise.between(head, size)
        return Content(f"{LEVEL3_FEED}/{site}", f"{line} /p{awips}", payload, 4)


def _message_head(code: int, time_s: float, serial: int, size: int) -> bytes:
    """Header and description block of a message of `size` bytes."""
    fixed = _MESSAGE_HEADER.size + _DESCRIPTION.size + _BZIP2.size
    day, second = int(time_s) // S_PER_DAY + 1, int(time_s) % S_PER_DAY
    header = _MESSAGE_HEADER.pack(code, day, second, max(size, fixed), 1 + serial % 999, 0, 3)
    sequence = serial % 32_767
    return header + _DESCRIPTION.pack(
        -1,
        39_786,
        -104_546,
        5_675,
        code,
        2,
        212,
        sequence,
        1 + serial % 80,
        day,
        second,
        day,
        second,
    )
