"""Clock: the seam through which a queue learns the time.

Two kinds of time: `now_ns` is what the wall clock says (UTC; it may jump), `elapsed_ns` only ever grows at the pace of
time (it decides ages). A queue without a clock of its own reads the machine's inside the kernel; tests give it
`headrace.testing.MockClock`.
"""

from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970, UTC."""

    def elapsed_ns(self) -> int:
        """Nanoseconds since some fixed moment; never 0, never back."""
