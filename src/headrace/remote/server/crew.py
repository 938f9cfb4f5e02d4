"""Crew: a few threads that do what stands in one line."""

import queue as line_of
import threading
from collections.abc import Callable

_THREADS = 4
_LINE = 1024  # acts that may wait for a thread


class Crew:
    """Works until `close`. Acts do not raise."""

    def __init__(self, name: str) -> None:
        self._line: line_of.SimpleQueue[Callable[[], None] | None] = line_of.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name=f"headrace-{name}-{i}") for i in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    @property
    def is_busy(self) -> bool:
        """More wait than should."""
        return self._line.qsize() >= _LINE

    def give(self, act: Callable[[], None]) -> None:
        """To be done when its turn comes."""
        self._line.put(act)

    def _run(self) -> None:
        while (act := self._line.get()) is not None:
            act()

    def close(self) -> None:
        """Return when everything is done."""
        for _ in self._threads:
            self._line.put(None)
        for thread in self._threads:
            thread.join()
