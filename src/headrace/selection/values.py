"""Values of clauses: what callers may write becomes the one form that a selection keeps, and its text.

Each clause has a pair of functions: `…_of` takes what a caller may give (as an argument, in TOML or JSON, in the text
language) and returns the canonical value or raises SelectionError; `…_text` writes a canonical value in the text
language, so that `…_of` reads it back. A clause that selects everything is None.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from headrace.errors import OptionError, SelectionError
from headrace.product.product import PRIORITY_MAX, SLICE_MAX
from headrace.units import parse_age, parse_time

Span = tuple[int | None, int | None]

EVERY_MAX = 1_000_000_000
ORIGINS_MAX = 4096
_DIGITS_MAX = 20
_PRIORITY = re.compile(r"\s*(?:(>=|<=)\s*([0-9]+)|([0-9]+)?\s*\.\.\s*([0-9]+)?|([0-9]+))\s*")
_SLICES = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+))?\s*")
_ORIGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# --- priority -------------------------------------------------------------------------------------

_PRIORITY_HINT = f'write 5, "5..7", "5.." or ">=5"; priorities go from 0 to {PRIORITY_MAX}, the most urgent'


def priority_of(value: Any) -> tuple[int, int] | None:
    """Lowest and highest priority."""
    if isinstance(value, str):
        low, high = _read_priority(value)
    elif is_whole(value):
        low = high = value
    elif isinstance(value, list | tuple) and len(value) == 2:
        low, high = (0 if value[0] is None else value[0]), (PRIORITY_MAX if value[1] is None else value[1])
    else:
        raise SelectionError(f"priority {value!r} is invalid", _PRIORITY_HINT)
    if not is_whole(low) or not is_whole(high) or not 0 <= low <= high <= PRIORITY_MAX:
        raise SelectionError(f"priority {value!r} is out of range", _PRIORITY_HINT)
    return None if (low, high) == (0, PRIORITY_MAX) else (low, high)


def _read_priority(text: str) -> tuple[int, int]:
    found = _PRIORITY.fullmatch(text)
    if found is None or not any(found.groups()):
        raise SelectionError(f"priority {text!r} is invalid", _PRIORITY_HINT)
    sign, bound, low, high, only = found.groups()
    if only is not None:
        return number_in(only), number_in(only)
    if sign is not None:
        return (number_in(bound), PRIORITY_MAX) if sign == ">=" else (0, number_in(bound))
    return number_in(low or "0"), PRIORITY_MAX if high is None else number_in(high)


def priority_text(priority: tuple[int, int]) -> str:
    low, high = priority
    if low == high:
        return str(low)
    return f"{low or ''}..{'' if high == PRIORITY_MAX else high}"


# --- origin ---------------------------------------------------------------------------------------


def origin_of(value: Any) -> tuple[str, ...]:
    """Ids of sites, sorted."""
    origins = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(origins, Iterable):
        raise SelectionError(f"origin {value!r} is invalid", "give one site id, or a list of them")
    origins = tuple(origins)
    for origin in origins:
        if not isinstance(origin, str) or not _ORIGIN.fullmatch(origin):
            hint = "use 1 to 63 letters, digits, dots, dashes or underscores"
            raise SelectionError(f"origin {origin!r} is not a site id", hint)
    if not 1 <= len(origins) <= ORIGINS_MAX:
        raise SelectionError(f"origin has {len(origins)} site ids", f"give 1 to {ORIGINS_MAX}")
    return tuple(sorted(set(origins)))


# --- slices ---------------------------------------------------------------------------------------

_SLICES_HINT = f'write "0-7,12" or a list of numbers; slices go from 0 to {SLICE_MAX}'


def slices_of(value: Any) -> tuple[int, ...]:
    """Slice numbers, sorted."""
    if isinstance(value, str):
        numbers = _read_slices(value)
    elif is_whole(value):
        numbers = [value]
    elif isinstance(value, Iterable):
        numbers = list(value)
    else:
        raise SelectionError(f"slices {value!r} are invalid", _SLICES_HINT)
    for number in numbers:
        if not is_whole(number) or not 0 <= number <= SLICE_MAX:
            raise SelectionError(f"slice {number!r} is out of range", _SLICES_HINT)
    if not numbers:
        raise SelectionError("the list of slices is empty", _SLICES_HINT)
    return tuple(sorted(set(numbers)))


def _read_slices(text: str) -> list[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        found = _SLICES.fullmatch(part)
        if found is None:
            raise SelectionError(f"slices {text[:80]!r} are invalid", _SLICES_HINT)
        first, last = number_in(found[1]), number_in(found[2] or found[1])
        if not first <= last <= SLICE_MAX:
            raise SelectionError(f"slices {part.strip()!r} are out of range", _SLICES_HINT)
        numbers.update(range(first, last + 1))
    return list(numbers)


def slices_text(slices: tuple[int, ...]) -> str:
    spans: list[list[int]] = []
    for number in slices:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


# --- created --------------------------------------------------------------------------------------

_CREATED_HINT = 'write "2026-01-01..2026-01-02T12:00", where one side may be missing; the end is not included'


def created_of(value: Any) -> Span | None:
    """Nanoseconds from and to; the end is not included."""
    if isinstance(value, str):
        first, dots, last = value.partition("..")
        if not dots:
            raise SelectionError(f"created {value!r} is not a time range", _CREATED_HINT)
        value = (first.strip() or None, last.strip() or None)
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise SelectionError(f"created {value!r} is not a time range", _CREATED_HINT)
    first_ns, last_ns = (None if side is None else parse_moment(side, "created") for side in value)
    if first_ns is not None and last_ns is not None and first_ns >= last_ns:
        raise SelectionError("created ends before it begins", _CREATED_HINT)
    return None if first_ns is None and last_ns is None else (first_ns, last_ns)


def created_text(created: Span) -> str:
    return "..".join("" if side is None else format_moment(side) for side in created)


# --- age and prescale -----------------------------------------------------------------------------


def max_age_of(value: Any) -> float:
    """Seconds."""
    try:
        seconds = parse_age(value, "age")
    except OptionError as error:
        raise SelectionError(error.problem, error.hint) from None
    if not 0 < seconds < 1e10:
        raise SelectionError(f"age {value!r} is out of range", 'give seconds, or text such as "1h"')
    return seconds


def max_age_text(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds % length == 0:
            return f"{int(seconds // length)}{unit}"
    return f"{format(Decimal(repr(seconds)), 'f').removesuffix('.0')}s"


def number_in(digits: str) -> int:
    """A whole number; one with more than 20 digits counts as one of 20, which is out of every range."""
    return int(digits) if len(digits) <= _DIGITS_MAX else 10**_DIGITS_MAX


def every_of(value: Any) -> int:
    """The N of every Nth product; 1 is each."""
    if isinstance(value, str) and value.isdecimal():
        value = number_in(value)
    if not is_whole(value) or not 1 <= value <= EVERY_MAX:
        raise SelectionError(f"every {value!r} is not a prescale", "give a positive integer: 10 is every tenth")
    assert isinstance(value, int)
    return value


# --- replay ---------------------------------------------------------------------------------------

_RUN = re.compile(r"[0-9a-f]{16}")


def replay_of(value: Any) -> bool | str:
    """Whether a replay put the product; or the run of the replay, 16 hexadecimal digits."""
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else ""
    if text in ("true", "false"):
        return text == "true"
    if _RUN.fullmatch(text):
        return text
    raise SelectionError(f"replay {value!r} is invalid", "write true, false, or the 16 hexadecimal digits of a run")


def replay_text(replay: bool | str) -> str:
    return replay if isinstance(replay, str) else str(replay).lower()


# --- moments: ISO 8601 to the nanosecond, in UTC unless a zone is given ---------------------------

MOMENT_MAX = (1 << 63) - 1
_FRACTION = re.compile(r"[.,]([0-9]{1,9})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_moment(value: object, what: str = "time") -> int:
    """Nanoseconds since 1970 from text, a datetime or a number; SelectionError otherwise."""
    fraction_ns = 0
    if isinstance(value, str):
        fraction = _FRACTION.search(value)
        if fraction is not None:
            fraction_ns = int(fraction[1].ljust(9, "0"))
            value = value[: fraction.start()] + value[fraction.end() :]
    try:
        moment = parse_time(value, what)  # type: ignore[arg-type]  # it refuses other types
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
