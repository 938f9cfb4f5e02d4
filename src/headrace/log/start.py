"""Start: what a reader may say instead of a sequence."""

import time
from datetime import datetime, timedelta

from headrace.errors import OptionError
from headrace.kernel import _kernel as kernel
from headrace.log.clock import Clock
from headrace.units import parse_age, parse_time

Start = int | str | datetime | timedelta


def resolve_start(log: kernel.Log, start: Start, clock: Clock | None) -> int:
    """The sequence that `start` means now: itself, the oldest, the next, or the first one inserted since a time."""
    if isinstance(start, int) and not isinstance(start, bool):
        if not 0 <= start < 1 << 63:
            raise OptionError(f"sequence {start} is out of range", "sequences begin at 1")
        return max(start, 1)
    if start == "oldest":
        return log.oldest
    if start == "next":
        return log.head
    return log.first_since(time_of(start, clock.now_ns() if clock else time.time_ns()))


def time_of(start: Start, now_ns: int) -> int:
    """Nanoseconds since 1970: an age counts back from now. OptionError if it is neither."""
    try:
        if isinstance(start, timedelta) or (isinstance(start, str) and _is_age(start)):
            return max(0, now_ns - int(parse_age(start, "start") * 1e9))
        if isinstance(start, str | datetime):
            return parse_time(start, "start")
    except OptionError:
        pass
    raise OptionError(
        f"start {start!r} is not understood",
        'give a sequence, "oldest", "next", an age such as "1h", or a time such as "2026-11-15T12:00Z"',
    )


def _is_age(text: str) -> bool:
    """A number and a unit, and nothing that a time would have."""
    return text[:1].isdigit() and text[-1:].isalpha() and "T" not in text and "-" not in text
