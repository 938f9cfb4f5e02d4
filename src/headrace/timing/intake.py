"""Intake: takes batches from one or many sources, as they arrive, for a release buffer or a pacer.

A source is a consumer of a station or a follower of a queue, on this machine or at another site. Each one has a thread,
because a program can wait for one source at a time only. What was taken lies in an inbox until the program asks for it.

Bounds: a source is not asked while the inbox and what is held reach the limits, so the rest stays at the station or in
the queue. A consumer is asked for no more than fits; a follower may exceed the limits by one batch. After a batch that
was not full, a thread rests for `rest_s`, so that a slow stream comes in a few batches and not one by one.

A source that fails ends its thread. The error is raised where the program waits, and the source is asked again when the
program goes on, as if it had called the source itself.

Not here: what is done with the batches. Leases of what is in the inbox are held as those of what was added (held.py).
"""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

from headrace.errors import OptionError
from headrace.guard import OnceThread
from headrace.log.seams import Timeout
from headrace.product.batch import Batch
from headrace.station.leases import Leased

GET_PRODUCTS_MIN, GET_PRODUCTS_MAX = 256, 10_000
_GET_S = 1.0  # how long a get waits before it looks whether to stop
_JOIN_S = 5.0


class ConsumerSource(Protocol):
    """What is used of a consumer."""

    def get(self, n: int = 1, timeout: Timeout = None) -> Batch: ...
    def ack(self, what: Leased) -> None: ...
    def nack(self, what: Leased, *, failed: bool = False) -> None: ...
    def interrupt(self) -> None: ...


