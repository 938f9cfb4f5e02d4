"""Canadian SA reports: hourly reports of automatic stations that are not at aerodromes, in collectives such as SACN74.

    NPL SA 0000 AUTO8 M M M 990/-36/-39/2703/M/ 7003 61MM
    station, kind, time; sky, visibility and weather (M: missing); then, between slashes, pressure at sea level (tens,
    units and tenths of hPa), temperature, dew point (°C), wind (tens of degrees, knots) and altimeter (inches)

Canada introduced METAR in 1996 for aerodromes; other stations have kept the form that aerodromes had before. The time
is that of the heading, with this hour and minute. What follows the last slash (tendency, tenths) is kept as text.
"""

import re
from typing import NamedTuple

from headrace.pipeline.decoders.day_of_month import US_PER_DAY, US_PER_MINUTE

M_S_PER_KNOT = 1852 / 3600
HPA_PER_INCH = 33.863886

_OPENING = re.compile(r"(?:COR )?([A-Z][A-Z0-9]{2,3}) (SA|SP) (COR )?([01][0-9]|2[0-4])([0-5][0-9]) (AUTO[0-9]? )?")
_VALUES = re.compile(
    r"(?<!\S)([0-9]{3}|M)? ?/ ?(-?[0-9]{1,2}|M)? ?/ ?(-?[0-9]{1,2}|M)? ?/ ?([0-9]{4}(?:[+G][0-9]{1,3})?|M)? ?"
    r"(?:/ ?([0-9]{3}|M)?)?/?(?!\S)"
)


class SaReport(NamedTuple):
    station: str
    kind: str
    observed_us: int
    is_automatic: bool
    is_corrected: bool
    pressure: float | None = None  # at sea level, hPa
    temperature: float | None = None
    dewpoint: float | None = None
    wind: tuple[int | None, float | None, float | None] = (None, None, None)  # direction, speed, gust
    altimeter: float | None = None  # hPa
    remarks: str | None = None
    unread: tuple[str, ...] = ()  # before the values


def read_sa(text: str, issued_us: int) -> SaReport | None:
    """A report on one line in capital letters, of a bulletin of this time; None if it is none."""
    opening = _OPENING.match(text)
    if opening is None:
        return None
    station, kind, correction, hour, minute, automatic = opening.groups()
    observed_us = _nearest_us(int(hour) * 60 + int(minute), issued_us)
    report = SaReport(station, kind, observed_us, automatic is not None, bool(correction) or text.startswith("COR "))
    values = _VALUES.search(text, opening.end())
    if values is None:
        return report._replace(unread=tuple(word for word in text[opening.end() :].split() if word != "M"))
    pressure, temperature, dewpoint, wind, altimeter = (None if each == "M" else each for each in values.groups())
    return report._replace(
        pressure=None if pressure is None else int(pressure) / 10 + (1000 if int(pressure) < 500 else 900),
        temperature=None if temperature is None else float(temperature),
        dewpoint=None if dewpoint is None else float(dewpoint),
        wind=_wind(wind),
        altimeter=None if altimeter is None else round(_inches(int(altimeter)) * HPA_PER_INCH, 1),
        remarks=" ".join(text[values.end() :].split()) or None,
        unread=tuple(word for word in text[opening.end() : values.start()].split() if word != "M"),
    )


def _nearest_us(minutes: int, issued_us: int) -> int:
    """The time of day that is nearest to the time of the bulletin."""
    at = issued_us // US_PER_DAY * US_PER_DAY + minutes * US_PER_MINUTE
    return min((at + days * US_PER_DAY for days in (-1, 0, 1)), key=lambda each: abs(each - issued_us))


def _wind(text: str | None) -> tuple[int | None, float | None, float | None]:
    if text is None:
        return None, None, None
    gust = re.split("[+G]", text[4:])[-1]
    direction, knots = int(text[:2]) * 10, int(text[2:4])
    if direction > 360:  # 100 knots and more
        direction, knots = direction - 500, knots + 100
    return direction, knots * M_S_PER_KNOT, int(gust) * M_S_PER_KNOT if gust else None


def _inches(hundredths: int) -> float:
    return (3000 if hundredths < 500 else 2000) / 100 + hundredths / 100
