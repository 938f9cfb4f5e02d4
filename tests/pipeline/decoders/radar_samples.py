"""NEXRAD products made by the layouts of the interface documents: whole volumes, chunks, Level III as on NOAAPort."""

import bz2
import struct
import zlib
from datetime import UTC, datetime

DAY = 18_268  # 2020-01-06, counted from 1970-01-01 as 1
MS = 45_000_250  # 12:30:00.250
MOMENT = datetime(2020, 1, 6, 12, 30, 0, 250_000, tzinfo=UTC)
HEADING = b"SDUS55 KFTG 061230\r\r\nN0QFTG\r\r\n"
METADATA_BLOCKS = 134


def volume_header(station: bytes = b"KFTG", number: bytes = b"312", version: bytes = b"AR2V0006.") -> bytes:
    return struct.pack(">9s3sII4s", version, number, DAY, MS, station)


def message(kind: int, body: bytes) -> bytes:
    """A message with the 12 bytes before it; most kinds are padded to a block."""
    head = struct.pack(">HBBHHIHH", (16 + len(body)) // 2, 0, kind, 1, DAY, MS, 1, 1)
    whole = bytes(12) + head + body
    return whole if kind == 31 else whole.ljust(2432, b"\0")


def long_message(kind: int, body: bytes) -> bytes:
    """A message whose length is in the words of its segments."""
    size = 16 + len(body)
    return bytes(12) + struct.pack(">HBBHHIHH", 0xFFFF, 0, kind, 1, DAY, MS, size >> 16, size & 0xFFFF) + body


def pattern(vcp: int = 215) -> bytes:
    return message(5, struct.pack(">3H", 0, 2, vcp) + bytes(40))


def status(vcp: int = 215) -> bytes:
    return message(2, struct.pack(">7Hh", *range(7), vcp) + bytes(64))


def metadata(vcp: int = 215) -> bytes:
    """What begins a volume: 134 blocks, most of them empty here."""
    empty = bytes(2432)
    return empty * 70 + status(-vcp) + pattern(vcp) + empty * (METADATA_BLOCKS - 72)


def radial(
    vcp: int = 215, *, elevation: float = 0.53, number: int = 2, azimuth: float = 123.5, first: int = 0, state: int = 1
) -> bytes:
    """Message 31 with blocks of constants; `first` other pointers stand before that to the volume's block.

    State 0 begins an elevation, 3 a volume; 2 ends an elevation, 4 a volume.
    """
    pointers = first + 1
    header = struct.pack(
        ">4sIHHfBBHBBBBfBBH", b"KFTG", MS, DAY, 1, azimuth, 0, 0, 0, 1, state, number, 0, elevation, 0, 0, pointers
    )
    other = b"RELV" + struct.pack(">Hhf", 12, 0, 0.0)
    block = b"RVOL" + struct.pack(">HBBffhHfffffHH", 44, 1, 0, 39.786, -104.546, 1675, 20, 0, 0, 0, 0, 0, vcp, 0)
    start = len(header) + 4 * pointers
    places = [start] * first + [start + len(other)]
    return header + struct.pack(f">{pointers}I", *places) + other + block


def legacy_radial(vcp: int = 21, *, elevation: float = 0.48, number: int = 1, azimuth: float = 271.0) -> bytes:
    """Message 1: angles as 16-bit fractions of a turn."""
    angles = round(azimuth * 65_536 / 360), 7, 1, round(elevation * 65_536 / 360) & 0xFFFF
    head = struct.pack(">IHHHHHHH", MS, DAY, 4600, *angles, number)
    return (head + bytes(26) + struct.pack(">H", vcp) + bytes(54)).ljust(2400, b"\0")


def record(data: bytes, *, last: bool = False) -> bytes:
    packed = bz2.compress(data)
    return struct.pack(">i", -len(packed) if last else len(packed)) + packed


def whole_volume(vcp: int = 215, elevations: tuple[float, ...] = (0.53, 0.88, 1.32)) -> bytes:
    """Metadata, and a record of radials for each elevation."""
    sweeps = []
    for number, angle in enumerate(elevations, 1):
        begin, end = 3 if number == 1 else 0, 4 if number == len(elevations) else 2
        states = enumerate((begin, 1, 1, 1, end))
        radials = [
            radial(vcp, elevation=angle, number=number, azimuth=step + 0.25, state=state) for step, state in states
        ]
        sweeps.append(b"".join(message(31, each) for each in radials))
    records = [record(sweep, last=number == len(sweeps)) for number, sweep in enumerate(sweeps, 1)]
    return volume_header() + record(metadata(vcp)) + b"".join(records)


def level3(code: int = 94, heading: bytes = HEADING, *, divider: int = -1, angle: int = 5, size: int = 0) -> bytes:
    """A message; its symbology, of `size` bytes, is a counter."""
    symbology = bytes(range(256)) * (size // 256 + 1)
    length = 120 + size
    header = struct.pack(">hhiihhh", code, DAY, 45_000, length, 31, 0, 3)
    block = struct.pack(
        ">hiihhhhhhhihihhhh16h7hBBiii",
        divider, 39_786, -104_546, 5_675, code, 2, 215, 9, 41, DAY, 44_900, DAY, 45_010,
        0, 0, 2, angle, *range(16), *[0] * 7, 3, 0, 0, 0, 0,
    )  # fmt: skip
    return heading + header + block + symbology[:size]


def general_status(vcp: int = 215) -> bytes:
    header = struct.pack(">hhiihhh", 2, DAY, 45_000, 18 + 4 + 82, 31, 0, 2)
    block = struct.pack(">hHhhh", -1, 82, 2, 2, vcp).ljust(4 + 82, b"\0")
    return b"NXUS65 KFTG 061230\r\r\nGSMFTG\r\r\n" + header + block


def broadcast(product: bytes, frame_bytes: int = 4000, *, control_bytes: int = 24) -> bytes:
    """A product as NOAAPort sends it: heading, then zlib frames that begin with a control block and the heading."""
    control = struct.pack(">H", 0x4000 | control_bytes // 2).ljust(control_bytes, b"\x03") if control_bytes else b""
    whole = control + product
    frames = [zlib.compress(whole[low : low + frame_bytes]) for low in range(0, len(whole), frame_bytes)]
    return HEADING + b"".join(frames)
