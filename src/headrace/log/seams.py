"""Seams: how stations and channels take part in the work of the log, which knows neither.

They live in the queue's directory beside the log. A *gate* may make an append wait (a blocking station that is full).
A *resident* has files of its own that are validated, settled and checked together with the log's. `queue/queue.py`
puts the parts together.
"""

import time
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from headrace.kernel import _kernel as kernel
from headrace.log.storage import Storage
from headrace.units import parse_age

RECHECK_S = 0.2  # how long to sleep at most: a process that should wake us may have died

Timeout = float | str | timedelta | None


class Wait:
    """How long one append may wait at gates, and what it has seen there so far."""

    def __init__(self, timeout: Timeout) -> None:
        self._deadline = None if timeout is None else time.monotonic() + parse_age(timeout, "timeout")
        self.seen: dict[int, int] = {}

    @property
    def left_s(self) -> float:
        return RECHECK_S if self._deadline is None else self._deadline - time.monotonic()


class Gate(Protocol):
    """What may make appends wait."""

    def make_way(self, error: kernel.KernelError, wait: Wait) -> None:
        """Remove the reason why the kernel refused an append, or wait for it; an error when the time is over."""

    def make_gates(self) -> None:
        """Tell the kernel which appends are refused, and which products are kept."""

    def save(self, storage: Storage) -> None:
        """Make the positions of whatever stands behind the gate survive a power failure."""


class Resident(Protocol):
    """What else lives in the directory of a queue."""

    file: str  # the document that lists it; repair moves a damaged one aside

    def validate(self, path: Path) -> None:
        """Raise what is wrong with the document of the queue at `path`, before anything is changed."""

    def settle(self, log: kernel.Log, path: Path, storage: Storage, trusted: bool) -> None:
        """Make its files ready for use; the caller is alone. `trusted`: the machine has not restarted since."""

    def check(self, log: kernel.Log, path: Path) -> list[str]:
        """Every inconsistency, in words."""
