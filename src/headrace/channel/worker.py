"""Worker: the thread of a push consumer or a pull supplier, which calls a user's function until it ends.

An error of the function, or of the queue, does not end the thread. Each is counted. The first is logged at once; later
ones at most once a minute, with the number of errors in between, so that they do not flood the log (ErrorLog).

Not here: what the thread does, and how long it pauses after errors (push.py, pull.py).
"""

import logging
import threading
import time
from collections.abc import Callable

from headrace.errors import HeadraceError
from headrace.guard import OnceThread

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
        trace = None if isinstance(error, HeadraceError) else error  # of a user's function
        self._logger.warning("%s: %s%s", what, self.latest, more, exc_info=trace)


class Worker:
    """Runs `run` in a thread from `start` on; `run` returns soon after `ending` is set. `what` names it in the log."""

    def __init__(self, name: str, what: str, run: Callable[[], None], logger: logging.Logger) -> None:
        self._what = what
        self.errors = ErrorLog(logger)
        self.failures_in_a_row = 0  # the caller resets it after a success
        self.ending = threading.Event()
        self.thread = OnceThread(run, name)

    @property
    def is_running(self) -> bool:
        return self.thread.is_alive()

    def start(self) -> None:
        self.thread.start()

    def stop(self, timeout: float | None) -> bool:
        """End it and wait for its end, unless it is the caller; False if that takes longer than `timeout` seconds."""
        self.ending.set()
        if threading.current_thread() is not self.thread:
            self.thread.join(timeout)
        return not self.thread.is_alive()

    def fail(self, what: str, error: BaseException) -> None:
        """Count an error of the thread."""
        self.failures_in_a_row += 1
        self.errors.add(f"{self._what}: {what}", error)
