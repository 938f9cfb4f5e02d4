"""Moments as text, to the nanosecond: ISO 8601, in UTC unless a zone is written.

`parse_moment("2026-01-01T12:00")`, `format_moment(ns)`; what one writes the other reads back to the same number.
"""

import re
from datetime import UTC, datetime, timedelta

from headrace.errors import OptionError, SelectionError
from headrace.units import parse_time

MOMENT_MAX = (1 << 63) - 1
_FRACTION = re.compile(r"[.,]([0-9]{1,9})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_moment(value: object, what: str = "time") -> int:
    """Nanoseconds since 1970 from text, a datetime or a number; SelectionError if it is none."""
    fraction_ns = 0
    if isinstance(value, str):
        fraction = _FRACTION.search(value)
        if fraction is not None:
            fraction_ns = int(fraction[1].ljust(9, "0"))
            value = value[: fraction.start()] + value[fraction.end() :]
    try:
        moment = parse_time(value, what)  # type: ignore[arg-type]  # it refuses what is of another type
    except OptionError as error:
        raise SelectionError(error.problem, error.hint) from None
    if moment + fraction_ns > MOMENT_MAX:
        raise SelectionError(f"{what} {value!r} is too late", "times end in the year 2262")
    return moment + fraction_ns


def format_moment(ns: int) -> str:
    """The shortest of `2026-01-01`, `2026-01-01T12:00Z`, `2026-01-01T12:00:05Z`, `2026-01-01T12:00:05.25Z`."""
    seconds, fraction = divmod(ns, 1_000_000_000)
    when = _EPOCH + timedelta(seconds=seconds)
    if fraction:
        return f"{when:%Y-%m-%dT%H:%M:%S}.{fraction:09d}".rstrip("0") + "Z"
    if when.second:
        return f"{when:%Y-%m-%dT%H:%M:%SZ}"
    return f"{when:%Y-%m-%dT%H:%MZ}" if when.hour or when.minute else f"{when:%Y-%m-%d}"
