"""NEXRAD headers: messages made by the layout of the interface documents, and the generator's."""

import gzip
import struct
import zlib
from datetime import UTC, datetime

import pytest
from decoding import decoded, errors, generated, rows
from radar_samples import (
    HEADING,
    MOMENT,
    broadcast,
    general_status,
    legacy_radial,
    level3,
    long_message,
    message,
    metadata,
    pattern,
    radial,
    record,
    status,
    volume_header,
    whole_volume,
)

IDENT = "L2-BZIP2/KFTG/20200106123000/312/17/I/V06/0"
FREE_TEXT = (
    b"NOUS63 KFTG 061230\r\r\nFTMFTG\r\r\nTHE KFTG RADAR IS BACK IN SERVICE AFTER MAINTENANCE OF ITS TRANSMITTER.\r\r\n"
)


def test_the_first_chunk_has_the_volume_and_its_coverage_pattern() -> None:
    (row,) = rows("nexrad2", [volume_header() + record(status(-212) + pattern(215))])
    assert (row["station"], row["version"], row["volume"], row["time"]) == ("KFTG", "AR2V0006", 312, MOMENT)
    assert (row["records"], row["vcp"], row["chunk"], row["elevation"], row["problem"]) == (1, 215, None, None, None)
    (row,) = rows("nexrad2", [volume_header() + record(status(-212))])
    assert row["vcp"] == 212


def test_a_later_chunk_has_its_ident_and_its_first_radial() -> None:
    (row,) = rows("nexrad2", [record(message(31, radial()) * 3, last=True)], idents=[IDENT])
    assert (row["station"], row["volume"], row["chunk"], row["chunk_type"]) == ("KFTG", 312, 17, "I")
    assert (row["version"], row["time"]) == ("AR2V0006", datetime(2020, 1, 6, 12, 30, tzinfo=UTC))
    assert (row["vcp"], row["elevation_number"], row["radial_time"]) == (215, 2, MOMENT)
    assert (row["elevation"], row["azimuth"]) == pytest.approx((0.53, 123.5))
    assert (row["latitude"], row["longitude"]) == pytest.approx((39.786, -104.546))
    assert row["problem"] is None


def test_a_whole_volume_is_one_row_with_the_place_of_the_radar_and_its_first_radial() -> None:
    whole, packed = rows("nexrad2", [whole_volume(35), gzip.compress(whole_volume(35))])
    assert (whole["records"], whole["vcp"], whole["elevation_number"], whole["problem"]) == (4, 35, 1, None)
    assert (whole["latitude"], whole["longitude"]) == pytest.approx((39.786, -104.546))
    assert (whole["elevation"], whole["azimuth"], whole["radial_time"]) == (pytest.approx(0.53), 0.25, MOMENT)
    assert {**packed, "place": 0} == whole


def test_the_place_of_the_radar_is_found_behind_any_pointer() -> None:
    for data in (message(31, radial(first=2)), long_message(31, radial(first=2)) * 2):
        (row,) = rows("nexrad2", [volume_header() + record(data)])
        assert (row["latitude"], row["vcp"]) == (pytest.approx(39.786), 215)


def test_an_old_volume_without_compression_has_the_first_radial_and_no_place() -> None:
    old = volume_header(version=b"ARCHIVE2.") + status(-21) + message(1, legacy_radial()) * 3
    for data in (old, gzip.compress(old)):
        (row,) = rows("nexrad2", [data])
        assert (row["records"], row["vcp"], row["elevation_number"], row["latitude"]) == (0, 21, 1, None)
        assert (row["elevation"], row["azimuth"]) == pytest.approx((0.48, 271.0), abs=0.01)
        assert (row["radial_time"], row["problem"]) == (MOMENT, None)
    below = volume_header() + record(message(1, legacy_radial(elevation=-0.2)))
    assert rows("nexrad2", [below])[0]["elevation"] == pytest.approx(-0.2, abs=0.01)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (volume_header(), "no record and no radial after the volume header"),
        (volume_header() + record(metadata())[:40], "record 1 of 1 does not decompress; record 1 is truncated to 36 of"),
        (whole_volume()[:-9], "record 4 is truncated to"),
        (whole_volume() + b"spare", "5 bytes after record 4 are not a record"),
        (volume_header() + record(metadata()) * 6, "no radial in the first 4 of 6 records"),
        (volume_header() + struct.pack(">i", 20) + b"BZh9" + bytes(16) + record(message(31, radial())), "record 1 of 2 does"),
        (gzip.compress(whole_volume())[:-20], "the gzip stream is truncated"),
    ],
    ids=["empty", "cut", "end cut", "spare", "no radial", "damaged", "gzip cut"],
)  # fmt: skip
def test_a_damaged_volume_has_a_row_that_names_the_problem(data: bytes, problem: str) -> None:
    (row,) = rows("nexrad2", [data])
    assert row["station"] == "KFTG"
    assert row["problem"].startswith(problem)


def test_damage_before_the_first_radial_does_not_hide_it() -> None:
    broken = struct.pack(">i", 20) + b"BZh9" + bytes(16)
    (row,) = rows("nexrad2", [volume_header() + broken + record(message(31, radial()))])
    assert (row["elevation_number"], row["problem"]) == (2, "record 1 of 2 does not decompress")


def test_zeros_after_the_last_record_are_no_problem() -> None:
    (row,) = rows("nexrad2", [whole_volume() + bytes(100)])
    assert (row["records"], row["problem"]) == (4, None)


