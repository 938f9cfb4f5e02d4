"""METAR reports of the generator, and a comparison with python-metar, which is an independent parser."""

import random
from datetime import UTC
from typing import Any

import pytest
from decoding import NOON
from metar.Metar import Metar

from headrace.testing.feeds.metar import Network, encode
from headrace.testing.feeds.stations import COLLECTIVES


def generated_reports(source: random.Random, count: int, style: str | None = None) -> list[str]:
    """Reports as the generator writes them, each with its `=`."""
    networks = [Network(source, each) for each in COLLECTIVES if style in (None, each.style)]
    texts = []
    for number in range(count):
        network = networks[number % len(networks)]
        station = network.stations[network.turn()]
        report = station.report(source, int(NOON.timestamp()) // 60 - number % 300, missing=number % 97 == 0)
        texts.append(encode(station.correction(source, report) if number % 31 == 0 else report))
    return texts


def compare(text: str, row: dict[str, Any]) -> None:
    theirs = Metar(text, month=1, year=2020, strict=False)

    def value(quantity: Any, unit: str | None = None) -> float | None:
        return None if quantity is None else pytest.approx(quantity.value(*([unit] if unit else [])), abs=0.02)

    assert row["station"] == theirs.station_id
    assert row["kind"] == theirs.type
    assert row["observed"] == theirs.time.replace(tzinfo=UTC)
    assert row["wind_direction"] == value(theirs.wind_dir)
    assert row["wind_from"] == value(theirs.wind_dir_from)
    assert row["wind_to"] == value(theirs.wind_dir_to)
    assert row["wind_speed"] == value(theirs.wind_speed, "MPS")
    assert row["wind_gust"] == value(theirs.wind_gust, "MPS")
    assert row["visibility"] == value(theirs.vis, "M")
    assert row["temperature"] == value(theirs.temp, "C")
    assert row["dewpoint"] == value(theirs.dewpt, "C")
    assert row["altimeter"] == value(theirs.press, "HPA")
    assert row["sea_level_pressure"] == value(theirs.press_sea_level, "HPA")
    assert row["weather"] == ["".join(part or "" for part in group) for group in theirs.weather]
    layers = [(layer["cover"], layer["base_m"], layer["type"]) for layer in row["sky"]]
    assert layers == [(cover, value(base, "M"), kind or None) for cover, base, kind in theirs.sky]
    assert row["missing"] == (theirs.mod == "NO DATA")
