"""Sizes, ages and times as people write them.

`parse_size("2GiB")`, `parse_age("1h")`, `parse_time("2026-11-15T12:00Z")`; each also takes numbers. An
OptionError quotes an invalid text and says what to write. A length of time as text has a unit, in files, options and
arguments alike, unless it is 0: "5" could mean seconds to one reader and minutes to another. Not here: anything that
reads a clock.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from headrace.errors import OptionError

_SIZES = {
    "": 1, "B": 1,
    "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4,
}  # fmt: skip
_AGES_S = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "min": 60,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "w": 604800,
}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: int | float | str, what: str = "size") -> int:
    """Bytes. Numbers are bytes already; text has a unit (`"512MiB"`, `"2GB"`)."""
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None or match[2] not in _SIZES:
            raise OptionError(
                f"{what} {value!r} is not a size",
                'write a number and a unit, such as "2GiB" or "500MB"',
            )
        try:
            return int(float(match[1]) * _SIZES[match[2]])
        except OverflowError:
            raise OptionError(f"{what} has {len(match[1])} digits", 'write a size such as "2GiB" or "500MB"') from None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != value:
        raise OptionError(f"{what} {value!r} is not a size", 'give bytes as a number, or text such as "2GiB"')
    return int(value)


def parse_age(value: int | float | str | timedelta, what: str = "age") -> float:
    """Seconds. Numbers are seconds already; text has a unit (`"1h"`, `"90s"`, `"2d"`)."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is not None and not match[2] and not float(match[1]):
            return 0.0
        if match is not None and not match[2]:
            raise OptionError(f"{what} {value!r} has no unit", f'write "{match[1]}s" for seconds, or another unit')
        if match is None or match[2] not in _AGES_S:
            raise OptionError(
                f"{what} {value!r} is not a length of time",
                'write a number and a unit, such as "1h" or "90s"',
            )
        value = float(match[1]) * _AGES_S[match[2]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise OptionError(f"{what} {value!r} is not a length of time", 'give seconds, or text such as "1h"')
    return float(value)


def parse_time(value: int | str | datetime, what: str = "time") -> int:
    """Nanoseconds since 1970, UTC. Text is ISO 8601; a time without a zone is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise OptionError(
                f"{what} {value!r} is not a time", 'write ISO 8601, such as "2026-11-15T12:00Z"'
            ) from None
        if value.tzinfo is None:
            value = value.replace(tzinfo=UTC)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise OptionError(f"{what} {value!r} has no time zone", "give it one: datetime.now(UTC)")
        since = value - datetime(1970, 1, 1, tzinfo=UTC)
        value = (since.days * 86400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise OptionError(
            f"{what} {value!r} is not a time",
            "give nanoseconds since 1970, a datetime or ISO 8601 text",
        )
    return value


def format_size(size: float) -> str:
    """`1536` → `1.5 KiB`."""
    if round(size) < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if round(size, 1) < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def format_age(seconds: float) -> str:
    """`5400` → `1.5 h`, `0.25` → `250 ms`. What is not zero is not shown as zero."""
    if seconds < 0.9995:  # rounded, so that no text says 1000 ms, 60.0 s or 24.0 h
        return f"{max(1, round(seconds * 1000))} ms" if seconds > 0 else "0 s"
    for unit, length, half_digit in (("d", 86400, 180), ("h", 3600, 3), ("min", 60, 0.05)):
        if seconds >= length - half_digit:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def exact_size(size: int) -> str:
    """The shortest text that `parse_size` reads as exactly this: `2147483648` → `2GiB`."""
    units = ("TiB", "GiB", "MiB", "KiB", "GB", "MB", "kB") if size else ()
    return next((f"{size // _SIZES[unit]}{unit}" for unit in units if size % _SIZES[unit] == 0), f"{size}B")


def exact_age(seconds: float) -> str:
    """The shortest text that `parse_age` reads as exactly this: `5400.0` → `90min`."""
    units = ("d", "h", "min", "s", "ms") if seconds >= 0.001 else ("s", "us", "ns")
    texts = (f"{round(seconds / _AGES_S[unit])}{unit}" for unit in units)
    decimal = f"{format(Decimal(repr(seconds)), 'f').removesuffix('.0')}s"
    return next((text for text in texts if parse_age(text) == seconds), decimal)


def format_time(ns: int) -> str:
    """Nanoseconds since 1970 as ISO 8601 with milliseconds."""
    return datetime.fromtimestamp(ns // 1_000_000 / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_latency(seconds: float) -> str:
    """As `format_age`, down to microseconds: `0.00042` → `420 µs`."""
    if seconds >= 0.99995:
        return format_age(seconds)
    if seconds >= 0.0009995:
        return f"{seconds * 1e3:.1f} ms"
    return f"{max(0.0, seconds) * 1e6:.0f} µs"


def format_count(count: int, noun: str) -> str:
    """`1 product`, `2,000 products`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
