"""The content of every kind of product except METAR."""

import bz2
import re
import struct
from collections import defaultdict

import numpy as np
import pytest

from headrace.testing import Draft, FeedGenerator
from headrace.testing.feeds import instruments
from headrace.testing.feeds.makers import makers

SEED = 301_419


def products(kind: str, count: int = 400, size_max: int | None = None) -> list[Draft]:
    print(f"seed {SEED}")
    return list(FeedGenerator(seed=SEED, feeds=[kind], products=count, duplicates=0, size_max=size_max))


def sections(message: bytes) -> dict[int, bytes]:
    """The sections of a GRIB message between the indicator and the end, by number."""
    found, offset = {}, 16
    while message[offset : offset + 4] != b"7777":
        length, number = struct.unpack_from(">IB", message, offset)
        found[number] = message[offset : offset + length]
        offset += length
    assert offset + 4 == len(message)
    return found


@pytest.mark.parametrize("kind", ["ngrid", "conduit"])
@pytest.mark.parametrize("size_max", [512, 100_000])
def test_a_grid_is_a_well_formed_grib_message(kind: str, size_max: int) -> None:
    for draft in products(kind, size_max=size_max):
        message = draft.payload
        name, edition, total = struct.unpack(">4s3xBQ", message[:16])
        assert (name, edition, total) == (b"GRIB", 2, len(message))
        found = sections(message)
        assert list(found) == [1, 2, 3, 4, 5, 6, 7]
        columns, rows = struct.unpack_from(">II", found[3], 30)
        points = struct.unpack_from(">I", found[3], 6)[0]
        packed = struct.unpack_from(">I", found[5], 5)[0]
        assert rows * columns == points == packed == len(found[7]) - 5


def test_grids_are_named_by_heading_or_by_file() -> None:
    heading = re.compile(r"Y[A-Z]{3}\d\d KWBC \d{6} !grib2/ncep/\w+/#000/\d{12}F\d{3}/\w+/.+")
    file = re.compile(r"data/nccf/com/(\w+)/prod/\1\.\d{8}/\1\.t\d\dz\.pgrb2\.\w+\.f\d{3} !grib2/.+! \d{6}")
    assert all(heading.fullmatch(draft.ident) for draft in products("ngrid"))
    assert all(file.fullmatch(draft.ident) for draft in products("conduit"))


@pytest.mark.parametrize("size_max", [512, 2_000_000])
def test_an_observation_is_a_well_formed_bufr_message(size_max: int) -> None:
    for draft in products("bufr", 3_000, size_max=size_max):
        message = draft.payload
        assert message[:4] == b"BUFR"
        assert int.from_bytes(message[4:7], "big") == len(message)
        assert message[7] == 4
        offset, lengths = 8, []
        for _ in range(4):
            lengths.append(int.from_bytes(message[offset : offset + 3], "big"))
            offset += lengths[-1]
        assert message[offset:] == b"7777"
        description = message[8 + sum(lengths[:2]) :][: lengths[2]]
        subsets = int.from_bytes(description[4:6], "big")
        levels = description[8] if description[7] >> 6 == 1 else 1
        assert 0 <= lengths[3] - 4 - subsets * levels * 11 < levels * 11


def test_level_two_chunks_come_in_the_order_of_their_volume() -> None:
    chunks: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for draft in products("nexrad2", 8_000, size_max=600):
        parts = draft.ident.split("/")
        assert draft.feed == f"wx/radar/nexrad2/{parts[1]}"
        chunks["/".join(parts[1:4])].append((int(parts[4]), parts[5]))
    whole = [kinds for kinds in chunks.values() if kinds[-1][1] == "E"]
    assert whole
    for numbers in chunks.values():
        assert [number for number, _ in numbers] == list(range(1, len(numbers) + 1))
    for numbers in whole:
        assert "".join(kind for _, kind in numbers) == "S" + "I" * (len(numbers) - 2) + "E"


def test_a_level_two_chunk_is_a_control_word_and_a_bzip2_stream() -> None:
    for draft in products("nexrad2", 6_000, size_max=20_000):
        kind = draft.ident.split("/")[5]
        record = draft.payload
        if kind == "S":
            number = int(draft.ident.split("/")[3])
            assert record.startswith(f"AR2V0006.{number:03d}".encode())
            assert record[20:24].decode() == draft.ident.split("/")[1]
            record = record[24:]
        assert struct.unpack_from(">i", record)[0] == (len(record) - 4) * (-1 if kind == "E" else 1)
        assert record[4:14] == b"BZh91AY&SY"
        assert bz2.decompress(record[4:])


