"""Starts and selections, as callers write them and as they travel."""

from datetime import datetime, timedelta
from typing import Any

from headrace.errors import OptionError, SelectionError
from headrace.log.read import Start, time_of
from headrace.remote.protocol.calls import TEXT_MAX
from headrace.selection import Selection


def start_text(start: Start) -> int | str:
    """A start as the site reads it; OptionError, as for a local queue, if it cannot be one."""
    if isinstance(start, int) and not isinstance(start, bool):
        if not -(1 << 63) <= start < 1 << 63:
            raise OptionError(f"sequence {start} is out of range", "sequences begin at 1")
        return start
    if start not in ("oldest", "next"):
        time_of(start, 0)
    return value_text(start)  # type: ignore[no-any-return]


def value_text(value: Any) -> Any:
    """A length of time or a time as text; other values as they are."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.6f}s"
    return value.isoformat() if isinstance(value, datetime) else value


def selection_text(wanted: Any) -> str:
    """A selection as text; one with a function, or of great length, stays at home."""
    selection = Selection.of(wanted)
    if selection.function is not None:
        raise SelectionError(
            "a selection with a Python function cannot go to another machine",
            "use where instead of function, or filter what you get",
        )
    text = str(selection)
    if len(text) > TEXT_MAX:
        raise SelectionError(
            f"a selection of {len(text)} characters is too long to go to another machine",
            f"write it in {TEXT_MAX}, or read by several",
        )
    return text
