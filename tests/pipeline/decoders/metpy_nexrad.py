"""NEXRAD products as MetPy reads them: an independent reader of the same layouts."""

import importlib
import io
import logging
import random
import warnings
from datetime import UTC, datetime
from typing import Any

import pytest
from decoding import decoded, generated, rows
from radar_samples import (
    broadcast,
    general_status,
    legacy_radial,
    level3,
    message,
    status,
    volume_header,
    whole_volume,
)

SEED = 2_620_001

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the libraries that MetPy imports
    metpy = importlib.import_module("metpy.io")


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("metpy").setLevel(logging.ERROR)


def moment(naive: datetime) -> datetime:
    return naive.replace(tzinfo=UTC)


def test_whole_volumes_are_read_as_metpy_reads_them() -> None:
    print(f"seed {SEED}")
    source = random.Random(SEED)
    for _ in range(5):
        elevations = tuple(round(source.uniform(0.3, 19.5), 2) for _ in range(source.randrange(1, 6)))
        volume = whole_volume(source.choice((12, 31, 35, 212, 215)), elevations)
        theirs = metpy.Level2File(io.BytesIO(volume))
        head, constants = theirs.sweeps[0][0][:2]
        (row,) = rows("nexrad2", [volume])
        assert (row["station"], row["time"]) == (theirs.stid.decode(), moment(theirs.dt))
        assert (row["latitude"], row["longitude"], row["vcp"]) == (constants.lat, constants.lon, constants.vcp)
        assert (row["elevation_number"], row["elevation"], row["azimuth"]) == (
            head.el_num,
            head.el_angle,
            head.az_angle,
        )
        assert row["problem"] is None


def test_old_volumes_are_read_as_metpy_reads_them() -> None:
    volume = volume_header(version=b"ARCHIVE2.") + status(-21) + message(1, legacy_radial()) * 3
    head = metpy.Level2File(io.BytesIO(volume)).sweeps[0][0][0]
    (row,) = rows("nexrad2", [volume])
    assert (row["elevation_number"], row["vcp"]) == (head.el_num, head.vcp)
    assert (row["elevation"], row["azimuth"]) == pytest.approx((head.el_angle, head.az_angle))


def test_generated_chunks_are_read_as_metpy_reads_them() -> None:
    products = generated("nexrad2", 120, size_max=5000)
    made = decoded("nexrad2", products).rows.to_pylist()
    for row, payload in zip(made, products.column("payload").to_pylist(), strict=True):
        theirs = metpy.Level2File(io.BytesIO(payload), has_volume_header=row["chunk_type"] == "S")
        if row["chunk_type"] != "S":
            head, constants = theirs.sweeps[-1][0][:2]
            assert (row["elevation_number"], row["elevation"]) == (head.el_num, head.el_angle)
            assert (row["latitude"], row["longitude"], row["vcp"]) == (constants.lat, constants.lon, constants.vcp)


@pytest.mark.parametrize("code", [19, 32, 94, 99, 159, 180])
@pytest.mark.parametrize("frame_bytes", [0, 70, 4000])
def test_products_are_read_as_metpy_reads_them(code: int, frame_bytes: int) -> None:
    plain = level3(code, angle=24)
    sent = broadcast(plain, frame_bytes) if frame_bytes else plain
    theirs = metpy.Level3File(io.BytesIO(sent))
    (row,) = rows("nexrad3", [sent])
    assert (row["code"], row["length"], row["source"]) == (
        theirs.header.code,
        theirs.header.msg_len,
        theirs.header.src_id,
    )
    assert (row["latitude"], row["longitude"]) == pytest.approx((theirs.lat, theirs.lon))
    times = [moment(theirs.metadata[name]) for name in ("msg_time", "vol_time", "prod_time")]
    assert [row["time"], row["volume_time"], row["generated"]] == times
    assert (row["vcp"], row["thresholds"]) == (theirs.prod_desc.vcp, theirs.thresholds)
    if row["elevation"] is not None:
        assert row["elevation"] == pytest.approx(theirs.metadata["el_angle"])


def test_general_status_messages_are_read_as_metpy_reads_them() -> None:
    theirs: Any = metpy.Level3File(io.BytesIO(general_status(212)))
    (row,) = rows("nexrad3", [general_status(212)])
    assert (row["code"], row["vcp"], row["source"]) == (theirs.header.code, theirs.gsm.vcp, theirs.header.src_id)