def test_a_decompression_bomb_is_read_up_to_a_limit() -> None:
    (row,) = rows("nexrad2", [record(bytes(300 << 20))])
    assert row["vcp"] is None
    (row,) = rows("nexrad2", [gzip.compress(volume_header() + bytes(100 << 20))])
    assert row["problem"].startswith("the gzip stream is longer than 67,108,864 bytes")


def test_a_payload_that_is_not_level_2_is_an_error() -> None:
    made = errors(
        "nexrad2", [b"", b"AR2V", b"\0\0\0\x08nonsense", volume_header()[:-1], gzip.compress(b"x"), b"\x1f\x8b"]
    )
    assert set(made) == {0, 1, 2, 3, 4, 5}
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
        assert (row["records"], row["vcp"], row["problem"]) == (1, 212, None)
        if kind == "S":
            assert (row["elevation"], row["latitude"]) == (None, None)
        else:
            assert row["elevation_number"] == 1 + (int(chunk) - 2) // 6
            assert (row["latitude"], row["longitude"]) == pytest.approx((39.786, -104.546))
            assert row["radial_time"] >= row["time"].replace(microsecond=0)


def test_the_message_header_and_the_description_block_are_read() -> None:
    (row,) = rows("nexrad3", [level3()])
    assert (row["code"], row["awips"], row["center"], row["source"]) == (94, "N0QFTG", "KFTG", 31)
    assert row["time"] == datetime(2020, 1, 6, 12, 30, tzinfo=UTC)
    assert row["volume_time"] == datetime(2020, 1, 6, 12, 28, 20, tzinfo=UTC)
    assert row["generated"] == datetime(2020, 1, 6, 12, 30, 10, tzinfo=UTC)
    assert (row["latitude"], row["longitude"], row["height_m"]) == pytest.approx((39.786, -104.546, 1729.74))
    assert (row["mode"], row["vcp"], row["sequence"], row["volume"]) == (2, 215, 9, 41)
    assert (row["elevation_number"], row["elevation"], row["version"]) == (2, 0.5, 3)
    assert (row["thresholds"], row["problem"]) == (list(range(16)), None)


def test_a_product_of_no_single_elevation_has_none() -> None:
    (row,) = rows("nexrad3", [level3(48)])
    assert row["elevation"] is None


@pytest.mark.parametrize("frame_bytes", [100, 4000, 60_000])
@pytest.mark.parametrize("control_bytes", [0, 24, 48])
def test_a_product_in_zlib_frames_is_read_as_without_them(frame_bytes: int, control_bytes: int) -> None:
    plain = level3(size=9_000)
    sent = broadcast(plain, frame_bytes, control_bytes=control_bytes)
    bare, packed, ended = rows("nexrad3", [plain, sent, sent + b"\r\r\n\x03"])
    assert bare["problem"] is None
    assert {**packed, "place": 0} == bare == {**ended, "place": 0}


def test_a_product_without_a_heading_is_read() -> None:
    (row,) = rows("nexrad3", [level3(heading=b"")])
    assert (row["code"], row["awips"]) == (94, None)


def test_a_general_status_message_has_the_columns_that_it_knows() -> None:
    plain, packed = rows("nexrad3", [general_status(212), broadcast(general_status(212))])
    assert (plain["code"], plain["awips"], plain["mode"], plain["vcp"], plain["source"]) == (2, "GSMFTG", 2, 212, 31)
    assert (plain["latitude"], plain["thresholds"], plain["problem"]) == (None, None, None)
    assert {**packed, "place": 0} == plain


def test_a_truncated_message_has_a_row_that_names_the_problem() -> None:
    whole = level3(size=9_000)
    cut = len(HEADING) + 4_000
    plain, packed = rows("nexrad3", [whole[:cut], HEADING + zlib.compress(bytes(24) + whole[:cut])])
    assert plain["problem"] == packed["problem"] == "truncated to 4,000 of 9,120 bytes"
    assert (plain["elevation"], packed["elevation"]) == (0.5, 0.5)


def test_a_payload_that_is_not_level_3_is_an_error_with_its_cause() -> None:
    made = errors(
        "nexrad3",
        [b"", level3()[:100], level3(divider=0), level3(-5), b"x" + bytes(200), b"\x78\x9cnonsense", FREE_TEXT],
    )
    assert [made[place].partition(" ")[0] for place in range(7)] == [
        "truncated",
        "truncated",
        "no",
        "no",
        "no",
        "the",
        "a",
    ]
    assert "do not decompress" in made[5]
    assert 'use decode = "wmo"' in made[6]


def test_a_decompression_bomb_in_frames_is_read_up_to_a_limit() -> None:
    (row,) = rows("nexrad3", [HEADING + zlib.compress(level3(size=5_000_000))])
    assert (row["length"], row["problem"]) == (5_000_120, None)
    tiny = HEADING + b"".join(zlib.compress(bytes([byte])) for byte in level3(size=600))
    (row,) = rows("nexrad3", [tiny])
    assert row["problem"].startswith("truncated to ")


def test_generated_products_agree_with_their_idents() -> None:
    products = generated("nexrad3", 300)
    made = decoded("nexrad3", products)
    assert made.errors == []
    for row, ident in zip(made.rows.to_pylist(), products.column("ident").to_pylist(), strict=True):
        assert ident.endswith(f"/p{row['awips']}")
        assert row["center"] == ident.split()[1]
        assert row["vcp"] == 212
        assert f"{row['time']:%d%H%M}" == ident.split()[2]
        assert row["problem"] is None
