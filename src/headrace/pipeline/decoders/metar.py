"""METAR and SPECI reports as a typed table, one row for each report.

    KDEN 060053Z AUTO 18008G17KT 10SM FEW080 SCT150 12/M03 A3002 RMK AO2 SLP123 T01221033=
    station time modifier wind visibility sky temperature pressure remarks

A product is a bulletin of many reports (wmo.py) or a single report. Reports end in `=`; metar_opening.py reads how they
begin, and separates reports if `=` is missing. Groups are recognized by their form (metar_group.py), so that groups in
an unusual order are read too. From the remarks, sea-level pressure and tenths of degrees are read; the rest stays text.

Only observations become values. The forecast at the end of a report begins with a word such as NOSIG, TEMPO or FM0300,
or after the colour state of a military station; from there on, the words are the text of `trend`.

Canadian SA reports (metar_sa.py) become rows of the same table.

An unknown word of the body is listed in `unread`, and the rest of the report is valid. A report without station and
time has a row with `unread` and `text` only, unless it says NIL. A product without any readable report is an error.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from headrace.pipeline.decoders.day_of_month import resolve_us
from headrace.pipeline.decoders.decoder import (
    Decoded,
    Decoder,
    Errors,
    created_us,
    make_decoder,
    payloads,
)
from headrace.pipeline.decoders.metar_group import (
    COLOR,
    IGNORED,
    M_PER_MILE,
    MILES,
    MODIFIER,
    PRESSURE,
    SKY,
    TEMPERATURE,
    TREND,
    UNKNOWN,
    VISIBILITY,
    WEATHER,
    WIND,
    WIND_RANGE,
    read_group,
)
from headrace.pipeline.decoders.metar_opening import SPECI, read_opening, single_reports, upper
from headrace.pipeline.decoders.metar_sa import SaReport, read_sa
from headrace.pipeline.decoders.metar_table import SCHEMA, table_of
from headrace.pipeline.decoders.wmo import REPORTS_MAX, Bulletin, check_size, read_bulletin

REPORT_CHARS_MAX = 4000
UNREAD_MAX = 20
GROUPS_MAX = 20  # of weather, and of layers

_NOTHING: tuple[Any, ...] = (None, None, None, None)
# With the letters first, and only then the word's beginning: so most of the remarks are skipped quickly.
_SEA_LEVEL = re.compile(r"SLP(?<=\bSLP)([0-9]{3})\b")
_TENTHS = re.compile(r"T(?<=\bT)([01][0-9]{3})([01][0-9]{3})?\b")


class _Report:
    """A report while its words are read."""

    __slots__ = (
        "altimeter", "auto", "color", "corrected", "dewpoint", "kind", "miles_m", "missing", "observed_us", "remarks",
        "sea_level_pressure", "sky", "station", "temperature", "text", "trend", "unread", "visibility", "weather",
        "wind", "wind_range",
    )  # fmt: skip

    def __init__(self, text: str, kind: str, station: str | None, observed_us: int | None) -> None:
        self.text = text
        self.kind = kind
        self.station = station
        self.observed_us = observed_us
        self.auto = self.corrected = self.missing = False
        self.color: str | None = None
        self.wind: tuple[Any, ...] = _NOTHING
        self.wind_range: tuple[Any, ...] = _NOTHING
        self.miles_m = 0.0  # `1` of `1 1/2SM`, until the fraction is read
        self.visibility: tuple[Any, ...] = _NOTHING
        self.weather: tuple[str, ...] = ()
        self.sky: tuple[tuple[Any, ...], ...] = ()
        self.temperature: float | None = None
        self.dewpoint: float | None = None
        self.altimeter: float | None = None
        self.sea_level_pressure: float | None = None
        self.trend: str | None = None
        self.remarks: str | None = None
        self.unread: tuple[str, ...] = ()

    def row(self, place: int, number: int) -> tuple[Any, ...]:
        direction, variable, speed, gust = self.wind
        return (
            place, number, self.station, self.kind, self.observed_us, self.auto, self.corrected, self.missing,
            direction, variable, self.wind_range[0], self.wind_range[1], speed, gust, self.visibility[0],
            self.visibility[1], self.weather, self.sky, self.temperature, self.dewpoint, self.altimeter,
            self.sea_level_pressure, self.trend, self.remarks, self.unread, self.text,
        )  # fmt: skip


def decode(products: pa.RecordBatch) -> Decoded:
    rows, errors = list[tuple[Any, ...]](), Errors()
    created = created_us(products)
    for place, payload in payloads(products):
        problem = check_size(payload)
        if problem is not None:
            errors.append((place, problem))
            continue
        bulletin = read_bulletin(payload.decode("latin-1"), reports=True)
        reports = read_reports(bulletin, created[place])
        if len(reports) > REPORTS_MAX:
            errors.append((place, f"more than {REPORTS_MAX:,} reports in one bulletin"))
        elif any(report.station or report.missing for report in reports):
            rows += [report.row(place, number) for number, report in enumerate(reports)]
        else:
            errors.append((place, "no METAR or SPECI report (station and time, as in KDEN 060053Z)"))
    return Decoded(table_of(rows), errors)


def read_reports(bulletin: Bulletin, created_us: int) -> list[_Report]:
    special = bulletin.shared.startswith(SPECI) or (bulletin.heading and bulletin.heading.data_type == "SP")
    kind = SPECI if special else "METAR"
    corrected = bulletin.shared.endswith("COR")
    issued_us = resolve_us(bulletin.heading.time, created_us) if bulletin.heading else created_us
    reports = []
    for raw in bulletin.reports:
        for text in single_reports(raw):
            report = _read(text, kind, created_us, created_us if issued_us is None else issued_us)
            report.corrected = report.corrected or corrected
            reports.append(report)
    return reports


def _read(text: str, kind: str, created_us: int, issued_us: int) -> _Report:
    if len(text) > REPORT_CHARS_MAX:
        return _unreadable(text, kind)
    capitals = upper(text)
    opening = read_opening(capitals)
    if opening is None:
        found = read_sa(capitals, issued_us)
        return _unreadable(text, kind) if found is None else _from_sa(text, found)
    own_kind, station, time, modifiers, end = opening
    observed_us = resolve_us(time, created_us) if time else None
    if observed_us is None and time:
        return _unreadable(text, kind)
    report = _Report(text, own_kind or kind, station, observed_us)
    body, mark, remarks = capitals[end:].partition("RMK")
    _read_body(report, [*modifiers, *body.split()])
    if mark:
        _read_remarks(report, remarks, text[len(text) - len(remarks) :])
    return report


def _from_sa(text: str, found: SaReport) -> _Report:
    report = _Report(text, found.kind, found.station, found.observed_us)
    report.auto, report.corrected = found.is_automatic, found.is_corrected
    report.sea_level_pressure, report.altimeter = found.pressure, found.altimeter
    report.temperature, report.dewpoint = found.temperature, found.dewpoint
    direction, speed, gust = found.wind
    report.wind = (direction, None if speed is None else False, speed, gust)
    report.remarks, report.unread = found.remarks, found.unread[:UNREAD_MAX]
    return report


def _unreadable(text: str, kind: str) -> _Report:
    report = _Report(text, kind, None, None)
    report.unread = tuple(text.split(" ", UNREAD_MAX)[:UNREAD_MAX])
    return report


def _read_body(report: _Report, words: list[str]) -> None:
    for at, word in enumerate(words):
        kind, values = read_group(word)
        if kind == TREND or (report.color and kind != IGNORED and not _still_color(report, kind, values)):
            report.trend = " ".join(words[at:])
            break
        _TAKE[kind](report, values)
    if report.miles_m:
        _take_unknown(report, f"{report.miles_m / M_PER_MILE:.0f}")


def _still_color(report: _Report, kind: int, word: str) -> bool:
    """Whether a word completes the colour state before it, as `WHT` in `BLACK WHT`; a second state is a forecast."""
    return kind == COLOR and report.color == "BLACK" and word != "BLACK"


def _take_unknown(report: _Report, word: str) -> None:
    if len(report.unread) < UNREAD_MAX:
        report.unread += (word,)


def _take_nothing(report: _Report, values: None) -> None:
    pass


# If a group occurs twice, the first one counts.


def _take_wind(report: _Report, values: tuple[Any, ...]) -> None:
    if report.wind is _NOTHING:
        report.wind = values


def _take_wind_range(report: _Report, values: tuple[int, int]) -> None:
    report.wind_range = values


def _take_visibility(report: _Report, values: tuple[float, str | None]) -> None:
    if report.miles_m:
        values, report.miles_m = (values[0] + report.miles_m, values[1]), 0.0
    if report.visibility is _NOTHING:
        report.visibility = values


def _take_miles(report: _Report, metres: float) -> None:
    report.miles_m = metres


def _take_weather(report: _Report, word: str) -> None:
    if len(report.weather) < GROUPS_MAX:
        report.weather += (word,)


def _take_layer(report: _Report, values: tuple[Any, ...]) -> None:
    if len(report.sky) < GROUPS_MAX:
        report.sky += (values,)


def _take_temperature(report: _Report, values: tuple[float | None, float | None]) -> None:
    if report.temperature is None and report.dewpoint is None:
        report.temperature, report.dewpoint = values


def _take_pressure(report: _Report, hpa: float) -> None:
    if report.altimeter is None:
        report.altimeter = hpa


def _take_color(report: _Report, word: str) -> None:
    """Where values have been read, the colour state ends the observation."""
    if report.altimeter is not None or report.temperature is not None:
        report.color = word


def _take_modifier(report: _Report, word: str) -> None:
    report.auto |= word == "AUTO"
    report.corrected |= word == "COR"
    report.missing |= word == "NIL"


def _read_remarks(report: _Report, remarks: str, written: str) -> None:
    """Values in the remarks; `written` is the same with the letters that were sent."""
    report.remarks = (written[1:] if remarks.startswith("S") else written).strip()
    pressure = _SEA_LEVEL.search(remarks)
    if pressure is not None:
        tenths = int(pressure[1])
        report.sea_level_pressure = tenths / 10 + (1000 if tenths < 500 else 900)
    exact = _TENTHS.search(remarks)
    if exact is not None:
        report.temperature = _degrees(exact[1])
        report.dewpoint = _degrees(exact[2]) if exact[2] else report.dewpoint


def _degrees(tenths: str) -> float:
    return int(tenths[1:]) / (-10 if tenths[0] == "1" else 10)


_TAKE: Mapping[int, Callable[[_Report, Any], None]] = MappingProxyType(
    {
        UNKNOWN: _take_unknown,
        IGNORED: _take_nothing,
        WIND: _take_wind,
        WIND_RANGE: _take_wind_range,
        VISIBILITY: _take_visibility,
        MILES: _take_miles,
        WEATHER: _take_weather,
        SKY: _take_layer,
        TEMPERATURE: _take_temperature,
        PRESSURE: _take_pressure,
        MODIFIER: _take_modifier,
        COLOR: _take_color,
    }
)


DECODER: Decoder = make_decoder("metar", SCHEMA, decode)
