"""SiteClock: what time it is at the site, as far as the replies of the site tell.

A reply that has the site's time was made between the moment at which the call was sent and the moment at which the
reply arrived, both by the monotonic clock of this process. So each reply bounds the difference of the two clocks from
both sides, and a quick one bounds it tightly. The clock of this machine takes no part, so that it may be wrong. Bounds
are relaxed as time passes, because clocks drift; if a reply contradicts them, the clock of the site was set, and that
reply alone counts.

`now_ns` is the earliest time that it can be at the site: what has expired by then has expired.
"""

import threading
import time
from collections.abc import Callable

_DRIFT = 200e-6  # of the two clocks against each other


class SiteClock:
    """Threads may share it."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._lock = threading.Lock()
        self._bounds: tuple[int, int] | None = None  # of the difference, site minus this process
        self._noted_ns = 0

    def note(self, sent_ns: int, told_ns: int) -> None:
        """A call that was sent at `sent_ns`, by the monotonic clock, has a reply now that was made at `told_ns`."""
        arrived_ns = self._monotonic_ns()
        low, high = told_ns - arrived_ns, told_ns - sent_ns
        with self._lock:
            if self._bounds is not None:
                slack = int((arrived_ns - self._noted_ns) * _DRIFT)
                known_low, known_high = self._bounds[0] - slack, self._bounds[1] + slack
                if low <= known_high and high >= known_low:
                    low, high = max(low, known_low), min(high, known_high)
            self._bounds, self._noted_ns = (low, high), arrived_ns

    def now_ns(self) -> int | None:
        """The earliest time that it can be at the site; None if nothing was noted."""
        with self._lock:
            if self._bounds is None:
                return None
            now_ns = self._monotonic_ns()
            return now_ns + self._bounds[0] - int((now_ns - self._noted_ns) * _DRIFT)
