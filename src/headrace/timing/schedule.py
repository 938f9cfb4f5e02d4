"""Schedule: the moment at which a pacer releases each product.

    moment = created_ns + transit + delay

`transit` is the shortest time that products have lately taken from their creation to here, by two clocks that need not
agree. So the fastest product is held for `delay`, a slower one for less, and all leave with the spacing that they were
created with. A product that takes longer than transit + delay misses its moment and leaves at once.

The transit follows changes (`Transit`): the least of the last 10 to 20 seconds. Small changes, such as clocks that
drift, are followed at 1 % of the time that passes, which nobody notices. Larger ones than `delay` are followed at once:
a clock that was set, a route that got shorter, a backlog at the start. If everything has missed its moment for a
second, the schedule begins anew with what arrives. So no product is held for longer than about twice the delay, and
a pause in the stream ends by itself.

Products that a program takes too late are `overdue`: released together as soon as it asks, or, with the policy `drop`,
acknowledged and left out if they are more than `delay` behind their moment.

Pure logic: time (monotonic) is an argument, and nothing here waits.
"""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from headrace.product.batch import Batch
from headrace.product.joined import JoinedBatch
from headrace.timing.held import time_stamps
from headrace.timing.jitter import Jitter
from headrace.timing.release import (
    ANEW_NS,
    HOLD_S_MAX,
    LATE,
    NS,
    Holding,
    check_bytes,
    check_choice,
    check_products,
    check_span,
)

OVERDUE = ("release", "drop")
PRECISION_S_MIN, PRECISION_S_MAX = 10e-6, 1.0
_WINDOW_NS = 10 * NS
_SLEW = 0.01
_FOLD = 256  # releases whose jitter is computed at once


@dataclass(frozen=True, slots=True)
class Pace:
    """The terms of a pacer."""

    delay_ns: int
    precision_ns: int
    late: str
    overdue: str
    products_max: int
    bytes_max: int

    @classmethod
    def of(
        cls, delay: float | str | timedelta, precision: float | str | timedelta, late: str, overdue: str,
        products_max: int, bytes_max: int | str,
    ) -> "Pace":  # fmt: skip
        """OptionError names the one that is invalid."""
        check_products(products_max)
        return cls(
            check_span(delay, "delay", HOLD_S_MAX, 0.001),
            check_span(precision, "precision", PRECISION_S_MAX, PRECISION_S_MIN),
            check_choice(late, "late", LATE), check_choice(overdue, "overdue", OVERDUE),
            products_max, check_bytes(bytes_max),
        )  # fmt: skip


class Transit:
    """The shortest time from creation to arrival, lately."""

    def __init__(self, delay_ns: int) -> None:
        self._delay_ns = delay_ns
        self.ns: int | None = None  # None: nothing has arrived
        self.jumps = 0  # how often it was followed at once, the first time not counted
        self._lowest: tuple[int | None, int | None] = (None, None)  # of the last window and of this one
        self._window_ns = self._moved_ns = 0  # when this window began; when `ns` was moved last
        self._missing: tuple[int, int] | None = None  # since when all have missed their moment, and their lowest

    def note(self, lowest_ns: int, now_ns: int) -> None:
        """The shortest transit of a batch that has arrived."""
        if self.ns is None:
            self._begin(lowest_ns, now_ns)
            return
        if now_ns - self._window_ns >= _WINDOW_NS:
            self._lowest, self._window_ns = (self._lowest[1], lowest_ns), now_ns
        last, this = self._lowest
        self._lowest = last, lowest_ns if this is None else min(this, lowest_ns)
        if lowest_ns <= self.ns + self._delay_ns:
            self._missing = None
            return
        since_ns, lowest = self._missing or (now_ns, lowest_ns)
        self._missing = since_ns, min(lowest, lowest_ns)
        if now_ns - since_ns >= ANEW_NS:
            self.jumps += 1
            self._begin(self._missing[1], now_ns)

    def _begin(self, lowest_ns: int, now_ns: int) -> None:
        self.ns = lowest_ns
        self._lowest, self._missing = (None, lowest_ns), None
        self._window_ns = self._moved_ns = now_ns

    def move(self, now_ns: int) -> None:
        """Follow what was noted."""
        if self.ns is None:
            return
        target = min(each for each in self._lowest if each is not None)
        behind = target - self.ns
        step = int(_SLEW * (now_ns - self._moved_ns)) + 1
        self._moved_ns = now_ns
        if abs(behind) <= step:
            self.ns = target
        elif abs(behind) > self._delay_ns:
            self.ns = target
            self.jumps += 1
        else:
            self.ns += step if behind > 0 else -step


