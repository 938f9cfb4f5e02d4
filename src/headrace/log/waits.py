"""Waits: when to say that something waits, and for what.

A wait is worth a line after a second, and again after pauses that grow to a minute. It may consist of many attempts, of
many threads: a relay, a remote client or a command that must notice Ctrl-C tries for a moment, again and again. So a
wait has a key, and goes on as long as attempts with that key come; it is reported once for all of them.

Not here: the text, and where it goes. What a queue waits for goes to the logger `headrace.queue`.
"""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

FIRST_S = 1.0
PAUSE_S_MAX = 60.0
FORGOTTEN_S = 10.0  # without an attempt, the wait is over
_KEYS_MAX = 1000


@dataclass(slots=True)
class _Wait:
    sign: object
    tried_s: float  # the last attempt
    next_s: float  # when to say it
    pause_s: float = 2 * FIRST_S


class Waits:
    """The waits of one object. Threads may share it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._lock = now, threading.Lock()
        self._waits: dict[Hashable, _Wait] = {}

    def is_due(self, key: Hashable, sign: object = None, begun_s: float | None = None) -> bool:
        """An attempt waits: whether to say so now. `sign` changes whenever the wait gets somewhere.

        `begun_s` is when this attempt began, by `time.monotonic`; None: now.
        """
        now = self._now()
        first_s = (now if begun_s is None else begun_s) + FIRST_S
        with self._lock:
            wait = self._waits.get(key)
            if wait is None or now - wait.tried_s > FORGOTTEN_S:
                if len(self._waits) >= _KEYS_MAX:
                    self._waits.clear()
                wait = self._waits[key] = _Wait(sign, now, first_s)
            elif wait.sign != sign:
                wait.sign, wait.next_s = sign, max(wait.next_s, first_s)
            wait.tried_s = now
            if now < wait.next_s:
                return False
            wait.next_s, wait.pause_s = now + wait.pause_s, min(2 * wait.pause_s, PAUSE_S_MAX)
            return True

    def end(self, key: Hashable) -> None:
        """The wait is over: the next one is said after a second again."""
        with self._lock:
            self._waits.pop(key, None)
