"""METAR text, read back by an independent parser."""

import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from metar.Metar import Metar

from headrace.testing import Draft, FeedGenerator
from headrace.testing.feeds.content import day_hour_minute
from headrace.testing.feeds.metar import HPA_PER_INCH, Network, Report, encode
from headrace.testing.feeds.stations import COLLECTIVES
from headrace.testing.profiles import PROFILES

SEED = 60_053
HEADING = re.compile(r"(SA|SP)[A-Z]{2}\d\d [A-Z]{4} \d{6}(?: (RR[A-X]|CC[A-X]))?")
START_MINUTE = 1_578_268_800 // 60


def bulletins(products: int, duplicates: float = 0.0) -> list[Draft]:
    print(f"seed {SEED}")
    stream = FeedGenerator(seed=SEED, feeds=["metar"], products=products, duplicates=duplicates)
    return list(stream)


def reports_of(draft: Draft) -> list[str]:
    return draft.payload.decode("ascii").split("\r\r\n")[2:-1]


def observed(count: int) -> Iterator[Report]:
    """Reports of all countries, some of them corrections or missing."""
    print(f"seed {SEED}")
    source = random.Random(SEED)
    networks = [Network(source, collective) for collective in COLLECTIVES]
    for number in range(count):
        network = networks[number % len(networks)]
        station = network.stations[network.turn()]
        report = station.report(source, START_MINUTE + number // 50, missing=number % 97 == 0)
        yield station.correction(source, report) if number % 31 == 0 else report


def parse(text: str) -> Any:
    return Metar(text, month=1, year=2020, strict=True)


def assert_same_values(report: Report, parsed: Any) -> None:
    assert parsed.station_id == report.station
    assert parsed.time.strftime("%d%H%M") == day_hour_minute(report.minute)
    assert parsed.wind_speed.value("KT") == report.wind_kt
    assert (parsed.wind_dir.value() if parsed.wind_dir else None) == report.wind_deg
    assert (round(parsed.wind_gust.value("KT")) if parsed.wind_gust else 0) == report.gust_kt
    assert_same_temperature(report, parsed)
    assert_same_pressure(report, parsed)
    assert_same_sky(report, parsed)
    if report.style == "us":
        assert parsed.mod == ("COR" if report.corrected else "AUTO") or not report.automatic


def assert_same_temperature(report: Report, parsed: Any) -> None:
    ours = (report.temperature_c10, report.dewpoint_c10)
    theirs = (parsed.temp.value("C"), parsed.dewpt.value("C"))
    if report.style == "us":
        assert theirs == pytest.approx([value / 10 for value in ours])
    else:
        assert theirs == tuple((value + 5) // 10 for value in ours)
    assert theirs[1] <= theirs[0]


def assert_same_pressure(report: Report, parsed: Any) -> None:
    hpa = report.pressure_hpa10 / 10
    if report.style == "icao":
        assert parsed.press.value("HPA") == int(hpa)
    else:
        assert parsed.press.value("IN") == pytest.approx(hpa / HPA_PER_INCH, abs=0.006)
        assert parsed.press_sea_level.value("HPA") == pytest.approx(hpa)


def assert_same_sky(report: Report, parsed: Any) -> None:
    sky = report.sky
    if report.style == "icao" and sky.cavok:
        assert "CAVOK" in parsed.code
        assert parsed.vis.value("M") == 10_000
        assert not parsed.weather
        assert not parsed.sky
        return
    if report.style == "icao":
        assert parsed.vis.value("M") == (10_000 if sky.visibility.metres == 9999 else sky.visibility.metres)
    else:
        assert parsed.vis.value("SM") == pytest.approx(sky.visibility.miles)
    weather = ["".join(part or "" for part in group) for group in parsed.weather]
    assert weather == sky.phenomena.split()
    layers = [(c, round(base.value("FT")), kind or "") for c, base, kind in parsed.sky if base]
    assert layers == [(cloud.cover, cloud.base_100ft * 100, cloud.kind) for cloud in sky.clouds]


def test_a_strict_parser_reads_the_state_that_was_written() -> None:
    styles: Counter[str] = Counter()
    for report in observed(8_000):
        text = encode(report)
        parsed = parse(text)
        if report.missing:
            assert parsed.mod == "NO DATA"
            assert parsed.temp is None
        else:
            assert_same_values(report, parsed)
        styles[report.style] += 1
    assert set(styles) == {"us", "canada", "icao"}


def test_the_rounded_temperature_agrees_with_the_tenths() -> None:
    checked = 0
    for draft in bulletins(400):
        for text in reports_of(draft):
            groups = re.search(r" (M?\d\d)/(M?\d\d) .* T([01]\d{3})([01]\d{3})=", text)
            if groups is None:
                continue
            checked += 1
            for whole, tenths in zip(groups.group(1, 2), groups.group(3, 4), strict=True):
                value = int(tenths[1:]) * (-1 if tenths[0] == "1" else 1)
                assert int(whole.replace("M", "-")) == (value + 5) // 10
                assert whole.startswith("M") == (value < 0)
    assert checked > 500


def test_the_weather_is_coherent() -> None:
    for report in observed(6_000):
        sky = report.sky
        assert report.dewpoint_c10 <= report.temperature_c10
        assert "SN" not in sky.phenomena or report.temperature_c10 < 0
        assert "RA" not in sky.phenomena or report.temperature_c10 >= 0
        assert ("FG" in sky.phenomena) == (sky.visibility.metres < 1000)
        assert "FG" not in sky.phenomena or report.temperature_c10 - report.dewpoint_c10 <= 5
        assert all(a.base_100ft < b.base_100ft for a, b in pairwise(sky.clouds))
        assert report.gust_kt == 0 or report.gust_kt >= report.wind_kt + 5


def test_every_report_of_every_bulletin_is_accepted_by_a_strict_parser() -> None:
    kinds: Counter[str] = Counter()
    for draft in bulletins(1_500):
        lines = draft.payload.decode("ascii").split("\r\r\n")
        assert HEADING.fullmatch(lines[0])
        assert draft.ident == f"{lines[0]} /p{lines[1]}"
        assert lines[-1] == ""
        kinds[lines[1]] += 1
        for text in lines[2:-1]:
            assert text.endswith("=")
            parse(text)
    assert set(kinds) == {"METAR", "SPECI"}


def test_the_sizes_of_bulletins_follow_the_measured_ones() -> None:
    sizes = sorted(len(draft.payload) for draft in bulletins(6_000))
    expected = PROFILES["metar"].sizes_bytes
    for share, tolerance in ((0.25, 0.3), (0.5, 0.35), (0.75, 0.3), (0.9, 0.15), (0.95, 0.1)):
        assert sizes[int(share * len(sizes))] == pytest.approx(expected.at(share), rel=tolerance)
    assert sizes[0] < 60
    assert sizes[-1] <= expected.at(1)


def test_a_station_reports_once_per_minute_and_close_to_the_time_of_arrival() -> None:
    seen: set[tuple[str, str]] = set()
    drafts = bulletins(3_000)
    for draft in drafts:
        if " CC" in draft.ident:
            continue
        for text in reports_of(draft):
            station, moment = text.split()[:2]
            assert (station, moment) not in seen
            seen.add((station, moment))
    last = drafts[-1].created_ns // 60_000_000_000
    times = [int(text.split()[1][2:4]) * 60 + int(text.split()[1][4:6]) for text in reports_of(drafts[-1])]
    assert all((time - last) % 1440 in {*range(15), *range(1425, 1440)} for time in times)


def test_a_correction_follows_the_bulletin_that_it_corrects() -> None:
    sent: dict[str, str] = {}
    corrections = 0
    for draft in bulletins(4_000):
        heading, _, rest = draft.payload.decode("ascii").partition("\r\r\n")
        if " CC" in heading:
            corrections += 1
            (report,) = rest.split("\r\r\n")[1:-1]
            station = report.removeprefix("COR ")[:4]
            original = sent[heading[:18]]
            assert station in original
            assert report not in original
            assert re.search(r"\b(COR|CCA)\b", report)
        elif heading[18:] == "":
            sent[heading] = rest
    assert corrections > 10


def test_delayed_bulletins_carry_the_next_letter_under_the_same_heading() -> None:
    letters: dict[str, list[str]] = {}
    for draft in bulletins(3_000):
        words = draft.ident.split()
        if not words[3].startswith("CC"):
            letters.setdefault(" ".join(words[:3]), []).append(words[3])
    repeated = [groups for groups in letters.values() if len(groups) > 1]
    assert repeated
    for groups in repeated:
        assert groups[0].startswith("/p")
        assert groups[1:] == [f"RR{letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWX"[: len(groups) - 1]]
