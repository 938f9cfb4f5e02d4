"""Heartbeat: one thread per process that marks all its consumers as alive, four times a second.

A process that is stopped, or stuck outside Python, has no heartbeat and is declared dead after the station's
`hung_after`. Python code that merely takes long does not matter: the thread runs beside it.
"""

import os
import threading
import weakref
from typing import Protocol

from headrace.guard import GuardedThread, counted

BEAT_S = 0.25


class Beating(Protocol):
    """What the thread needs of a consumer."""

    def _beat(self) -> None: ...
    def _leave_to_parent(self) -> None: ...


class Heartbeat:
    """The consumers of this process; the thread runs while there are any."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._alive: weakref.WeakSet[Beating] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, consumer: Beating) -> None:
        with self._lock:
            self._alive.add(consumer)
            if self._thread is None:
                self._thread = GuardedThread(self._run, "headrace-heartbeat", until=lambda: False, daemon=True)
                self._thread.start()

    def remove(self, consumer: Beating) -> None:
        with self._lock:
            self._alive.discard(consumer)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(BEAT_S):
            with self._lock:
                alive = list(self._alive)
                if not alive:
                    self._thread = None
                    return
            while alive:
                with counted("headrace-heartbeat"):  # one consumer that fails must not cost the others their leases
                    alive.pop()._beat()  # drop each reference at once: this thread must not keep a consumer alive

    def after_fork_in_child(self) -> None:
        """A forked child has neither the thread nor the consumers, and must not keep their locks."""
        self._lock = threading.RLock()
        for consumer in list(self._alive):
            consumer._leave_to_parent()
        self._alive, self._thread = weakref.WeakSet(), None


heartbeat = Heartbeat()
os.register_at_fork(after_in_child=heartbeat.after_fork_in_child)