def test_a_level_three_product_opens_with_its_heading_and_name() -> None:
    for draft in products("nexrad3"):
        heading, awips = draft.ident.split(" /p")
        assert re.fullmatch(r"SDUS5[1-6] K[A-Z]{3} \d{6}", heading)
        text = f"{heading}\r\r\n{awips}\r\r\n".encode()
        assert draft.payload.startswith(text)
        code, length = struct.unpack_from(">h6xi", draft.payload, len(text))
        assert length == len(draft.payload) - len(text)
        assert struct.unpack_from(">h", draft.payload, len(text) + 30)[0] == code


def test_a_text_bulletin_opens_with_number_heading_and_name() -> None:
    heading = r"[A-Z]{4}\d\d K[A-Z]{3} \d{6}(?: (?:RR|CC|AA)[A-X])?"
    pattern = re.compile(rf"\d{{5}} \r\r\n({heading})\r\r\n([A-Z0-9]{{6}})\r\r\n")
    for draft in products("bulletin", 3_000):
        match = pattern.match(draft.payload.decode("ascii"))
        assert match
        assert draft.ident == f"{match[1]} /p{match[2]}"


def test_an_amended_or_corrected_bulletin_follows_the_first_and_differs() -> None:
    sent: dict[str, bytes] = {}
    replaced: set[str] = set()
    for draft in products("bulletin", 12_000):
        heading, awips = draft.ident.split(" /p")
        group = heading[19:21]
        if group in {"CC", "AA"}:
            replaced.add(group)
            original = sent[f"{heading[:18]} {awips}"]
            assert draft.payload[9:] != original[9:]
        elif not group:
            sent[f"{heading} {awips}"] = draft.payload
    assert replaced == {"CC", "AA"}


def test_a_satellite_image_opens_as_hdf5_and_knows_its_size() -> None:
    for draft in products("satellite", 60):
        assert draft.payload.startswith(b"\x89HDF\r\n\x1a\n")
        assert struct.unpack_from("<Q", draft.payload, 40)[0] == len(draft.payload)
        assert f"{draft.feed[-3:]}_G16_s" in draft.ident


def test_strokes_lie_in_the_minute_of_their_message() -> None:
    for draft in products("lightning", 60):
        first, *strokes = draft.payload.decode("ascii").splitlines()
        _, start, end, _ = first.split(",")
        assert all(start <= stroke.split(",")[0] < end for stroke in strokes)
        assert all(24 <= float(stroke.split(",")[1]) <= 49 for stroke in strokes)


def test_an_event_has_as_many_hits_as_its_header_says() -> None:
    for number, draft in enumerate(products("event"), 1):
        event, time_ns, hits = instruments.EVENT_HEADER.unpack_from(draft.payload)
        assert (event, draft.ident[-10:]) == (number, f"{number:010d}")
        assert abs(time_ns - draft.created_ns) < 1_000
        pairs = np.frombuffer(draft.payload[instruments.EVENT_HEADER.size :], dtype="<u2")
        assert len(pairs) == 2 * hits
        assert pairs.max() < 4096


def test_a_monitor_frame_has_as_many_points_as_its_header_says() -> None:
    frames: dict[str, int] = {}
    for draft in products("monitor"):
        header = instruments.FRAME_HEADER.unpack_from(draft.payload)
        magic, count, _, frame, _ = header
        points = np.frombuffer(draft.payload[instruments.FRAME_HEADER.size :], dtype=instruments.POINT)
        assert (magic, len(points)) == (b"HRMF", count)
        assert points[0]["name"] == b"temperature_c.00"
        assert np.isfinite(points["value"]).all()
        assert frame == frames.get(draft.feed, -1) + 1
        frames[draft.feed] = frame
    assert len(frames) == 10


@pytest.mark.parametrize("size", [34_000, 300_000])
@pytest.mark.parametrize("kind", ["bufr", "nexrad2", "nexrad3", "ngrid", "conduit", "satellite", "event", "monitor"])
def test_a_product_is_as_large_as_asked_for(kind: str, size: int) -> None:
    (maker,) = makers(SEED, [kind])
    made = [maker.make(1e9 + number, number, size) for number in range(3)]
    assert all(0.95 * size <= len(content.payload) <= size for content in made)
    assert len({content.payload for content in made}) == 3
