"""The weather at a station, as a state that moves from one observation to the next.

The state is what a METAR can say, in whole numbers of the unit it is written in, so that text
decoded again equals it exactly. It is coherent:

    dew point <= temperature, close to it in fog and rain, far from it in haze
    rain above freezing, snow below; fog under 1 km, mist from 1 to 5 km
    cloud bases ascend and lie on the heights that are reported

A regime (clear, rain, fog ...) lasts for some thirty observations. Temperature, pressure and wind
walk a step per observation and are drawn back to their means. How it is written down is in
`metar`.
"""

import random
from dataclasses import dataclass
from typing import NamedTuple


class Visibility(NamedTuple):
    """One step of the reported scale, in both of its notations."""

    miles: float
    miles_text: str
    metres: int  # 9999 is 10 km or more


class Cloud(NamedTuple):
    """A layer: FEW, SCT, BKN, OVC or VV (sky obscured), and its base."""

    cover: str
    base_100ft: int
    kind: str = ""  # CB when the layer is a thundercloud


@dataclass(frozen=True, slots=True, eq=False)
class Sky:
    """Visibility, present weather and clouds: what lasts as long as a regime does.

    Skies are compared by identity, which makes it cheap to remember how one is written.
    """

    visibility: Visibility
    phenomena: str
    clouds: tuple[Cloud, ...]

    @property
    def cavok(self) -> bool:
        """Ceiling and visibility OK: 10 km, no weather, no cloud under 5,000 ft, no CB."""
        if self.phenomena or self.visibility.metres != 9999:
            return False
        return all(cloud.base_100ft >= 50 and not cloud.kind for cloud in self.clouds)


class Layer(NamedTuple):
    """Where a regime puts a cloud layer."""

    cover: str
    lowest_100ft: int
    highest_100ft: int
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Regime:
    """A kind of weather: what falls, how far one sees, which clouds there are."""

    warm: str  # present weather at and above freezing
    cold: str  # present weather below
    visibilities: tuple[Visibility, ...]
    layers: tuple[Layer, ...]
    spread_min_c10: int  # temperature minus dew point, in tenths
    spread_max_c10: int


_FAR = (Visibility(10, "10SM", 9999),)
_FAIR = (Visibility(10, "10SM", 9999), Visibility(7, "7SM", 9999), Visibility(6, "6SM", 9000))
_DIM = (Visibility(5, "5SM", 8000), Visibility(4, "4SM", 6000), Visibility(3, "3SM", 4800))
_POOR = (Visibility(2, "2SM", 3200), Visibility(1.5, "1 1/2SM", 2400), Visibility(1, "1SM", 1600))
_FOGGY = (Visibility(0.5, "1/2SM", 800), Visibility(0.25, "1/4SM", 400))
_HAZY = (Visibility(3, "3SM", 4800), *_POOR)

REGIMES: tuple[Regime, ...] = (
    Regime("", "", _FAR, (), 20, 250),
    Regime("", "", _FAR, (Layer("FEW", 30, 60), Layer("SCT", 80, 150)), 30, 200),
    Regime(
        "",
        "",
        _FAR,
        (Layer("FEW", 60, 90), Layer("SCT", 120, 170), Layer("BKN", 200, 250)),
        30,
        250,
    ),
    Regime("", "", _FAIR, (Layer("SCT", 12, 30), Layer("BKN", 40, 80), Layer("OVC", 90, 200)), 20, 120),
    Regime("-RA", "-SN", _DIM, (Layer("BKN", 8, 25), Layer("OVC", 30, 60)), 4, 30),
    Regime("RA BR", "SN", _POOR, (Layer("BKN", 4, 10), Layer("OVC", 12, 30)), 2, 15),
    Regime("-DZ BR", "-FZDZ BR", _HAZY, (Layer("OVC", 2, 9),), 0, 10),
    Regime("-SHRA", "-SHSN", _FAIR, (Layer("FEW", 15, 25), Layer("BKN", 35, 60)), 10, 60),
    Regime(
        "+TSRA",
        "SHSN",
        _POOR,
        (Layer("FEW", 10, 20), Layer("BKN", 25, 40, "CB"), Layer("OVC", 80, 120)),
        5,
        40,
    ),
    Regime("TSRA", "-SHSN", _DIM, (Layer("SCT", 25, 40, "CB"), Layer("BKN", 60, 100)), 10, 60),
    Regime("BR", "BR", _HAZY, (Layer("SCT", 3, 12),), 0, 20),
    Regime("FG", "FZFG", _FOGGY, (Layer("VV", 1, 4),), 0, 5),
    Regime("HZ", "HZ", _HAZY, (), 50, 200),
)

