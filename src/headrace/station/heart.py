"""Heart: one thread per process that says of all its consumers that they are alive.

A process that is stopped or stuck outside Python does not beat. A consumer whose Python code merely takes long does:
the thread runs beside it.
"""

import os
import threading
import weakref
from typing import Protocol

BEAT_S = 0.25


class Beating(Protocol):
    def beat(self) -> None: ...
    def leave_to_parent(self) -> None: ...


class Heart:
    """Beats for as long as there is anybody to beat for."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._alive: weakref.WeakSet[Beating] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, consumer: Beating) -> None:
        with self._lock:
            self._alive.add(consumer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace-heart", daemon=True)
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
                alive.pop().beat()  # nothing here keeps a consumer that everybody else has dropped

    def after_fork_in_child(self) -> None:
        """The child has neither the thread nor the consumers, and must not keep their locks alive."""
        self._lock = threading.RLock()
        for consumer in list(self._alive):
            consumer.leave_to_parent()
        self._alive, self._thread = weakref.WeakSet(), None


heart = Heart()
os.register_at_fork(after_in_child=heart.after_fork_in_child)
