"""Replies: what comes back to one query, until somebody takes it. Zenoh's threads put, and never wait.

A reply under a pattern is from somebody who may not speak for the site, and is dropped (link/access.py).
Not many more replies are kept than were asked for: a site that sends more only wastes its own link.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Literal, NamedTuple

import zenoh
from zenoh.handlers import Callback

from headrace.guard import guarded
from headrace.link.keys import is_wild


class _Pending(Enum):
    PENDING = "pending"


_SPARE = 2  # for messages of Zenoh's own: that the time is over, for example
PENDING = _Pending.PENDING  # nothing has come yet
Pending = Literal[_Pending.PENDING]


class Came(NamedTuple):
    reply: zenoh.Reply
    arrived: float  # monotonic seconds


class Replies:
    """Any thread may put; one takes."""

    def __init__(self, replies_max: int, wake: Callable[[], None]) -> None:
        """`wake` is called after each change."""
        self._left, self._wake = replies_max + _SPARE, wake
        self._came: deque[Came] = deque()
        self._is_over, self._changed = False, threading.Event()

    @property
    def handler(self) -> "Callback[zenoh.Reply]":
        return Callback(guarded(self._take), guarded(self._end), indirect=False)

    def _take(self, reply: zenoh.Reply) -> None:
        """Runs on Zenoh's thread."""
        if reply.ok is not None and is_wild(reply.ok.key_expr):
            return
        if self._left > 0:
            self._left -= 1
            self._came.append(Came(reply, time.monotonic()))
            self._note()

    def _end(self) -> None:
        """Runs on Zenoh's thread: all have come, or the time is over."""
        self._is_over = True
        self._note()

    def _note(self) -> None:
        self._changed.set()
        self._wake()

    def poll(self) -> Came | Pending | None:
        """The next reply; None after the last one."""
        is_over = self._is_over  # before the look: what comes in between is found by the next one
        if self._came:
            return self._came.popleft()
        return None if is_over else PENDING

    def wait(self, timeout_s: float) -> None:
        """Return when there is a reply, or none comes."""
        self._changed.wait(timeout_s)
