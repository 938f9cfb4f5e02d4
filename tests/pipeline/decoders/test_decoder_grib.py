"""GRIB and BUFR by ecCodes, and the child process that it runs in."""

import os
import random
import resource
import struct
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import eccodes
import numpy as np
import pyarrow as pa
import pytest
from decoding import decoded, errors, generated, products_of, rows
from grib1_samples import field

from headrace.pipeline.decoders import child_process
from headrace.pipeline.decoders.decoder import Decoded
from headrace.pipeline.decoders.messages import grib_fields, grib_messages

SCHEMA = pa.schema({"size": pa.int64()})


def grib(values: Any = None, sample: str = "regular_ll_sfc_grib2", **keys: Any) -> bytes:
    handle = eccodes.codes_grib_new_from_samples(sample)
    packing = keys.pop("packingType", None)
    try:
        for key, value in keys.items():
            eccodes.codes_set(handle, key, value)
        if values is not None:
            eccodes.codes_set_values(handle, values)
        if packing is not None:
            eccodes.codes_set(handle, "packingType", packing)
        return bytes(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)


def small(values: list[float], **keys: Any) -> bytes:
    """A field of 2 rows and as many columns as it takes."""
    shape = {"Ni": len(values) // 2, "Nj": 2, "bitsPerValue": 24}
    return grib(np.array(values), **shape, **keys)


def bufr(**keys: Any) -> bytes:
    handle = eccodes.codes_bufr_new_from_samples("BUFR4")
    try:
        eccodes.codes_set(handle, "numberOfSubsets", keys.pop("subsets", 1))
        eccodes.codes_set(handle, "compressedData", keys.pop("compressed", 0))
        eccodes.codes_set_array(handle, "unexpandedDescriptors", [1001, 1002, 5001, 6001, 12101, 10004, 11002])
        for key, values in keys.items():
            if isinstance(values, list):
                eccodes.codes_set_array(handle, key, values)
            else:
                eccodes.codes_set(handle, key, values)
        eccodes.codes_set(handle, "pack", 1)
        return bytes(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)


def test_a_field_is_a_row_with_parameter_grid_time_and_statistics() -> None:
    message = small(
        [270.0, 271.0, 272.0, 273.0, 274.0, 280.0],
        dataDate=20200106, dataTime=600, shortName="2t", step=18,
        latitudeOfFirstGridPointInDegrees=60, latitudeOfLastGridPointInDegrees=50,
        longitudeOfFirstGridPointInDegrees=5, longitudeOfLastGridPointInDegrees=15,
    )  # fmt: skip
    (row,) = rows("grib", [message])
    assert (row["message"], row["field"], row["center"]) == (0, 0, "ecmf")
    assert (row["discipline"], row["category"], row["parameter"], row["short_name"]) == (0, 0, 0, "2t")
    assert (row["name"], row["units"]) == ("2 metre temperature", "K")
    assert (row["level_type"], row["level"]) == ("heightAboveGround", 2)
    assert row["reference"] == datetime(2020, 1, 6, 6, tzinfo=UTC)
    assert (row["valid"], row["forecast_h"]) == (datetime(2020, 1, 7, tzinfo=UTC), 18)
    assert (row["grid"], row["ni"], row["nj"], row["packing"]) == ("regular_ll", 3, 2, "grid_simple")
    assert (row["north"], row["west"], row["south"], row["east"]) == (60, 5, 50, 15)
    assert (row["points"], row["missing"]) == (6, 0)
    assert (row["min"], row["max"], row["mean"]) == pytest.approx((270, 280, 273.3333), abs=1e-3)
    assert row["std"] == pytest.approx(np.std([270, 271, 272, 273, 274, 280]), abs=1e-3)


def test_missing_values_are_counted_and_null() -> None:
    message = small([1.0, 9999.0, 3.0, 9999.0], bitmapPresent=1, missingValue=9999)
    (row,) = rows("grib-values", [message])
    assert (row["points"], row["missing"], row["min"], row["max"]) == (4, 2, 1, 3)
    assert row["values"] == [1, None, 3, None]
    (row,) = rows("grib", [small([9999.0] * 4, bitmapPresent=1, missingValue=9999)])
    assert (row["missing"], row["mean"]) == (4, None)
    (row,) = rows("grib-values", [small([9999.0, 1.0, 2.0, 3.0])])
    assert (row["missing"], row["max"]) == (0, pytest.approx(9999, abs=0.01))


@pytest.mark.parametrize("packing", ["grid_simple", "grid_complex", "grid_ccsds", "grid_jpeg", "grid_png"])
def test_every_packing_gives_the_values(packing: str) -> None:
    values = 280 + 10 * np.sin(np.linspace(0, 20, 16 * 31))  # smooth: noise is too large as PNG
    try:
        message = grib(values, bitsPerValue=16, packingType=packing)
    except eccodes.FunctionalityNotEnabledError:
        pytest.skip("ecCodes was built without it")
    (row,) = rows("grib-values", [message])
    assert row["packing"] == packing
    assert row["values"] == pytest.approx(values.tolist(), abs=0.01)


@pytest.mark.parametrize("sample", ["reduced_gg_pl_32_grib2", "polar_stereographic_pl_grib2", "sh_ml_grib2"])
def test_other_grids_are_read_as_far_as_they_go(sample: str) -> None:
    (row,) = rows("grib", [grib(sample=sample)])
    assert row["grid"] in ("reduced_gg", "polar_stereographic", "sh")
    assert row["points"] > 0


def test_messages_behind_a_heading_and_behind_each_other_are_all_read() -> None:
    one, two = small([1.0, 2.0]), small([3.0, 4.0], shortName="msl")
    made = rows("grib", [b"YTQA50 KWBC 061200\r\r\n" + one + b"\r\r\n" + two, two])
    assert [(row["place"], row["message"], row["min"]) for row in made] == [(0, 0, 1), (0, 1, 3), (1, 0, 3)]


def sections(message: bytes) -> dict[int, bytes]:
    at, found = 16, {}
    while message[at : at + 4] != b"7777":
        length, number = struct.unpack_from(">IB", message, at)
        found[number] = message[at : at + length]
        at += length
    return found


def test_the_fields_of_one_message_are_all_read() -> None:
    one = sections(small([1.0, 9999.0, 2.0, 5.0], bitmapPresent=1, missingValue=9999))
    two = sections(small([7.0, 9999.0, 8.0, 9.0], bitmapPresent=1, missingValue=9999, shortName="msl"))
    same_bit_map = struct.pack(">IBB", 6, 6, 254)
    body = b"".join(one[n] for n in sorted(one)) + two[4] + two[5] + same_bit_map + two[7] + b"7777"
    message = struct.pack(">4sHBBQ", b"GRIB", 0, 0, 2, 16 + len(body)) + body
    assert len(list(grib_fields(next(grib_messages(message))))) == 2
    made = rows("grib-values", [message])
    assert [(row["field"], row["short_name"], row["values"]) for row in made] == [
        (0, made[0]["short_name"], [1, None, 2, 5]),
        (1, "msl", [7, None, 8, 9]),
    ]


def test_an_invalid_message_is_an_error() -> None:
    good = small([1.0, 2.0])
    edition3 = good[:7] + b"\x03" + good[8:]
    huge = bytearray(good)
    grid = good.index(sections(good)[3])
    huge[grid + 6 : grid + 10] = b"\x7f\xff\xff\xff"
    made = errors("grib", [b"", b"GRIB", good[:-1], edition3, bytes(huge), good[:60] + bytes(60) + good[120:], good])
    assert set(made) == {0, 1, 2, 3, 4, 5}
    assert made[0] == "no GRIB message"
    assert made[3] == "GRIB edition 3; only editions 1 and 2 are supported"
    assert "2,147,483,647 points" in made[4]


def test_a_field_of_edition_1_is_a_row_with_the_same_columns() -> None:
    values = [270.0, 271.5, 272.25, None, 274.0, 280.0]
    (row,) = rows("grib-values", [b"HTXE50 KWBC 061200\r\r\n" + field(values, 3)])
    assert (row["edition"], row["center"], row["table_version"], row["parameter"]) == (1, "kwbc", 2, 11)
    assert (row["discipline"], row["category"], row["short_name"], row["units"]) == (None, None, "t", "K")
    assert (row["level_type"], row["level"], row["member"]) == ("isobaricInhPa", 500, None)
    assert row["reference"] == datetime(2020, 1, 6, 12, tzinfo=UTC)
    assert (row["valid"], row["forecast_h"]) == (datetime(2020, 1, 7, 6, tzinfo=UTC), 18)
    assert (row["grid"], row["ni"], row["nj"], row["packing"]) == ("regular_ll", 3, 2, "grid_simple")
    assert (row["north"], row["west"], row["south"], row["east"]) == (60, 5, 50, 15)
    assert (row["points"], row["missing"]) == (6, 1)
    assert row["values"][3] is None
    assert [value for value in row["values"] if value is not None] == pytest.approx(
        [value for value in values if value is not None], abs=0.001
    )


def test_random_fields_of_edition_1_have_the_values_that_were_written() -> None:
    print("seed 92")
    source = random.Random(92)
    written = []
    for _ in range(25):
        columns, lines, size = source.randrange(1, 9), source.randrange(1, 9), 10 ** source.uniform(-3, 5)
        values = [source.uniform(-size, size) for _ in range(columns * lines)]
        written.append([None if source.random() < 0.2 else value for value in values[:-1]] + values[-1:])
        written[-1] = [*written[-1], columns]
    made = rows("grib-values", [field(values[:-1], values[-1]) for values in written])
    for values, row in zip(written, made, strict=True):
        size = max(abs(value) for value in values[:-1] if value is not None)
        assert row["missing"] == values[:-1].count(None)
        for ours, theirs in zip(row["values"], values[:-1], strict=True):
            assert ours == (None if theirs is None else pytest.approx(theirs, abs=size / 10_000))


def test_both_editions_of_a_field_are_equal() -> None:
    values = [270.0, 271.0, 272.0, 273.0, 274.0, 280.0]
    keys = {"dataDate": 20200106, "dataTime": 600, "step": 18, "shortName": "2t"}
    one, two = rows("grib", [small(values, sample="regular_ll_sfc_grib1", **keys), small(values, **keys)])
    same = (
        "short_name",
        "name",
        "units",
        "reference",
        "valid",
        "forecast_h",
        "grid",
        "ni",
        "nj",
        "points",
        "min",
        "max",
    )
    assert (one["edition"], two["edition"]) == (1, 2)
    assert [one[name] for name in same] == [two[name] for name in same]


def test_editions_may_be_mixed_in_a_product() -> None:
    payload = field([1.0, 2.0], 2) + b"\r\r\n" + small([3.0, 4.0]) + field([5.0, 6.0], 2)
    assert [(row["message"], row["edition"], row["min"]) for row in rows("grib", [payload])] == [
        (0, 1, pytest.approx(1)), (1, 2, 3), (2, 1, pytest.approx(5)),
    ]  # fmt: skip


@pytest.mark.parametrize("sample", ["reduced_gg_pl_32_grib1", "polar_stereographic_pl_grib1", "sh_pl_grib1"])
def test_other_grids_of_edition_1_are_read_as_far_as_they_go(sample: str) -> None:
    (row,) = rows("grib", [grib(sample=sample)])
    assert row["edition"] == 1
    assert row["points"] > 0


def test_a_long_message_of_edition_1_is_read() -> None:
    """More than 8 MiB: the length does not fit into its 23 bits."""
    values = np.linspace(0.0, 1.0, 3_000_000)
    message = grib(values, "regular_ll_sfc_grib1", Ni=2000, Nj=1500, bitsPerValue=24)
    assert len(message) > 1 << 23
    made = rows("grib", [message, field([1.0, 2.0], 2) + message])
    assert [(row["place"], row["message"], row["points"]) for row in made] == [
        (0, 0, 3_000_000), (1, 0, 2), (1, 1, 3_000_000),
    ]  # fmt: skip


def test_an_invalid_message_of_edition_1_is_an_error() -> None:
    good = field([1.0, 2.0, None, 4.0], 2)
    grid, end = 8 + 28, 8 + 28 + 32
    huge = good[: grid + 6] + b"\xff\xfe\xff\xff" + good[grid + 10 :]
    rows = struct.pack(">BBBHH", 0, 33, 0, 0xFFFF, 600) + good[grid + 10 : end] + b"\xff\xff" * 600
    body = good[8:grid] + (3 + len(rows)).to_bytes(3, "big") + rows + good[end:]
    reduced = b"GRIB" + (8 + len(body)).to_bytes(3, "big") + b"\x01" + body
    empty = good[:8] + bytes(len(good) - 12) + b"7777"
    made = errors("grib", [good[:-1], good[:20], huge, empty, reduced, good])
    assert set(made) == {0, 1, 2, 3, 4}
    assert "is truncated to" in made[0]
    assert made[2] == "a grid of 4,294,770,690 points, more than 33,554,432"
    assert made[4] == "a grid of 39,321,000 points, more than 33,554,432"


def test_generated_grids_are_read() -> None:
    made = decoded("grib", generated("ngrid", 40, 20_000))
    assert made.errors == []
    for row in made.rows.to_pylist():
        assert (row["grid"], row["center"], row["north"], row["south"]) == ("regular_ll", "kwbc", 90, -90)
        assert row["points"] == row["ni"] * row["nj"]
        assert row["short_name"] is not None
        assert row["min"] >= 220


def test_a_bufr_message_is_a_row_with_its_header_and_values() -> None:
    message = bufr(
        dataCategory=0, bufrHeaderCentre=98, typicalYear=2020, typicalMonth=1, typicalDay=6, typicalHour=12, typicalMinute=30,
        blockNumber=10, stationNumber=384, latitude=52.46, longitude=13.4, airTemperature=274.5, nonCoordinatePressure=101_300,
    )  # fmt: skip
    (row,) = rows("bufr", [b"ISMD01 EDZW 061200\r\r\n" + message])
    assert (row["edition"], row["center"], row["category"], row["subsets"]) == (4, 98, 0, 1)
    assert row["time"].replace(second=0) == datetime(2020, 1, 6, 12, 30, tzinfo=UTC)
    assert row["descriptors"] == [1001, 1002, 5001, 6001, 12101, 10004, 11002]
    data = dict(row["data"])
    assert data["blockNumber"] == [10]
    assert data["latitude"] == pytest.approx([52.46])
    assert data["airTemperature"] == pytest.approx([274.5])
    assert data["windSpeed"] == [None]
    assert "relativeHumidity" not in data


@pytest.mark.parametrize("compressed", [0, 1])
def test_values_of_all_subsets_are_there(compressed: int) -> None:
    apart_keys = {f"#{number}#latitude": number + 0.5 for number in (1, 2, 3)}
    message = bufr(subsets=3, compressed=1, latitude=[1.5, 2.5, 3.5]) if compressed else bufr(subsets=3, **apart_keys)
    (row,) = rows("bufr", [message])
    assert (row["subsets"], row["compressed"]) == (3, bool(compressed))
    assert dict(row["data"])["latitude"] == pytest.approx([1.5, 2.5, 3.5])


def test_generated_observations_are_read() -> None:
    products = generated("bufr", 30, 6000)
    made = decoded("bufr", products)
    assert made.errors == []
    for row in made.rows.to_pylist():
        data = dict(row["data"])
        assert set(data) == {"latitude", "longitude", "airTemperature", "nonCoordinatePressure", "relativeHumidity"}
        assert {len(values) for values in data.values()} == {row["subsets"]}
        assert abs(row["time"] - datetime(2020, 1, 6, tzinfo=UTC)) < timedelta(days=1)


def test_a_payload_without_bufr_is_an_error() -> None:
    good = bufr()
    made = errors("bufr", [b"", b"BUFR", good[:-2], b"BUFR\0\0\x10\x04" + bytes(100), good])
    assert set(made) == {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["grib", "grib-values", "grib of edition 1", "bufr"])
def test_an_altered_message_affects_no_other(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "DEATHS_MAX", 1000)
    source = random.Random(99)
    print("seed 99")
    good = bufr(latitude=52.0) if name == "bufr" else small([1.0, 2.0, 3.0, 4.0])
    if name == "grib of edition 1":
        good, name = field([1.0, 2.0, None, 4.0], 2), "grib-values"
    payloads = []
    for _ in range(120):
        data = bytearray(good)
        for _ in range(source.randrange(1, 5)):
            data[source.randrange(8, len(data) - 4)] = source.choice((0, 255, source.randrange(256)))
        payloads += [bytes(data), good]
    made = decoded(name, products_of(payloads))
    assert set(range(1, 240, 2)) <= set(made.rows.column("place").to_pylist())


def measure(payload: memoryview) -> pa.RecordBatch | str:
    """What the child runs in the tests below: obeys the payload."""
    word = bytes(payload)
    if word == b"crash":
        os.abort()
    if word == b"hang":
        time.sleep(3600)
    if word == b"eat":
        return str(len(bytearray(8 << 30)))
    if word == b"raise":
        raise RuntimeError("cannot")
    if word == b"print":
        os.write(1, b"noise of a library")
    return "bad" if word == b"bad" else pa.RecordBatch.from_pydict({"size": [len(word)]}, schema=SCHEMA)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(__file__))
    return f"{os.path.splitext(os.path.basename(__file__))[0]}:measure"


