"""ErrorLog: errors of a thread that goes on, logged without flooding the log.

The first one is logged at once, later ones at most once in a while, with the number of those in between.
"""

import logging
import threading
import time
from collections.abc import Callable

INTERVAL_S = 60.0


class ErrorLog:
    """What one thread has to complain of; `count` has them all."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger, self._clock = logger, clock
        self._lock = threading.Lock()
        self._told_s: float | None = None
        self._untold = 0
        self.count = 0
        self.latest = ""

    def add(self, what: str, error: BaseException) -> None:
        """Count an error, and log it if the log has been spared for long enough."""
        with self._lock:
            self.count += 1
            self.latest = f"{type(error).__name__}: {error}"
            now_s = self._clock()
            if self._told_s is not None and now_s - self._told_s < INTERVAL_S:
                self._untold += 1
                return
            untold, self._untold, self._told_s = self._untold, 0, now_s
        more = f" ({untold} more since the last message)" if untold else ""
        self._logger.warning("%s: %s%s", what, self.latest, more, exc_info=error)
