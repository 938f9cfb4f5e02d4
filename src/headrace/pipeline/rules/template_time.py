"""Times in templates: how a time is written, and the time that digits of an ident mean.

Formats are the directives of strftime that mean the same everywhere: `%Y %y %m %d %j %H %M %S %f %b %B %a %A %%`. Names
of months and days are English in every locale.

An ident such as `SAUS70 KWBC 060053` has the day, hour and minute; decoders/day_of_month.py adds month and year, for
templates and for decoders alike. Day `00`, which is no day, stands for the day of creation. Digits may also be a full
date.

Spark's times span hundreds of thousands of years, Python's the years 1 to 9999: `beyond` finds the others.
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import RuleError
from headrace.pipeline.decoders.day_of_month import resolve_us

FULL = "%Y%m%dT%H%M%SZ"  # if no format is given
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DIRECTIVE = re.compile(r"%(.?)", re.S)
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_FULL_DATES = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}  # by the number of digits
_DAYS_SHOWN = (date.min.toordinal() - date(1970, 1, 1).toordinal(), date.max.toordinal() - date(1970, 1, 1).toordinal())
_PER_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_GRAINS = (("f", "microsecond"), ("S", "second"), ("M", "minute"), ("H", "hour"))

_PARTS: dict[str, Callable[[datetime], str]] = {
    "Y": lambda at: f"{at.year:04}",
    "y": lambda at: f"{at.year % 100:02}",
    "m": lambda at: f"{at.month:02}",
    "d": lambda at: f"{at.day:02}",
    "j": lambda at: f"{at.timetuple().tm_yday:03}",
    "H": lambda at: f"{at.hour:02}",
    "M": lambda at: f"{at.minute:02}",
    "S": lambda at: f"{at.second:02}",
    "f": lambda at: f"{at.microsecond:06}",
    "b": lambda at: _MONTHS[at.month - 1][:3],
    "B": lambda at: _MONTHS[at.month - 1],
    "a": lambda at: _DAYS[at.weekday()][:3],
    "A": lambda at: _DAYS[at.weekday()],
    "%": lambda at: "%",
}


def check_format(text: str) -> None:
    """RuleError names a directive that is not supported."""
    for found in _DIRECTIVE.finditer(text):
        if found[1] not in _PARTS:
            known = " ".join(f"%{name}" for name in _PARTS)
            raise RuleError(f"the time format has {found[0]!r}, which is not supported", f"use {known}")


@lru_cache(4096)
def format_moment(at: datetime | date, text: str) -> str:
    """A time in a format that has been checked. A date stands for its midnight; a time without a zone is UTC."""
    if not isinstance(at, datetime):
        at = datetime(at.year, at.month, at.day, tzinfo=UTC)
    if at.tzinfo is not None:
        at = at.astimezone(UTC)
    return _DIRECTIVE.sub(lambda found: _PARTS[found[1]](at), text)


def grain(text: str) -> str:
    """The finest unit that a format shows: `day`, `hour`, …"""
    shown = {found[1] for found in _DIRECTIVE.finditer(text)}
    return next((unit for directive, unit in _GRAINS if directive in shown), "day")


def moment_in(digits: str, created: datetime) -> datetime | None:
    """The time that digits mean in a product created then; None if they mean none."""
    created = created.replace(tzinfo=UTC) if created.tzinfo is None else created.astimezone(UTC)
    return _moment_in(digits, created.replace(second=0, microsecond=0))


@lru_cache(4096)
def _moment_in(digits: str, created: datetime) -> datetime | None:
    shape = _FULL_DATES.get(len(digits))
    if not (digits.isascii() and digits.isdecimal()):
        return None
    if shape is not None:
        return _parsed(digits, shape)
    if len(digits) not in (2, 4, 6):
        return None
    digits = digits.ljust(6, "0")
    if digits.startswith("00"):
        digits = f"{created.day:02}{digits[2:]}"
    moment_us = resolve_us(digits, (created - _EPOCH) // _MICROSECOND)
    return None if moment_us is None else _EPOCH + timedelta(microseconds=moment_us)


def _parsed(digits: str, shape: str) -> datetime | None:
    try:
        return datetime.strptime(digits, shape).replace(tzinfo=UTC)
    except ValueError:
        return None


# --- columns --------------------------------------------------------------------------------------


def beyond(column: Any) -> npt.NDArray[np.bool_]:
    """For each row of a column, whether it has a time outside Python's range, at any depth."""
    kind = column.type
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _is_beyond(column)
    found = np.zeros(len(column), np.bool_)
    if pa.types.is_struct(kind):
        for part in column.flatten():
            found |= beyond(part)
    elif pa.types.is_map(kind):
        for part in (column.keys, column.items):
            found |= beyond(pa.ListArray.from_arrays(column.offsets, part))
    elif pa.types.is_nested(kind):  # a list
        inner = beyond(pc.list_flatten(column))
        found[pc.list_parent_indices(column).to_numpy()[inner]] = True
    return found


def _is_beyond(column: Any) -> npt.NDArray[np.bool_]:
    kind = column.type
    if pa.types.is_date32(kind):
        return _is_outside(column.cast(pa.int32()), 1)
    per_day = _PER_DAY[getattr(kind, "unit", "ms")]  # date64 counts milliseconds
    found = _is_outside(column.cast(pa.int64()), per_day)
    if getattr(kind, "tz", None) is not None:  # in that zone, year 1 may not have begun, or 9999 may be over
        found |= _is_outside(pc.local_timestamp(column).cast(pa.int64()), per_day)
    return found


def _is_outside(numbers: Any, per_day: int) -> npt.NDArray[np.bool_]:
    days: npt.NDArray[np.int64] = np.floor_divide(pc.fill_null(numbers, 0).to_numpy(), per_day)
    return (days < _DAYS_SHOWN[0]) | (days > _DAYS_SHOWN[1])