def run_in_child(target: str, payloads: list[bytes]) -> Decoded:
    made = child_process.decode_in_child(target, SCHEMA, products_of(payloads))
    child_process._child(target, os.getpid()).stop()
    return made


def test_a_crash_a_failure_and_too_much_memory_affect_one_product_each(target: str) -> None:
    made = run_in_child(target, [b"abc", b"crash", b"print", b"raise", b"bad", b"eat", b"", b"x" * 3_000_000])
    assert made.rows.to_pydict() == {"place": [0, 2, 6, 7], "size": [3, 5, 0, 3_000_000]}
    assert dict(made.errors) == {
        1: "the decoding library crashed (exit code -6)",
        3: "RuntimeError: cannot",
        4: "bad",
        5: "MemoryError",
    }


def test_a_library_that_hangs_is_ended(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "SECONDS_MAX", 1.0)
    made = run_in_child(target, [b"abc", b"hang", b"ab"])
    assert made.rows.to_pydict() == {"place": [0, 2], "size": [3, 2]}
    assert made.errors == [(1, "not read within 1 s")]


def test_a_batch_that_keeps_crashing_its_decoder_is_given_up(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "DEATHS_MAX", 2)
    made = run_in_child(target, [b"crash", b"crash", b"abc"])
    assert made.rows.num_rows == 0
    assert "not tried: 2 earlier products" in dict(made.errors)[2]


def test_a_program_with_thousands_of_open_files_decodes(target: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            files.enter_context(open(os.devnull))
        made = run_in_child(target, [b"abc"])
    assert made.rows.to_pydict() == {"place": [0], "size": [3]}
