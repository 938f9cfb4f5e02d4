"""Time for a replay under test: it passes only while the replay waits."""

import threading
from collections.abc import Callable
from typing import Any

S = 1_000_000_000


class MockTime:
    """Time that passes only while a replay waits; before each wait it does what the test has planned for then."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.plans: list[tuple[float, Callable[[], Any]]] = []
        self.slept: list[float] = []

    def at(self, seconds: float, plan: Callable[[], Any]) -> None:
        self.plans.append((seconds, plan))
        self.plans.sort(key=lambda each: each[0])

    def elapsed_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float | None, woken: threading.Event) -> None:
        until = None if seconds is None else self.now_ns + round(seconds * S)
        assert seconds is None or seconds > 0
        while self.plans and (until is None or self.plans[0][0] * S <= until):
            at_s, plan = self.plans.pop(0)
            self.now_ns = max(self.now_ns, round(at_s * S))
            plan()
            if woken.is_set():
                return
        assert until is not None, "it would wait for ever"
        self.now_ns = until
