"""A clock that moves only when a test moves it.

Tests hand a `MockClock` to whatever would otherwise read the time, and so never sleep. Like a real machine it has two
kinds of time: the time of day, which may be set in either direction, and the time elapsed, which only passes. Nothing
here wakes a sleeper; a wait with a deadline belongs to the object that waits.
"""

NS_PER_S = 1_000_000_000


class MockClock:
    """Time under the control of the test."""

    __slots__ = ("_elapsed_ns", "_now_ns")

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns
        self._elapsed_ns = NS_PER_S

    def now_ns(self) -> int:
        """The time of day: nanoseconds since 1970, UTC."""
        return self._now_ns

    def elapsed_ns(self) -> int:
        """Nanoseconds since some fixed moment."""
        return self._elapsed_ns

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, to the nearest nanosecond."""
        if seconds < 0:
            raise ValueError(f"time cannot pass by {seconds} s; set() puts the time of day back")
        self._now_ns += round(seconds * NS_PER_S)
        self._elapsed_ns += round(seconds * NS_PER_S)

    def set(self, ns: int) -> None:
        """Set the time of day, as an operator or NTP may do; no time passes."""
        self._now_ns = ns

    def __repr__(self) -> str:
        return f"MockClock({self._now_ns})"
