"""Pacer: products with the spacing that they were created with, so that the jitter of the network disappears.

    with queue.station("audio", "lab/microphone").attach() as consumer:
        with Pacer(consumer, delay="200ms", precision="100us") as pacer:
            for batch in pacer:                     # acknowledged when the loop asks for the next one
                play(batch)

Each product leaves `delay` after the fastest product of its age would have arrived (schedule.py). That also orders them
by time: a pacer needs no release buffer before it.

A batch has the products whose moments are within half of `precision` of each other, one product as a rule. The sleep
until the moment is in the kernel, without the interpreter, by an absolute time. A precision below 100 microseconds
spins for the last 60 of them, since that is how long a processor may take to wake up; `headrace bench timing` says what
each precision costs. The program has to ask for the next batch before its moment.

Works on consumers and followers, local and remote ones. Leases and positions are as in buffer.py, but acknowledgements
of the loop are sent together every 50 ms, by a thread: one for each product would delay the next, above all if its
consumer is at another site. `pacer.ack(batch)` and `consumer.ack(batch)` do not wait for that.
"""

import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass
from datetime import timedelta

from headrace.errors import HeadraceError, LeaseLostError
from headrace.guard import GuardedThread
from headrace.kernel import _kernel as kernel
from headrace.product.joined import JoinedBatch, leases_of
from headrace.timing.intake import Bounds, Source, is_consumer
from headrace.timing.jitter import JitterStatistics
from headrace.timing.schedule import Pace, Schedule
from headrace.timing.stream import OrderedStream

_SPIN_BELOW_NS = 100_000
_SPIN_NS = 60_000
_NEAR_NS = 3_000_000  # from here on the sleep is one piece, in the kernel
_REST_SHARE = 0.2  # of `delay`: how long a slow stream gathers before it is asked again
_REST_S_MAX = 0.05
_ACKS_S = 0.05  # between two acknowledgements


@dataclass(frozen=True, slots=True)
class PacerStatistics:
    """A pacer since it was made; `held` and `held_bytes` are those of now."""

    held: int
    held_bytes: int
    received: int
    released: int
    missed: int  # arrived after their moment
    overdue: int  # taken by the program more than a millisecond after their moment
    late: int  # released, or raised as LateError, after products that were created later
    dropped_late: int
    dropped_overdue: int
    repeated: int  # copies of products that were held already; not released
    restarts: int  # how often the order was reset, because all products were late
    jumps: int  # how often the schedule was moved at once
    before: JitterStatistics  # from creation to the queue that the source reads
    after: JitterStatistics  # from creation to the release


class Pacer(OrderedStream):
    """An iterator of batches at the moments at which they are due, for `for` and `async for`."""

    def __init__(
        self, *sources: Source, delay: float | str | timedelta = "200ms", precision: float | str | timedelta = "1ms",
        late: str = "release", overdue: str = "release", products_max: int = 100_000, bytes_max: int | str = "64MiB",
        timeout: float | str | timedelta | None = None,
    ) -> None:  # fmt: skip
        """`timeout` ends the loop after so long without a product of a consumer; a follower has its own.

        While `products_max` products or `bytes_max` bytes are held, no more are taken from the sources. `late` is the
        policy for products that arrive after later ones were released: release, drop or error. `overdue` is that for
        products more than `delay` behind their moment: release or drop. OptionError if one of them is invalid.
        """
        pace = Pace.of(delay, precision, late, overdue, products_max, bytes_max)
        self._schedule = Schedule(len(sources), pace)
        self._spin_ns = _SPIN_NS if pace.precision_ns < _SPIN_BELOW_NS else 0
        self._done: deque[JoinedBatch] = deque()  # to be acknowledged
        self._acks: threading.Thread | None = None
        self._acking = threading.Lock()
        rest_s = min(_REST_S_MAX, _REST_SHARE * pace.delay_ns / 1e9)
        super().__init__(sources, self._schedule, Bounds(pace.products_max, pace.bytes_max), rest_s, timeout)

    def _next(self, stop: threading.Event | None) -> JoinedBatch | None:
        due_ns = self._schedule.ready_ns
        if due_ns is not None and not self._intake.has_news and due_ns - time.monotonic_ns() < _NEAR_NS:
            batch = self._schedule.take_due(kernel.sleep_precisely(due_ns, self._spin_ns))  # the usual case, quickly
            if batch is not None:
                return batch
        return super()._next(stop)

    def _wait(self, due_ns: int | None, stop: threading.Event | None) -> None:
        if due_ns is None or due_ns - time.monotonic_ns() > _NEAR_NS:
            super()._wait(None if due_ns is None else due_ns - _NEAR_NS, stop)
        else:
            kernel.sleep_precisely(due_ns, self._spin_ns)

    def _finish(self, batch: JoinedBatch) -> None:
        self._done.append(batch)
        if self._acks is None and any(is_consumer(each) for each in self._intake.sources):
            terms = weakref.ref(self), self._intake.stopping
            self._acks = GuardedThread(
                _acknowledge, "headrace-acks", args=terms, until=self._intake.stopping.is_set, daemon=True
            )
            self._acks.start()

    def _finish_all(self) -> None:
        with self._acking:
            done: list[JoinedBatch] = []
            while self._done:
                done.append(self._done.popleft())
            error = None
            for number, source in enumerate(self._intake.sources) if done else ():
                if is_consumer(source):
                    try:
                        source.ack(leases_of(done, number))
                    except LeaseLostError:
                        pass  # settled by the loop, or delivered again
                    except HeadraceError as failed:  # the other sources first
                        error = failed
            if error is not None:
                raise error

    def statistics(self) -> PacerStatistics:
        schedule = self._schedule
        held, counts = schedule.held, schedule.counts
        return PacerStatistics(
            len(schedule), held.bytes, counts.received, counts.released, schedule.missed, schedule.overdue, counts.late,
            counts.dropped_late, schedule.dropped_overdue, counts.repeated, counts.restarts, schedule.transit.jumps,
            schedule.before.statistics(), schedule.after.statistics(),
        )  # fmt: skip


def _acknowledge(pacer: "weakref.ref[Pacer]", stopping: threading.Event) -> None:
    """Acknowledge what loops are done with, until the pacer is closed or dropped."""
    while not stopping.wait(_ACKS_S) and (alive := pacer()) is not None:
        try:
            alive._finish_all()
        except Exception as error:  # noqa: BLE001 - belongs to the program, which gets it when it asks for a batch
            alive._intake.fail(error)
        del alive