class FollowerSource(Protocol):
    """What is used of a follower."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __next__(self) -> Batch: ...
    def stop(self) -> None: ...


Source = ConsumerSource | FollowerSource


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch from a source, and when it came (monotonic)."""

    source: int
    batch: Batch
    now_ns: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be held, the inbox included."""

    products_max: int
    bytes_max: int


class Intake:
    """Threads that fill an inbox. `add_waker` names what to call after each change of it."""

    def __init__(
        self, sources: Sequence[Source], bounds: Bounds, rest_s: float, timeout_s: float | None
    ) -> None:  # fmt: skip
        for source in sources:
            if not is_consumer(source) and not _is_follower(source):
                raise OptionError(
                    f"{source!r} is not a source", "give consumers (station.attach()) or followers (queue.follow())"
                )
        self.sources = sources
        self._bounds, self._rest_s, self._timeout_s = bounds, rest_s, timeout_s
        self._changed = threading.Condition()  # guards all that follows
        self._inbox: deque[Arrival] = deque()
        self._errors: deque[BaseException] = deque()
        self._products = self._bytes = 0  # taken and not released
        self._running: dict[int, threading.Thread] = {}
        self._ended: set[int] = set()
        self.stopping = threading.Event()

    # --- the program's side -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads of sources that have none; those that have ended stay so."""
        if len(self._running) == len(self.sources):
            return
        with self._changed:
            for number in range(len(self.sources)):
                if number not in self._running and number not in self._ended and not self.stopping.is_set():
                    thread = OnceThread(self._run, "headrace-intake", args=(number,))
                    self._running[number] = thread
                    thread.start()

    def take(self) -> list[Arrival]:
        """What has arrived; raises the error of a source that failed, once it has returned what came before."""
        if not self.has_news:
            return []
        with self._changed:
            arrivals = list(self._inbox)
            self._inbox.clear()
            if not arrivals and self._errors:
                raise self._errors.popleft()
        return arrivals

    @property
    def has_news(self) -> bool:
        """Whether `take` has something; a look without the lock."""
        return bool(self._inbox or self._errors)

    def wait(self, timeout_s: float | None, stop: threading.Event | None = None) -> None:
        """Sleep until something has arrived or ended, `wake` is called, or the time is over."""
        with self._changed:
            if not self._inbox and not self._errors and not self.has_ended and not (stop and stop.is_set()):
                self._changed.wait(timeout_s)

    def wake(self) -> None:
        """Make `wait` in another thread return."""
        with self._changed:
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Something else has failed: `take` raises it."""
        with self._changed:
            self._errors.append(error)
            self._changed.notify_all()

    @property
    def has_ended(self) -> bool:
        """Whether all sources have ended, or were stopped, and nothing waits in the inbox."""
        return (len(self._ended) == len(self.sources) or self.stopping.is_set()) and not self._inbox

    def release(self, products: int, payload_bytes: int) -> None:
        """So much is no longer held."""
        with self._changed:
            self._products -= products
            self._bytes -= payload_bytes
            self._changed.notify_all()

    def stop(self) -> None:
        """Ask the threads to end. What they have taken stays in the inbox."""
        self.stopping.set()
        self.wake()
        for source in self.sources:
            if is_consumer(source):
                source.interrupt()
            elif _is_follower(source):
                source.stop()

    def join(self) -> None:
        """Wait until the threads have ended."""
        until = time.monotonic() + _JOIN_S
        for thread in list(self._running.values()):
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))

    # --- the threads ------------------------------------------------------------------------------

    def _run(self, number: int) -> None:
        error: BaseException | None = None
        try:
            for batch in self._batches(self.sources[number]):
                with self._changed:
                    self._inbox.append(Arrival(number, batch, time.monotonic_ns()))
                    self._products += len(batch)
                    self._bytes += batch.payload_bytes
                    self._changed.notify_all()
        except BaseException as failure:  # noqa: BLE001 - belongs to the program, which gets it from `take`
            error = failure
        with self._changed:
            del self._running[number]
            if error is None:
                self._ended.add(number)
            elif not self.stopping.is_set():
                self._errors.append(error)
            self._changed.notify_all()

    def _batches(self, source: Source) -> Iterator[Batch]:
        if is_consumer(source):
            yield from self._get_all(source)
        elif _is_follower(source):
            yield from self._follow(source)

    def _get_all(self, consumer: ConsumerSource) -> Iterator[Batch]:
        """Batches of a consumer; ends after `timeout_s` without a product."""
        last_s, many = time.monotonic(), GET_PRODUCTS_MIN
        while room := self._room():
            wait_s = _GET_S
            if self._timeout_s is not None:
                wait_s = min(wait_s, max(0.0, last_s + self._timeout_s - time.monotonic()))
            n = min(room, many)
            batch = consumer.get(n, wait_s)
            if len(batch):
                many = min(max(2 * len(batch), GET_PRODUCTS_MIN), GET_PRODUCTS_MAX)  # room for more costs time
                yield batch
                last_s = time.monotonic()
                self._rest(len(batch) < n)
            elif self._timeout_s is not None and time.monotonic() >= last_s + self._timeout_s:
                return

    def _follow(self, follower: FollowerSource) -> Iterator[Batch]:
        while self._room():
            batch = next(follower, None)
            if batch is None:
                return
            yield batch
            self._rest(len(batch) < GET_PRODUCTS_MAX)

    def _room(self) -> int:
        """How many products may be taken; waits until it is at least one. 0: stop."""
        with self._changed:
            while not self.stopping.is_set():
                if self._products < self._bounds.products_max and self._bytes < self._bounds.bytes_max:
                    return self._bounds.products_max - self._products
                self._changed.wait(_GET_S)
        return 0

    def _rest(self, is_slow: bool) -> None:
        """Let a slow stream gather for a moment."""
        if is_slow and self._rest_s:
            self.stopping.wait(self._rest_s)


def is_consumer(source: Any) -> TypeGuard[ConsumerSource]:
    return hasattr(source, "get") and hasattr(source, "ack")


def _is_follower(source: Any) -> TypeGuard[FollowerSource]:
    return hasattr(source, "__next__") and hasattr(source, "stop")
