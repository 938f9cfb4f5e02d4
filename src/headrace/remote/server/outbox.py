"""Outbox: the replies to one client, sent by one thread at a time.

Sending blocks while the link of the client is full. A program may have hundreds of calls under way on one connection;
without this they could hold every thread of the site that executes calls. A thread that finds another one sending
leaves its reply there, and goes on to other clients. Replies beyond OUTBOX_MAX are dropped, and the client repeats its
call.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable

OUTBOX_MAX = 8192  # more than the calls of a client that a site accepts; only repetitions add to them

log = logging.getLogger("headrace.remote.server")


class Outbox:
    """Of one client. Any thread may send."""

    __slots__ = ("_is_sending", "_lock", "_sends")

    def __init__(self) -> None:
        self._sends: deque[Callable[[], None]] = deque()
        self._is_sending = False
        self._lock = threading.Lock()

    def send(self, send: Callable[[], None]) -> None:
        """Send a reply after those that were given before: here, or in the thread that sends already."""
        with self._lock:
            if len(self._sends) < OUTBOX_MAX:
                self._sends.append(send)
            if self._is_sending:
                return
            self._is_sending = True
        while (following := self._next()) is not None:
            try:
                following()
            except Exception:  # the others are sent nevertheless
                log.exception("a reply could not be sent")

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            self._is_sending = bool(self._sends)
            return self._sends.popleft() if self._sends else None
