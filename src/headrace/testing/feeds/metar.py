"""METAR and SPECI reports, and the bulletins that carry them.

    SAUS40 KWBC 060053
    METAR
    KDEN 060053Z 18008G17KT 10SM FEW080 SCT150 BKN220 12/M03 A3002 RMK AO2 SLP123 T01221033=
    KBOS 060051Z AUTO ...

A `Report` is what a station observed, a value; `encode` writes it. `MetarMaker` lets the stations
of a collective report in turn until a bulletin has the size asked for. Lines end in CR CR LF.

No two bulletins are equal: a station reports at most once per minute, a report names its station
and minute, and a correction differs from what it corrects. Day and minute come again after a
month, and then only reports without values (NIL) could repeat; there are none from that point on.
"""

import random
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate

import msgspec

from headrace.testing.feeds.content import S_PER_DAY, S_PER_MINUTE, Content, day_hour_minute
from headrace.testing.feeds.headings import LINE_END, Heading, HeadingLog, Replacements
from headrace.testing.feeds.stations import COLLECTIVES, Collective, Style
from headrace.testing.feeds.weather import Sky, StationWeather

FEED = "wx/text/metar"
HPA_PER_INCH = 33.8639

_NIL_SHARE = 1 / 128
_NIL_SIZE_BYTES = 60  # a bulletin this short can only say that there is no report
_NIL_DAYS_MAX = 28
_SPECIAL_SHARE = 0.02
_CORRECTED_SHARE = 0.01
_CORRECTION_DELAY_S = (20.0, 180.0)
_AUTOMATIC_SHARE = 0.3
_HEAD_BYTES = 40  # heading with BBB group, kind of report, line ends
_LARGE_BYTES = 900  # beyond what the smaller collectives can fill
_REPORT_BYTES_MAX: dict[Style, int] = {"us": 115, "canada": 100, "icao": 75}
_CORRECTED: dict[Style, str] = {"us": "{}COR ", "canada": "{}CCA ", "icao": "COR {}"}


class Report(msgspec.Struct, frozen=True, gc=False):
    """One observation, in the units that its text uses."""

    station: str
    style: Style
    minute: int  # since 1970
    wind_deg: int | None  # None is variable; 0 with a speed of 0 is calm
    wind_kt: int
    gust_kt: int  # 0 is none
    sky: Sky
    temperature_c10: int
    dewpoint_c10: int
    pressure_hpa10: int
    automatic: bool = False
    corrected: bool = False
    missing: bool = False  # NIL: nothing but station and time was sent


def encode(report: Report) -> str:
    """The text of a report, from the station to the `=` that ends it."""
    opening = f"{report.station} {day_hour_minute(report.minute)}Z "
    if report.missing:
        return opening + "NIL="
    style = report.style
    if report.corrected:
        opening = _CORRECTED[style].format(opening)
    elif report.automatic:
        opening += "AUTO "
    wind = _wind(report.wind_deg, report.wind_kt, report.gust_kt)
    temperature, dewpoint = report.temperature_c10, report.dewpoint_c10
    values = f"{wind} {_sky(report.sky, style)} {_whole(temperature)}/{_whole(dewpoint)}"
    pressure = _pressure(report.pressure_hpa10, style)
    if style == "us":
        return f"{opening}{values} {pressure} T{_tenths(temperature)}{_tenths(dewpoint)}="
    return f"{opening}{values} {pressure}="


@cache
def _wind(deg: int | None, kt: int, gust_kt: int) -> str:
    direction = "VRB" if deg is None else f"{deg:03d}"
    gust = f"G{gust_kt:02d}" if gust_kt else ""
    return f"{direction}{kt:02d}{gust}KT"


@lru_cache(maxsize=4096)
def _sky(sky: Sky, style: Style) -> str:
    """Visibility, present weather and clouds."""
    icao = style == "icao"
    if icao and sky.cavok:
        return "CAVOK"
    visibility = f"{sky.visibility.metres:04d}" if icao else sky.visibility.miles_text
    clouds = [f"{cover}{base:03d}{kind}" for cover, base, kind in sky.clouds]
    weather = [sky.phenomena] if sky.phenomena else []
    return " ".join((visibility, *weather, *(clouds or ["NSC" if icao else "CLR"])))


@cache
def _pressure(hpa10: int, style: Style) -> str:
    """Pressure, and the remarks up to the sea-level pressure where they follow it."""
    if style == "icao":
        return f"Q{hpa10 // 10:04d}"
    sensor = "AO2 " if style == "us" else ""
    return f"A{round(hpa10 * 10 / HPA_PER_INCH):04d} RMK {sensor}SLP{hpa10 % 1000:03d}"


@cache
def _whole(c10: int) -> str:
    """Whole degrees, halves up; M marks what is below zero, also when it rounds to zero."""
    return f"{(c10 + 5) // 10:02d}" if c10 >= 0 else f"M{-((c10 + 5) // 10):02d}"


@cache
def _tenths(c10: int) -> str:
    return f"0{c10:03d}" if c10 >= 0 else f"1{-c10:03d}"


