"""METAR reports as MetPy reads them: a second independent parser, with a grammar of its own."""

import importlib
import math
import random
import warnings
from typing import Any

import pytest
from decoding import rows
from metar_oracle import generated_reports
from test_decoder_metar_forms import COLORS, FORECAST_AFTER_COLOR, FORECASTS, with_tail

SEED = 306
HPA_PER_INCH = 33.8639
KNOTS_PER_MPS = 3600 / 1852

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the libraries that MetPy imports
    metpy = importlib.import_module("metpy.io.metar")


def compare(text: str, row: dict[str, Any]) -> None:
    theirs = metpy.parse_metar(f"METAR {text}", 2020, 1, {})

    def agree(ours: float | None, value: float, within: float) -> bool:
        return ours is None if math.isnan(value) else ours == pytest.approx(value, abs=within)

    knots = [None if row[name] is None else row[name] * KNOTS_PER_MPS for name in ("wind_speed", "wind_gust")]
    far = 10_000 if theirs.visibility == 9999 else theirs.visibility
    assert row["station"] == theirs.station_id
    assert row["observed"].replace(tzinfo=None) == theirs.date_time
    assert agree(row["wind_direction"], theirs.wind_direction, 0)
    assert agree(knots[0], theirs.wind_speed, 0.01)
    assert agree(knots[1], theirs.wind_gust, 0.01)
    assert agree(row["visibility"], far, 1)
    assert agree(row["temperature"], theirs.temperature, 0.51)  # MetPy has whole degrees
    assert agree(row["dewpoint"], theirs.dewpoint, 0.51)
    assert agree(row["altimeter"], theirs.altimeter * HPA_PER_INCH, 0.1)
    covers = [theirs.skyc1, theirs.skyc2, theirs.skyc3, theirs.skyc4]
    assert [layer["cover"] for layer in row["sky"]][:4] == [cover for cover in covers if isinstance(cover, str)]


@pytest.mark.parametrize("style", ["icao", "us", "canada"])
@pytest.mark.parametrize("tails", [("",), FORECASTS, COLORS, FORECAST_AFTER_COLOR])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_observations_are_read_as_metpy_reads_them(style: str, tails: tuple[str, ...]) -> None:
    print(f"seed {SEED}")
    texts = [text.rstrip("=") for text in generated_reports(random.Random(SEED), 120, style)]
    texts = [text for text in texts if not {"NIL", "COR", "CCA"} & set(text.split())]
    for text, row in zip(texts, rows("metar", with_tail(texts, tails)), strict=True):
        compare(text, row)
