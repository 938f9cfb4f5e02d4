"""Spacing: when the products of a stream are due.

Stream time is the time in the products; elapsed time is a clock that only moves forward, so that steps of the wall
clock change nothing. The two are tied together at an anchor, and stream time runs `speed` times as fast:

    stream                anchor_stream ────────────── time of a product
    elapsed               anchor_ns     ────────────── when it is due     = anchor_ns + (time - anchor_stream) / speed

A change of speed, a pause and a seek move the anchor to now, so that nothing that was handed out is due again, and
nothing is skipped. A caller that is too slow falls behind: then several products are due at once, and it catches up.

Not here: who waits, and how (replay.py). Nothing here reads a clock.
"""

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import OptionError

AS_FAST_AS_POSSIBLE = math.inf
SPEED_MIN, SPEED_MAX = 1e-3, 1e6
_SPEED = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*x?\s*")

Times = npt.NDArray[np.int64]


def parse_speed(value: Any, what: str = "speed") -> float:
    """A factor: 10, "10x", 0.5, or "max" for as fast as possible. OptionError if it is none."""
    if isinstance(value, str):
        if value.strip() == "max":
            return AS_FAST_AS_POSSIBLE
        found = _SPEED.fullmatch(value)
        value = float(found[1]) if found else value
    if isinstance(value, float) and value == AS_FAST_AS_POSSIBLE:
        return AS_FAST_AS_POSSIBLE
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not SPEED_MIN <= value <= SPEED_MAX:
        raise OptionError(
            f"{what} {value!r} is invalid", f'give {SPEED_MIN:g} to {SPEED_MAX:g}, such as "10x", or "max"'
        )
    return float(value)


def speed_text(speed: float) -> str:
    """As `parse_speed` reads it."""
    return "max" if speed == AS_FAST_AS_POSSIBLE else f"{speed:g}x"


class Spacing:
    """The relation of stream time and elapsed time. For one thread at a time; times are nanoseconds."""

    __slots__ = ("_anchor_ns", "_anchor_stream", "_is_paused", "_speed")

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed
        self._anchor_stream: int | None = None  # None: the next product sets it, and is due at once
        self._anchor_ns = 0
        self._is_paused = False

    @property
    def speed(self) -> float:
        return self._speed

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def due(self, times: Times, now_ns: int) -> int:
        """How many of these products are due; their times never decrease."""
        if self._is_paused or not len(times):
            return 0
        if self._anchor_stream is None:
            self._anchor_stream, self._anchor_ns = int(times[0]), now_ns
        if self._speed == AS_FAST_AS_POSSIBLE:
            return len(times)
        return int(np.searchsorted(times, self.stream_ns(now_ns), "right"))

    def stream_ns(self, now_ns: int) -> int:
        """The stream time at this moment: products up to here are due. 0 before the first one."""
        if self._anchor_stream is None:
            return 0
        if self._is_paused or self._speed == AS_FAST_AS_POSSIBLE:
            return self._anchor_stream
        return self._anchor_stream + round((now_ns - self._anchor_ns) * self._speed)

    def left_ns(self, time_ns: int, now_ns: int) -> int:
        """How long until a product of this time is due; 0 if it is. Not for a paused stream: it has no end."""
        if self._anchor_stream is None or self._speed == AS_FAST_AS_POSSIBLE:
            return 0
        return max(0, math.ceil((time_ns - self._anchor_stream) / self._speed) - (now_ns - self._anchor_ns))

    def behind_ns(self, time_ns: int, now_ns: int) -> int:
        """By how much elapsed time a product of this time is overdue; 0 if it is not."""
        if self._anchor_stream is None or self._is_paused or self._speed == AS_FAST_AS_POSSIBLE:
            return 0
        return max(0, round((self.stream_ns(now_ns) - time_ns) / self._speed))

    # --- changes ----------------------------------------------------------------------------------

    def set_speed(self, speed: float, at_ns: int, now_ns: int) -> None:
        """Go on at this speed; `at_ns` is the stream time of the last product handed out."""
        self._move(at_ns, now_ns)
        self._speed = speed

    def pause(self, at_ns: int, now_ns: int) -> None:
        self._move(at_ns, now_ns)
        self._is_paused = True

    def resume(self, now_ns: int) -> None:
        """Go on where the stream was paused: the rest of the distance to the next product is still waited for."""
        self._is_paused, self._anchor_ns = False, now_ns

    def forget(self) -> None:
        """The next product is somewhere else in the stream: it is due at once."""
        self._anchor_stream = None

    def _move(self, at_ns: int, now_ns: int) -> None:
        """Tie the two times together at this moment. A stream at full speed has no time but that of its products."""
        if self._anchor_stream is not None and not self._is_paused:
            is_free = self._speed == AS_FAST_AS_POSSIBLE
            self._anchor_stream = at_ns if is_free else self.stream_ns(now_ns)
            self._anchor_ns = now_ns