_PRESSURE_MEAN_HPA10 = 10_140
_PRESSURE_MIN_HPA10, _PRESSURE_MAX_HPA10 = 9_600, 10_450
_GUSTY_KT = 13


class StationWeather:
    """The state at one station; `advance` moves it to the next observation."""

    __slots__ = (
        "_mean_c10",
        "_regime",
        "gust_kt",
        "pressure_hpa10",
        "sky",
        "spread_c10",
        "temperature_c10",
        "wind_10deg",
        "wind_kt",
        "wind_variable",
    )

    def __init__(self, source: random.Random, climate_c: int) -> None:
        self._mean_c10 = climate_c * 10 + int(source.gauss(0, 30))
        self.temperature_c10 = self._mean_c10 + int(source.gauss(0, 30))
        self.spread_c10 = 60
        self.pressure_hpa10 = _PRESSURE_MEAN_HPA10 + int(source.gauss(0, 60))
        self.wind_10deg = 1 + int(source.random() * 36)
        self.wind_kt = int(source.random() * 15)
        self.gust_kt = 0  # 0 is none
        self.wind_variable = False
        self._enter(source)
        self.advance(source)

    def advance(self, source: random.Random) -> None:
        """Walk one step. The bits of one draw serve all walks, as millions of steps are taken."""
        bits = source.getrandbits(26)
        if bits & 3 == 0:
            self._advance_slowly(source, bits >> 13)
        before = self.temperature_c10
        after = before + (bits >> 2 & 7) - 3 - (before > self._mean_c10)
        self.temperature_c10 = after
        if (before < 0) != (after < 0):
            self._look_up(self.sky.visibility, self.sky.clouds)
        wind = self.wind_kt + (bits >> 5 & 3) - 1 - (self.wind_kt > 9)
        self.wind_kt = wind = wind if wind > 0 else 0
        self.gust_kt = wind + 5 + (bits >> 7 & 7) if wind >= _GUSTY_KT and bits >> 10 & 1 else 0
        self.wind_variable = 0 < wind <= 5 and bits >> 10 & 7 == 0

    def _advance_slowly(self, source: random.Random, bits: int) -> None:
        """What moves only now and then: pressure, humidity, wind direction, the regime."""
        if bits & 7 == 0:
            self._enter(source)
        regime = self._regime
        spread = self.spread_c10 + (bits >> 3 & 7) - 3 - (bits >> 6 & 1)
        self.spread_c10 = _within(spread, regime.spread_min_c10, regime.spread_max_c10)
        pressure = self.pressure_hpa10 + (bits >> 7 & 3) - 1 - (self.pressure_hpa10 > _PRESSURE_MEAN_HPA10)
        self.pressure_hpa10 = _within(pressure, _PRESSURE_MIN_HPA10, _PRESSURE_MAX_HPA10)
        self.wind_10deg = (self.wind_10deg + (bits >> 9 & 3) - 2 - (bits >> 11 & 1)) % 36 + 1

    def _enter(self, source: random.Random) -> None:
        """Change to a regime of any kind, with a sky of its own."""
        self._regime = regime = REGIMES[int(source.random() * len(REGIMES))]
        visibility = regime.visibilities[int(source.random() * len(regime.visibilities))]
        self.spread_c10 = _within(self.spread_c10, regime.spread_min_c10, regime.spread_max_c10)
        self._look_up(visibility, tuple(_cloud(source, layer) for layer in regime.layers))

    def _look_up(self, visibility: Visibility, clouds: tuple[Cloud, ...]) -> None:
        phenomena = self._regime.cold if self.temperature_c10 < 0 else self._regime.warm
        self.sky = Sky(visibility, phenomena, clouds)


def reported_base_100ft(base_100ft: int) -> int:
    """The reported height: steps of 100 ft up to 5,000, of 500 up to 10,000, then of 1,000."""
    if base_100ft <= 50:
        return base_100ft
    if base_100ft <= 100:
        return base_100ft // 5 * 5
    return base_100ft // 10 * 10


def _cloud(source: random.Random, layer: Layer) -> Cloud:
    base = layer.lowest_100ft + int(source.random() * (layer.highest_100ft - layer.lowest_100ft))
    return Cloud(layer.cover, reported_base_100ft(base), layer.kind)


def _within(value: int, low: int, high: int) -> int:
    return low if value < low else high if value > high else value