class Station:
    """A place that reports: its weather, and the minute of its last report."""

    __slots__ = ("_automatic", "_name", "_style", "_weather", "minute")

    def __init__(self, source: random.Random, name: str, collective: Collective) -> None:
        self._name = name
        self._style = collective.style
        self._weather = StationWeather(source, collective.climate_c)
        self._automatic = collective.style == "us" and source.random() < _AUTOMATIC_SHARE
        self.minute = 0

    def report(self, source: random.Random, minute: int, *, missing: bool = False) -> Report:
        """The next observation, at `minute` or at the first minute not yet used here."""
        self.minute = minute if minute > self.minute else self.minute + 1
        return self._observe(source, self.minute, corrected=False, missing=missing)

    def correction(self, source: random.Random, wrong: Report) -> Report:
        """Another report for the minute of `wrong`, with at least one other value."""
        while True:
            right = self._observe(source, wrong.minute, corrected=True, missing=False)
            if right.temperature_c10 != wrong.temperature_c10:
                return right

    def _observe(self, source: random.Random, minute: int, *, corrected: bool, missing: bool) -> Report:
        weather = self._weather
        weather.advance(source)
        direction = weather.wind_10deg * 10 if weather.wind_kt else 0
        return Report(
            self._name,
            self._style,
            minute,
            None if weather.wind_variable else direction,
            weather.wind_kt,
            weather.gust_kt,
            weather.sky,
            weather.temperature_c10,
            weather.temperature_c10 - weather.spread_c10,
            weather.pressure_hpa10,
            self._automatic and not corrected,
            corrected,
            missing,
        )


class Network:
    """The stations of a collective, which report in turn."""

    __slots__ = ("_next", "collective", "stations")

    def __init__(self, source: random.Random, collective: Collective) -> None:
        self.collective = collective
        self.stations = [Station(source, name, collective) for name in collective.stations]
        self._next = 0

    def turn(self) -> int:
        """The index of the station whose turn it is."""
        index = self._next
        self._next = (index + 1) % len(self.stations)
        return index


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A bulletin that will be corrected, and the report in it that was wrong."""

    heading: Heading
    station: Station
    report: Report


class MetarMaker:
    """Bulletins of METAR reports, now and then a SPECI or a correction."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._networks = [Network(source, collective) for collective in COLLECTIVES]
        self._large = [network for network in self._networks if network.collective.style == "us"]
        # Stations that fill the large bulletins have less to say in the small ones.
        weights = [len(n.stations) / (4 if n in self._large else 1) for n in self._networks]
        self._weights = list(accumulate(weights))
        self._headings = HeadingLog()
        self._corrections: Replacements[_Wrong] = Replacements()
        self._nil_until_s: float | None = None

    def make(self, time_s: float, serial: int, size: int) -> Content:
        del serial  # station and minute make a bulletin unique
        wrong = self._corrections.take(time_s)
        if wrong is not None:
            right = wrong.station.correction(self._random, wrong.report)
            return _bulletin("METAR", wrong.heading, "CCA", [encode(right)])
        if self._nil_until_s is None:
            self._nil_until_s = time_s + _NIL_DAYS_MAX * S_PER_DAY
        return self._compile(time_s, size)

    def _compile(self, time_s: float, size: int) -> Content:
        source = self._random
        network = self._network(size)
        first = network.turn()
        name, centre = network.collective.heading_name(first), network.collective.centre
        minute = int(time_s) // S_PER_MINUTE
        nil = time_s < (self._nil_until_s or 0.0)
        if source.random() < _SPECIAL_SHARE:
            special = network.stations[first].report(source, minute)
            heading = Heading("SP" + name[2:], centre, special.minute)
            return _bulletin("SPECI", heading, self._headings.take(heading), [encode(special)])

        missing = nil and size < _NIL_SIZE_BYTES
        report = network.stations[first].report(source, minute, missing=missing)
        lines = [encode(report)]
        self._add_reports(network, minute, size - _HEAD_BYTES - len(lines[0]), lines, nil=nil)
        heading = Heading(name, centre, report.minute)
        bbb = self._headings.take(heading)
        if not bbb and not missing and source.random() < _CORRECTED_SHARE:
            low, high = _CORRECTION_DELAY_S
            due_s = time_s + low + source.random() * (high - low)
            self._corrections.plan(due_s, _Wrong(heading, network.stations[first], report))
        return _bulletin("METAR", heading, bbb, lines)

    def _add_reports(self, network: Network, minute: int, room: int, lines: list[str], *, nil: bool) -> None:
        """Let further stations report, each once, as long as `room` bytes are left."""
        source = self._random
        needed = _REPORT_BYTES_MAX[network.collective.style]
        nil_share = _NIL_SHARE if nil else 0.0
        while room >= needed and len(lines) < len(network.stations):
            station = network.stations[network.turn()]
            chance = source.random()
            line = encode(station.report(source, minute - int(chance * 8), missing=chance < nil_share))
            lines.append(line)
            room -= len(line) + len(LINE_END)

    def _network(self, size: int) -> Network:
        if size >= _LARGE_BYTES:
            return self._large[int(self._random.random() * len(self._large))]
        return self._random.choices(self._networks, cum_weights=self._weights)[0]


def _bulletin(kind: str, heading: Heading, bbb: str, lines: list[str]) -> Content:
    line = heading.text(bbb)
    text = LINE_END.join((line, kind, *lines, ""))
    return Content(FEED, f"{line} /p{kind}", text.encode("ascii"), 5 if kind == "SPECI" else 4)
