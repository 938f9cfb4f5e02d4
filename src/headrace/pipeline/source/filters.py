"""Filters: Spark's filters on feed, origin, priority, slice and time as a narrower selection.

Index rows decide these without reading the products. Filters that are not understood here are left to Spark, which
applies all filters once more.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from headrace.errors import InvalidError
from headrace.product.feed import check_feed
from headrace.selection import Selection

PRIORITY_MAX = 7
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Narrow:
    """A selection, and the range of sequences to search; `end` is not included."""

    selection: Selection
    first: int | None = None
    end: int | None = None
    is_empty: bool = False  # no product can match

    def since(self, sequence: int) -> "Narrow":
        return replace(self, first=max(sequence, self.first or 0))

    def until(self, sequence: int) -> "Narrow":
        return replace(self, end=sequence if self.end is None else min(sequence, self.end))


def narrowed(selection: Selection, filters: Iterable[Filter], resolve: Callable[[datetime], int]) -> Narrow:
    """Narrow a selection without losing a product that matches all filters.

    `resolve` returns the first sequence that was inserted at or after a time.
    """
    narrow = Narrow(selection)
    for each in filters:
        column: Any = getattr(each, "attribute", ())
        if len(column) == 1 and column[0] in _COLUMNS:
            narrow = _COLUMNS[column[0]](narrow, each, resolve)
    return narrow


def _feed(narrow: Narrow, each: Filter, resolve: Any) -> Narrow:
    values = _values(each)
    if values is not None:
        wanted = [feed for feed in values if _is_feed(feed) and narrow.selection.wants_feed(feed)]
        if not wanted:
            return replace(narrow, is_empty=True)
        pattern = wanted[0] if len(wanted) == 1 else None
    else:
        pattern = _subtree(each.value) if isinstance(each, StringStartsWith) and narrow.selection.feed is None else None
    return narrow if pattern is None else replace(narrow, selection=narrow.selection.replace(feed=pattern))


def _is_feed(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(check_feed(text))
    except InvalidError:
        return False


def _subtree(prefix: str) -> str | None:
    """The smallest subtree that contains all feeds with this prefix."""
    levels = prefix.split("/")[:-1]
    return "/".join([*levels, "**"]) if levels and _is_feed("/".join(levels)) else None


def _origin(narrow: Narrow, each: Filter, resolve: Any) -> Narrow:
    values = _values(each)
    if values is None:
        return narrow
    wanted = [origin for origin in values if isinstance(origin, str) and narrow.selection.wants_origin(origin)]
    if not wanted:
        return replace(narrow, is_empty=True)
    return replace(narrow, selection=narrow.selection.replace(origin=tuple(wanted)))


def _priority(narrow: Narrow, each: Filter, resolve: Any) -> Narrow:
    least, most = narrow.selection.priority or (0, PRIORITY_MAX)
    values = _values(each)
    if values is not None:
        least, most = max(least, min(values, default=0)), min(most, max(values, default=PRIORITY_MAX))
    elif isinstance(each, GreaterThan | GreaterThanOrEqual):
        least = max(least, each.value + isinstance(each, GreaterThan))
    elif isinstance(each, LessThan | LessThanOrEqual):
        most = min(most, each.value - isinstance(each, LessThan))
    else:
        return narrow
    if least > most:
        return replace(narrow, is_empty=True)
    return replace(narrow, selection=narrow.selection.replace(priority=(least, most)))


def _slice(narrow: Narrow, each: Filter, resolve: Any) -> Narrow:
    values = _values(each)
    if values is None:
        return narrow
    known = narrow.selection.slices
    wanted = sorted(value for value in set(values) if 0 <= value < 65_535 and (known is None or value in known))
    if not wanted:
        return replace(narrow, is_empty=True)
    return replace(narrow, selection=narrow.selection.replace(slices=wanted))


def _sequence(narrow: Narrow, each: Filter, resolve: Any) -> Narrow:
    values = _values(each)
    if values:
        return narrow.since(min(values)).until(max(values) + 1)
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return narrow.since(each.value + isinstance(each, GreaterThan))
    if isinstance(each, LessThan | LessThanOrEqual):
        return narrow.until(each.value + isinstance(each, LessThanOrEqual))
    return narrow


def _inserted(narrow: Narrow, each: Filter, resolve: Callable[[datetime], int]) -> Narrow:
    """Sequences are in the order of time, unless a clock was set back; `resolve` searches for those from the start."""
    if isinstance(each, GreaterThan | GreaterThanOrEqual) and isinstance(each.value, datetime):
        return narrow.since(resolve(each.value))
    return narrow


def _created(narrow: Narrow, each: Filter, resolve: Any) -> Narrow:
    since, until = narrow.selection.created or (None, None)
    value = _nanoseconds(getattr(each, "value", None))
    if value is None:
        return narrow
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        since = max(value, since or 0)
    elif isinstance(each, LessThan | LessThanOrEqual):
        until = value + 1000 if until is None else min(until, value + 1000)  # columns have microseconds
    else:
        return narrow
    if until is not None and since is not None and since >= until:
        return replace(narrow, is_empty=True)
    return replace(narrow, selection=narrow.selection.replace(created=(since, until)))


def _nanoseconds(value: object) -> int | None:
    return (value - _EPOCH) // _MICROSECOND * 1000 if isinstance(value, datetime) and value.tzinfo else None


def _values(each: Filter) -> list[Any] | None:
    """The values that a column may have; None: any. No value is equal to a null in a list."""
    if isinstance(each, EqualTo | EqualNullSafe):
        return None if each.value is None else [each.value]
    return [value for value in each.value if value is not None] if isinstance(each, In) else None


_COLUMNS: dict[str, Callable[[Narrow, Any, Any], Narrow]] = {
    "feed": _feed, "origin": _origin, "priority": _priority, "slice": _slice, "sequence": _sequence,
    "inserted": _inserted, "created": _created,
}  # fmt: skip
