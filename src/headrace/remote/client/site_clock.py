"""SiteClock: what time it is at the site, as far as the replies of the site tell.

A reply says when it was made, by the clock of the site, and how long the call had been there. The call arrived there
after it was sent, and the reply was made before it arrived here, both by the monotonic clock of this process. So each
reply bounds the difference of the two clocks from both sides, and a quick one bounds it tightly. The clock of this
machine takes no part, so that it may be wrong. Bounds are relaxed as time passes, because clocks drift; if a reply
contradicts them, the clock of the site was set, and that reply alone counts.

`now_ns` is the latest time that it can be at the site: what expires after that has not expired. It is off by as long as
the quickest call took on its way to the site. Calls of consumers are small, also where their products fill the link.
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

    def note(self, sent_ns: int, told_ns: int, waited_ns: int = 0) -> None:
        """A call that was sent at `sent_ns`, by the monotonic clock, has a reply now.

        The reply was made at `told_ns`, by the clock of the site, where the call had waited for `waited_ns`.
        """
        arrived_ns = self._monotonic_ns()
        low, high = told_ns - arrived_ns, told_ns - waited_ns - sent_ns
        with self._lock:
            if self._bounds is not None:
                slack = int((arrived_ns - self._noted_ns) * _DRIFT)
                known_low, known_high = self._bounds[0] - slack, self._bounds[1] + slack
                if low <= known_high and high >= known_low:
                    low, high = max(low, known_low), min(high, known_high)
            self._bounds, self._noted_ns = (low, high), arrived_ns

    def now_ns(self) -> int | None:
        """The latest time that it can be at the site; None if nothing was noted."""
        with self._lock:
            if self._bounds is None:
                return None
            now_ns = self._monotonic_ns()
            return now_ns + self._bounds[1] + int((now_ns - self._noted_ns) * _DRIFT)
