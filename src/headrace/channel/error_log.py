"""ErrorLog: errors of a thread that keeps running, logged without flooding the log.

The first error is logged at once; later ones at most once a minute, with the number of errors in between. Push
consumers and pull suppliers use it for what a user's function raises.
"""

import logging
import threading
import time
from collections.abc import Callable

INTERVAL_S = 60.0


class ErrorLog:
    """The errors of one thread; `count` has all of them, `latest` the last one in words."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger, self._clock = logger, clock
        self._lock = threading.Lock()
        self._logged_s: float | None = None
        self._unlogged = 0
        self.count = 0
        self.latest = ""

    def add(self, what: str, error: BaseException) -> None:
        """Count an error, and log it unless another one was logged within the interval."""
        with self._lock:
            self.count += 1
            self.latest = f"{type(error).__name__}: {error}"
            now_s = self._clock()
            if self._logged_s is not None and now_s - self._logged_s < INTERVAL_S:
                self._unlogged += 1
                return
            unlogged, self._unlogged, self._logged_s = self._unlogged, 0, now_s
        more = f" ({unlogged} more since the last message)" if unlogged else ""
        self._logger.warning("%s: %s%s", what, self.latest, more, exc_info=error)
