"""NEXRAD headers: messages made by the layout of the interface documents, and the generator's."""

import bz2
import struct
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest
from decoding import decoded, errors, generated, rows

DAY = 18_268  # 2020-01-06, counted from 1970-01-01 as 1
MS = 45_000_250  # 12:30:00.250
MOMENT = datetime(2020, 1, 6, 12, 30, 0, 250_000, tzinfo=UTC)
IDENT = "L2-BZIP2/KFTG/20200106123000/312/17/I/V06/0"


def volume_header(station: bytes = b"KFTG", number: bytes = b"312") -> bytes:
    return struct.pack(">9s3sII4s", b"AR2V0006.", number, DAY, MS, station)


def message(kind: int, body: bytes) -> bytes:
    """A message with the 12 bytes before it; most kinds are padded to a block."""
    head = struct.pack(">HBBHHIHH", (16 + len(body)) // 2, 0, kind, 1, DAY, MS, 1, 1)
    whole = bytes(12) + head + body
    return whole if kind == 31 else whole.ljust(2432, b"\0")


def radial(vcp: int = 215) -> bytes:
    header = struct.pack(">4sIHHfBBHBBBBfBBH", b"KFTG", MS, DAY, 1, 123.5, 0, 0, 0, 1, 3, 2, 0, 0.53, 0, 0, 1)
    block = b"RVOL" + struct.pack(">HBBffhHfffffHH", 44, 1, 0, 39.786, -104.546, 1675, 20, 0, 0, 0, 0, 0, vcp, 0)
    return header + struct.pack(">I", len(header) + 4) + block


def record(data: bytes, last: bool = False) -> bytes:
    packed = bz2.compress(data)
    return struct.pack(">i", -len(packed) if last else len(packed)) + packed


def test_the_first_chunk_has_the_volume_and_its_coverage_pattern() -> None:
    status, pattern = (
        message(2, struct.pack(">7Hh", *range(7), -212) + bytes(40)),
        message(5, struct.pack(">3H", 0, 2, 215) + bytes(20)),
    )
    (row,) = rows("nexrad2", [volume_header() + record(status + pattern)])
    assert (row["station"], row["version"], row["volume"], row["time"]) == ("KFTG", "AR2V0006", 312, MOMENT)
    assert (row["records"], row["vcp"], row["chunk"], row["elevation"]) == (1, 215, None, None)
    (row,) = rows("nexrad2", [volume_header() + record(status)])
    assert row["vcp"] == 212


def test_a_later_chunk_has_its_ident_and_its_first_radial() -> None:
    (row,) = rows("nexrad2", [record(message(31, radial()) * 3, last=True)], idents=[IDENT])
    assert (row["station"], row["volume"], row["chunk"], row["chunk_type"]) == ("KFTG", 312, 17, "I")
    assert (row["version"], row["time"]) == ("AR2V0006", datetime(2020, 1, 6, 12, 30, tzinfo=UTC))
    assert (row["vcp"], row["elevation_number"], row["radial_time"]) == (215, 2, MOMENT)
    assert (row["elevation"], row["azimuth"]) == pytest.approx((0.53, 123.5))
    assert (row["latitude"], row["longitude"]) == pytest.approx((39.786, -104.546))


def test_a_whole_volume_is_one_row_with_all_its_records_counted() -> None:
    data = volume_header() + record(message(5, struct.pack(">3H", 0, 2, 35) + bytes(20)))
    data += b"".join(record(message(31, radial())) for _ in range(5)) + record(message(31, radial()), last=True)
    (row,) = rows("nexrad2", [data])
    assert (row["records"], row["vcp"]) == (7, 35)


def test_a_record_that_does_not_unpack_leaves_the_header() -> None:
    good = record(message(31, radial()))
    (row,) = rows("nexrad2", [volume_header() + good[:40]])
    assert (row["station"], row["vcp"]) == ("KFTG", None)


def test_a_decompression_bomb_is_read_up_to_a_megabyte() -> None:
    (row,) = rows("nexrad2", [record(bytes(300 << 20))])
    assert row["vcp"] is None


def test_a_payload_that_is_not_level_2_is_an_error() -> None:
    made = errors("nexrad2", [b"", b"AR2V", b"\0\0\0\x08nonsense", volume_header()[:-1]])
    assert set(made) == {0, 1, 2, 3}
    (row,) = rows("nexrad2", [volume_header(b"K\xff\0 ", b"abc")])
    assert (row["station"], row["volume"], row["version"]) == (None, None, "AR2V0006")


def test_generated_chunks_agree_with_their_idents() -> None:
    products = generated("nexrad2", 300)
    made = decoded("nexrad2", products)
    assert made.errors == []
    for row, ident in zip(made.rows.to_pylist(), products.column("ident").to_pylist(), strict=True):
        _, station, start, volume, chunk, kind, *_ = ident.split("/")
        assert (row["station"], str(row["volume"]), str(row["chunk"]), row["chunk_type"]) == (
            station,
            volume,
            chunk,
            kind,
        )
        assert row["time"].strftime("%Y%m%d%H%M%S") == start
        assert row["records"] == 1


def level3(code: int = 94, heading: bytes = b"SDUS55 KFTG 061230\r\r\nN0QFTG\r\r\n", **changed: Any) -> bytes:
    header = struct.pack(">hhiihhh", code, DAY, 45_000, 120, 31, 0, 3)
    block = struct.pack(
        ">hiihhhhhhhihihhhh16h7hBBiii",
        changed.get("divider", -1), 39_786, -104_546, 5_675, code, 2, 215, 9, 41, DAY, 44_900, DAY, 45_010,
        0, 0, 2, 5, *range(16), *range(7), 3, 0, 60, 0, 0,
    )  # fmt: skip
    return heading + header + block + b"symbology"


def test_the_message_header_and_the_description_block_are_read() -> None:
    (row,) = rows("nexrad3", [level3()])
    assert (row["code"], row["awips"], row["center"], row["source"]) == (94, "N0QFTG", "KFTG", 31)
    assert row["time"] == datetime(2020, 1, 6, 12, 30, tzinfo=UTC)
    assert row["volume_time"] == datetime(2020, 1, 6, 12, 28, 20, tzinfo=UTC)
    assert row["generated"] == datetime(2020, 1, 6, 12, 30, 10, tzinfo=UTC)
    assert (row["latitude"], row["longitude"], row["height_m"]) == pytest.approx((39.786, -104.546, 1729.74))
    assert (row["mode"], row["vcp"], row["sequence"], row["volume"]) == (2, 215, 9, 41)
    assert (row["elevation_number"], row["elevation"], row["version"]) == (2, 0.5, 3)
    assert row["thresholds"] == list(range(16))


def test_a_product_of_no_single_elevation_has_none() -> None:
    (row,) = rows("nexrad3", [level3(48)])
    assert row["elevation"] is None


def test_a_product_without_heading_and_one_in_zlib_frames_are_read() -> None:
    bare, packed = rows("nexrad3", [level3(heading=b""), b"SDUS55 KFTG 061230\r\r\n" + zlib.compress(level3())])
    assert (bare["code"], bare["awips"]) == (94, None)
    assert (packed["code"], packed["awips"], packed["elevation"]) == (94, "N0QFTG", 0.5)


def test_a_payload_that_is_not_level_3_is_an_error() -> None:
    whole = level3()
    made = errors("nexrad3", [b"", whole[:100], level3(divider=0), level3(-5), b"x" + bytes(200), b"\x78\x9cnonsense"])
    assert set(made) == {0, 1, 2, 3, 4, 5}


def test_generated_products_agree_with_their_idents() -> None:
    products = generated("nexrad3", 300)
    made = decoded("nexrad3", products)
    assert made.errors == []
    for row, ident in zip(made.rows.to_pylist(), products.column("ident").to_pylist(), strict=True):
        assert ident.endswith(f"/p{row['awips']}")
        assert row["center"] == ident.split()[1]
        assert row["vcp"] == 212
        assert f"{row['time']:%d%H%M}" == ident.split()[2]