class Schedule(Holding):
    """A pacer without its sources. `add` and `poll` in turn."""

    def __init__(self, sources: int, pace: Pace) -> None:
        super().__init__(sources, pace.late)
        self.pace, self.transit = pace, Transit(pace.delay_ns)
        self.missed = self.dropped_overdue = self.overdue = 0
        self.before, self._after = Jitter(), Jitter()
        self._left: list[tuple[npt.NDArray[np.uint64], int]] = []  # released, not yet in `_after`

    def add(self, batch: Batch, source: int, now_ns: int) -> None:
        if len(batch):
            stamps = time_stamps(batch)
            self.transit.note(now_ns - int(stamps.max()), now_ns)
            self.transit.move(now_ns)
            self.missed += int(np.count_nonzero(stamps < self._created_by(now_ns)))
            self.before.note(batch.columns["created_ns"], batch.columns["inserted_ns"])
        super().add(batch, source, now_ns)

    def _created_by(self, moment_ns: int) -> np.uint64:
        """A product that is due at this moment was created then."""
        return np.uint64(max(0, moment_ns - (self.transit.ns or 0) - self.pace.delay_ns))

    def due_ns(self) -> int | None:
        """When the next product is due."""
        if not len(self.held) or self.transit.ns is None:
            return None
        return self.held.first_ns + self.transit.ns + self.pace.delay_ns

    def poll(self, now_ns: int, has_ended: bool = False) -> JoinedBatch | None:
        """What is due now, if anything, and what will be within half of the precision. LateError by the policy."""
        late = self._take_late()
        if late is not None:
            return late
        due_ns = self.due_ns()
        if due_ns is None or due_ns > now_ns + self.pace.precision_ns // 2:
            return None
        self._sort_in()
        self.transit.move(now_ns)
        if now_ns - due_ns > self.pace.delay_ns and self.pace.overdue == "drop":
            self._drop_overdue(now_ns)
        by = self._created_by(now_ns + self.pace.precision_ns // 2)
        count = int(np.searchsorted(self.held.created_ns, by, side="right"))
        if not count:
            return None
        if now_ns - due_ns > max(self.pace.precision_ns, NS // 1000):
            self.overdue += int(np.searchsorted(self.held.created_ns, self._created_by(now_ns - NS // 1000)))
        self._note(self.held.created_ns[:count], now_ns)
        self.counts.released += count
        return self.held.take(count)

    def _drop_overdue(self, now_ns: int) -> None:
        count = int(np.searchsorted(self.held.created_ns, self._created_by(now_ns - self.pace.delay_ns)))
        if count:
            self.dropped_overdue += count
            self.dropped.append(self.held.take(count))

    def _note(self, created: npt.NDArray[np.uint64], now_ns: int) -> None:
        self._left.append((created, now_ns))
        if len(self._left) >= _FOLD:
            self._fold()

    def _fold(self) -> None:
        if self._left:
            created = np.concatenate([each for each, _ in self._left])
            left = np.repeat([now for _, now in self._left], [len(each) for each, _ in self._left])
            self._after.note(created, left)
            self._left.clear()

    @property
    def after(self) -> Jitter:
        """The jitter of what was released."""
        self._fold()
        return self._after
