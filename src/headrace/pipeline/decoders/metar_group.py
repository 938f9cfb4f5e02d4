"""Groups of a METAR: the meaning of a single word of the body.

`read_group` recognizes a word by its form alone and returns (kind, values). The same words occur again and again
(`10SM`, `BKN015`), so the results for the latest 32,768 words are cached. A word longer than any group is unknown.

Units: m/s, m, °C, hPa, degrees. Patterns match a whole word and consist of alternatives of fixed length, so they take
time in proportion to the word.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

M_PER_MILE = 1609.344
M_PER_HUNDRED_FEET = 30.48
HPA_PER_INCH = 33.86388640341
SPEEDS = {"KT": 1852 / 3600, "KTS": 1852 / 3600, "MPS": 1.0, "KMH": 1 / 3.6}
FAR_M = 10_000.0  # meaning of 9999 and CAVOK: this or more
GROUP_CHARS_MAX = 20

_KEPT = 1 << 15


# Kinds of groups, and the values of each.
UNKNOWN = 0  # the word
IGNORED = 1  # None: known and not used, as runway visual range, recent weather, missing values
WIND = 2  # direction | None, variable, speed | None, gust | None
WIND_RANGE = 3  # from, to
VISIBILITY = 4  # metres, limit | None
MILES = 5  # metres, if a fraction of a mile follows
WEATHER = 6  # as written
SKY = 7  # cover | None, base in metres | None, type | None
TEMPERATURE = 8  # temperature | None, dew point | None
PRESSURE = 9  # hPa
TREND = 10  # None: the rest is a forecast
MODIFIER = 11  # AUTO, COR or NIL
COLOR = 12  # colour state of a military station, as written

Group = tuple[int, Any]

_WIND = re.compile(r"([0-9]{3}|VRB|///)(P?[0-9]{2,3}|//)(?:G(P?[0-9]{2,3}|//))?(KTS?|MPS|KMH)")
_WIND_RANGE = re.compile(r"([0-9]{3})V([0-9]{3})")
_METRES = re.compile(r"([0-9]{4})(?:NDV|[NS][EW]?|[EW])?")
_UNITS = re.compile(r"([MP]?)(?:([0-9]{1,2})|([0-9]{1,2})/([0-9]{1,2})|([0-9]{1,2})([1-9])/([1-9][0-9]?))(SM|KM)")
_MILES = re.compile(r"[1-9][0-9]?")
_WEATHER = re.compile(
    r"(?:[-+]|[-+]?VC)?(?:MI|PR|BC|DR|BL|SH|TS|FZ){0,2}(?:DZ|RA|SN|SG|IC|PL|PE|GR|GS|UP){0,3}"
    r"(?:BR|FG|FU|VA|DU|SA|HZ|PY)?(?:PO|SQ|FC|SS|DS|NSW)?"
)
_SKY = re.compile(r"(FEW|SCT|BKN|OVC|VV|///)([0-9]{3}|///)(CB|TCU|///|[A-Z]{2,4})?")
_TEMPERATURE = re.compile(r"([M-]?[0-9]{1,2}|//|XX|MM)/([M-]?[0-9]{1,2}|//|XX|MM)?")
_INCHES = re.compile(r"A([0-9]{4})|QNH([0-9]{4})INS")
_HECTOPASCALS = re.compile(r"Q([0-9]{3,4})")
_OTHER = re.compile(
    r"/{1,10}|[AQ]/{4}|R[0-9]{2}[LCR]{0,2}/.*|R/SNOCLO|RE[A-Z/]{2,8}|RWY[0-9]{0,2}[LCR]?|R[0-9]{2}[LCR]?"
    r"|W[M0-9/]{2,3}/[SH].{1,3}|[0-9]{8}|[0-9]{2}CLRD(?:[0-9]{2}|//)|M{1,2}"
)
_TREND = re.compile(
    r"(?:NOSIG|NSIG|NOSI|NOSG|BECMG|BCMG|TEMPO|TEMP0|INTER|GRADU|RAPID|PROB|TREND|TEND|FCST|FM)(?:FM|TL|AT)?"
    r"[0-9]{0,6}(?:/[0-9]{4,6})?Z?[:;,./]?"
)
_STATE = r"(?:BLACK|(?:BLACK)?(?:BLU|WHT|GRN|YLO[12]?|AMB[12]?|RED)\+?)"
_COLOR = re.compile(rf"{_STATE}(?:/?{_STATE})?/?")

_WORDS: Mapping[str, Group] = MappingProxyType(
    {
        **{word: (SKY, (word, None, None)) for word in ("CLR", "SKC", "NSC", "NCD")},
        **dict.fromkeys(("COR", "CORR", *(f"CC{letter}" for letter in "ABCDEFGHIJ")), (MODIFIER, "COR")),
        **dict.fromkeys(("NIL", "FINO"), (MODIFIER, "NIL")),
        **dict.fromkeys(("RTD", "TEST", "NOSPECI", "RVRNO", "WS", "ALL", "RWY"), (IGNORED, None)),
        "AUTO": (MODIFIER, "AUTO"),
        "CAVOK": (VISIBILITY, (FAR_M, ">")),
    }
)


@lru_cache(_KEPT)
def read_group(word: str) -> Group:
    """The kind and the values of a word of the body."""
    if len(word) > GROUP_CHARS_MAX:
        return UNKNOWN, word
    known = _WORDS.get(word)
    if known is not None:
        return known
    for pattern, read in _READERS:
        match = pattern.fullmatch(word)
        if match is not None:
            return read(match)
    return UNKNOWN, word


def _wind(match: re.Match[str]) -> Group:
    direction, speed, gust, unit = match.groups()
    factor = SPEEDS[unit]
    degrees = int(direction) if direction.isdecimal() else None
    values = (degrees, direction == "VRB", _speed(speed, factor), _speed(gust, factor))
    return (WIND, values) if degrees is None or degrees <= 360 else (UNKNOWN, match[0])


def _speed(text: str | None, factor: float) -> float | None:
    return None if text is None or text == "//" else int(text.removeprefix("P")) * factor


def _wind_range(match: re.Match[str]) -> Group:
    low, high = int(match[1]), int(match[2])
    return (WIND_RANGE, (low, high)) if max(low, high) <= 360 else (UNKNOWN, match[0])


def _metres(match: re.Match[str]) -> Group:
    metres = int(match[1])
    return VISIBILITY, ((FAR_M, ">") if metres == 9999 else (float(metres), None))


def _in_units(match: re.Match[str]) -> Group:
    limit, whole, above, below, joined, joined_above, joined_below, unit = match.groups()
    if whole is not None:
        value = float(whole)
    elif below is not None:
        value = int(above) / int(below) if int(below) else -1.0
    else:
        value = int(joined) + int(joined_above) / int(joined_below)
    if value < 0:
        return UNKNOWN, match[0]
    metres = value * (M_PER_MILE if unit == "SM" else 1000)
    return VISIBILITY, (metres, {"M": "<", "P": ">"}.get(limit))


def _sky(match: re.Match[str]) -> Group:
    cover, base, kind = match.groups()
    values = (
        None if cover == "///" else cover,
        None if base == "///" else int(base) * M_PER_HUNDRED_FEET,
        None if kind == "///" else kind,
    )
    return (IGNORED, None) if values == (None, None, None) else (SKY, values)


def _temperature(match: re.Match[str]) -> Group:
    return TEMPERATURE, (_degrees(match[1]), _degrees(match[2]))


def _degrees(text: str | None) -> float | None:
    if text is None or text in ("//", "XX", "MM"):
        return None
    return -float(text[1:]) if text[0] in "M-" else float(text)


_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Group]], ...] = (
    (_WIND, _wind),
    (_SKY, _sky),
    (_METRES, _metres),
    (_UNITS, _in_units),
    (_TEMPERATURE, _temperature),
    (_INCHES, lambda match: (PRESSURE, int(match[1] or match[2]) / 100 * HPA_PER_INCH)),
    (_HECTOPASCALS, lambda match: (PRESSURE, float(match[1]))),
    (_WEATHER, lambda match: (WEATHER, match[0])),
    (_WIND_RANGE, _wind_range),
    (_MILES, lambda match: (MILES, float(match[0]) * M_PER_MILE)),
    (_TREND, lambda match: (TREND, None)),
    (_COLOR, lambda match: (COLOR, match[0])),
    (_OTHER, lambda match: (IGNORED, None)),
)
