"""Moments: times as parts of names, and the day of the month in an ident as a full date.

Formats are those of strftime that mean the same everywhere: `%Y %y %m %d %j %H %M %S %f %b %B %a %A %%`, names of
months and days in English whatever the locale.

A heading such as `SAUS70 KWBC 060053` has the day, hour and minute, and leaves month and year to the reader. The latest
such moment is meant that is not more than 36 hours after the product was created; months that do not have the day are
passed over. Day `00` is the day of creation. Digits may also be a whole date.

Spark has times of hundreds of thousands of years, and Python has the years 1 to 9999: `beyond` finds the others.
"""

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import RuleError

FULL = "%Y%m%dT%H%M%SZ"  # where no format is given
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_DIRECTIVE = re.compile(r"%(.?)", re.S)
_AHEAD = timedelta(hours=36)
_DIGITS = {2: "%d", 4: "%d%H", 6: "%d%H%M", 8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
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
    """RuleError names the directive that is not offered."""
    for found in _DIRECTIVE.finditer(text):
        if found[1] not in _PARTS:
            known = " ".join(f"%{name}" for name in _PARTS)
            raise RuleError(f"the time format has {found[0]!r}, which is not offered", f"there are {known}")


@lru_cache(4096)
def format_moment(at: datetime | date, text: str) -> str:
    """A moment in a format that has been checked; a date is its midnight, and a time without a zone is UTC."""
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
    """The moment that digits tell of a product that was created then; None if they tell none."""
    created = created.replace(tzinfo=UTC) if created.tzinfo is None else created.astimezone(UTC)
    return _moment_in(digits, created.replace(second=0, microsecond=0))  # what is told is a whole minute


@lru_cache(4096)
def _moment_in(digits: str, created: datetime) -> datetime | None:
    shape = _DIGITS.get(len(digits))
    if shape is None or not (digits.isascii() and digits.isdecimal()):
        return None
    if len(digits) >= 8:
        return _parsed(digits, shape)
    numbers = [int(digits[at : at + 2]) for at in range(0, len(digits), 2)]
    day, hour, minute = (*numbers, 0, 0)[:3]
    if day > 31 or hour > 23 or minute > 59:
        return None
    if day == 0:
        return created.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return next((at for at in _candidates(created, day, hour, minute) if at - created <= _AHEAD), None)


def _parsed(digits: str, shape: str) -> datetime | None:
    try:
        return datetime.strptime(digits, shape).replace(tzinfo=UTC)
    except ValueError:
        return None


def _candidates(created: datetime, day: int, hour: int, minute: int) -> list[datetime]:
    """The day in the month after, in this one and in those before, the latest first."""
    found = []
    for back in range(-1, 4):
        months = created.year * 12 + created.month - 1 - back
        year, month = months // 12, months % 12 + 1
        if MINYEAR <= year <= MAXYEAR and day <= monthrange(year, month)[1]:
            found.append(datetime(year, month, day, hour, minute, tzinfo=UTC))
    return found


# --- columns --------------------------------------------------------------------------------------


def beyond(column: Any) -> npt.NDArray[np.bool_]:
    """For each row of a column, whether it has a time, at whatever depth, that Python does not."""
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
    per_day = _PER_DAY[getattr(kind, "unit", "ms")]  # the other date has milliseconds
    found = _is_outside(column.cast(pa.int64()), per_day)
    if getattr(kind, "tz", None) is not None:  # there, the first year may not have begun, or the last be over
        found |= _is_outside(pc.local_timestamp(column).cast(pa.int64()), per_day)
    return found


def _is_outside(numbers: Any, per_day: int) -> npt.NDArray[np.bool_]:
    days: npt.NDArray[np.int64] = np.floor_divide(pc.fill_null(numbers, 0).to_numpy(), per_day)
    return (days < _DAYS_SHOWN[0]) | (days > _DAYS_SHOWN[1])
