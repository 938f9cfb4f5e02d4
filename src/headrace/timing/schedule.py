"""Schedule: the moment at which a pacer releases each product.

    moment = created_ns + transit + delay

`transit` is the shortest time that products have lately taken from their creation to here, by two clocks that need not
agree. So the fastest product is held for `delay`, a slower one for less, and all leave with the spacing that they were
created with. A product that takes longer than transit + delay misses its moment and leaves at once.

The transit follows changes (`Transit`): the least of the last 10 to 20 seconds. Small changes, such as clocks that
drift, are followed at 1 % of the time that passes, which nobody notices. Larger ones than `delay` are followed at once:
a clock that was set, a route that got shorter, a backlog at the start. If everything has missed its moment for a
second, the schedule starts again with what arrives. So no product is held for longer than about twice the delay, and
a pause in the stream ends by itself.

Products that a program takes too late are `overdue`: released together as soon as it asks, or, with the policy `drop`,
acknowledged and left out if they are more than `delay` behind their moment.

Products whose moments are within the next 10 ms are taken out together, and then handed out one by one: sorting for
each one would cost more than the sleep. A product that arrives after that is late if it belongs before them.

Pure logic: time (monotonic) is an argument, and nothing here waits.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

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
_SOON_NS = 10_000_000
_OVERDUE_NS = 1_000_000
_FOLD = 256  # products whose jitter is computed at once


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
        self._target_ns = 0  # the lower of both
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
        this = lowest_ns if this is None else min(this, lowest_ns)
        self._lowest, self._target_ns = (last, this), this if last is None else min(last, this)
        if lowest_ns <= self.ns + self._delay_ns:
            self._missing = None
            return
        since_ns, lowest = self._missing or (now_ns, lowest_ns)
        self._missing = since_ns, min(lowest, lowest_ns)
        if now_ns - since_ns >= ANEW_NS:
            self.jumps += 1
            self._begin(self._missing[1], now_ns)

    def _begin(self, lowest_ns: int, now_ns: int) -> None:
        self.ns = self._target_ns = lowest_ns
        self._lowest, self._missing = (None, lowest_ns), None
        self._window_ns = self._moved_ns = now_ns

    def move(self, now_ns: int) -> None:
        """Follow what was noted."""
        passed_ns, self._moved_ns = now_ns - self._moved_ns, now_ns
        if self.ns is None or self.ns == self._target_ns:
            return  # the usual case, for each product
        behind = self._target_ns - self.ns
        step = int(_SLEW * passed_ns) + 1
        if abs(behind) <= step:
            self.ns = self._target_ns
        elif abs(behind) > self._delay_ns:
            self.ns = self._target_ns
            self.jumps += 1
        else:
            self.ns += step if behind > 0 else -step


class _Ready:
    """Products that are due soon: a batch, of which parts are released."""

    def __init__(self, batch: JoinedBatch, stamps: list[int]) -> None:
        self.batch, self.stamps, self.place = batch, stamps, 0
        self._places = np.arange(len(stamps), dtype=np.uint32)
        after = [int(each) for each in batch.positions]
        if len(after) == 1:  # the lowest sequence behind each place
            lowest = np.minimum.accumulate(batch.sequences[::-1])[::-1].tolist()
            self._positions = [[min(after[0], each)] for each in lowest[1:]] + [after]
        else:
            self._positions = _positions_of_many(batch, after)

    def take(self, end: int) -> JoinedBatch:
        begin, self.place = self.place, end
        if begin == 0 and end == len(self.stamps):
            return self.batch
        return self.batch.part(begin, end, self._places[begin:end], self._positions[end - 1])


def _positions_of_many(batch: JoinedBatch, after: list[int]) -> list[list[int]]:
    sources = np.array([part.source for part in batch.parts])[batch.which].tolist()
    positions, found = list(after), []
    for source, sequence in zip(reversed(sources), reversed(batch.sequences.tolist()), strict=True):
        found.append(list(positions))
        positions[source] = min(positions[source], sequence)
    return found[::-1]


class Schedule(Holding):
    """A pacer without its sources. `add` and `poll` in turn."""

    def __init__(self, sources: int, pace: Pace) -> None:
        super().__init__(sources, pace.late)
        self.pace, self.transit = pace, Transit(pace.delay_ns)
        self._soon_ns = max(pace.precision_ns, min(_SOON_NS, pace.delay_ns // 10))
        self.missed = self.dropped_overdue = self.overdue = 0
        self.before, self._after = Jitter(), Jitter()
        self._left_stamps: list[int] = []  # released, not yet in `_after`
        self._left_ns: list[int] = []
        self._ready: _Ready | None = None

    def add(self, batch: Batch, source: int, now_ns: int) -> None:
        if len(batch):
            stamps = time_stamps(batch)
            self.transit.note(now_ns - int(stamps.max()), now_ns)
            self.transit.move(now_ns)
            self.missed += int(np.count_nonzero(stamps < np.uint64(self._created_by(now_ns))))
            self.before.note(batch.columns["created_ns"], batch.columns["inserted_ns"])
        super().add(batch, source, now_ns)

    def _created_by(self, moment_ns: int) -> int:
        """A product that is due at this moment was created then."""
        return max(0, moment_ns - (self.transit.ns or 0) - self.pace.delay_ns)

    def __len__(self) -> int:
        return len(self.held) + (0 if self._ready is None else len(self._ready.stamps) - self._ready.place)

    @property
    def ready_ns(self) -> int | None:
        """When the next product is due, if it was taken out already."""
        return None if self._ready is None else self.due_ns()

    def take_back(self) -> list[JoinedBatch]:
        ready, self._ready = self._ready, None
        return ([] if ready is None else [ready.take(len(ready.stamps))]) + super().take_back()

    def due_ns(self) -> int | None:
        """When the next product is due."""
        if self.transit.ns is None:
            return None
        if self._ready is not None:
            return self._ready.stamps[self._ready.place] + self.transit.ns + self.pace.delay_ns
        return self.held.first_ns + self.transit.ns + self.pace.delay_ns if len(self.held) else None

    def poll(self, now_ns: int, has_ended: bool = False) -> JoinedBatch | None:
        """What is due now, if anything, and what will be within half of the precision. LateError by the policy."""
        late = self._take_late()
        if late is not None:
            return late
        due_ns = self.due_ns()
        if self._ready is None and due_ns is not None and due_ns <= now_ns + self._soon_ns:
            self._take_ready(now_ns, due_ns)  # before it is due: it takes a moment
        return self.take_due(now_ns)

    def take_due(self, now_ns: int) -> JoinedBatch | None:
        """What is due of the products that are ready; nothing else is looked at."""
        ready, precision_ns = self._ready, self.pace.precision_ns
        if ready is None:
            return None
        self.transit.move(now_ns)
        offset_ns = (self.transit.ns or 0) + self.pace.delay_ns
        stamps, begin = ready.stamps, ready.place
        end = bisect_right(stamps, now_ns + precision_ns // 2 - offset_ns, begin)
        if end == begin:
            return None
        if now_ns - stamps[begin] - offset_ns > precision_ns + _OVERDUE_NS:
            self.overdue += bisect_left(stamps, now_ns - _OVERDUE_NS - offset_ns, begin, end) - begin
        if end == len(stamps):
            self._ready = None
        self._left_stamps += stamps[begin:end]
        self._left_ns += [now_ns] * (end - begin)
        if len(self._left_ns) >= _FOLD:
            self._fold()
        self.counts.released += end - begin
        return ready.take(end)

    def _take_ready(self, now_ns: int, due_ns: int) -> None:
        self._sort_in()
        if now_ns - due_ns > self.pace.delay_ns and self.pace.overdue == "drop":
            self._drop_overdue(now_ns)
        by = np.uint64(self._created_by(now_ns + self._soon_ns))
        count = int(np.searchsorted(self.held.created_ns, by, side="right"))
        if count:
            stamps: list[int] = self.held.created_ns[:count].tolist()
            self._ready = _Ready(self.held.take(count), stamps)

    def _drop_overdue(self, now_ns: int) -> None:
        by = np.uint64(self._created_by(now_ns - self.pace.delay_ns))
        count = int(np.searchsorted(self.held.created_ns, by))
        if count:
            self.dropped_overdue += count
            self.dropped.append(self.held.take(count))

    def _fold(self) -> None:
        self._after.note(np.array(self._left_stamps, np.uint64), np.array(self._left_ns, np.int64))
        self._left_stamps.clear()
        self._left_ns.clear()

    @property
    def after(self) -> Jitter:
        """The jitter of what was released."""
        self._fold()
        return self._after
