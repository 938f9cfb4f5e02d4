"""OrderedStream: what a release buffer and a pacer have in common: sources, iteration, acknowledgements, closing.

    sources ──threads──► inbox ──► Release (add, poll) ──► batch ──► program ──► acknowledged at their sources

The program's thread does everything but the taking from the sources. A batch is acknowledged when the loop asks for the
next one, as in `consumer.batches`: products that the loop has settled itself stay as they are. What is held is leased
and not acknowledged, so a program that dies loses nothing. `close` gives back what is held.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from headrace.errors import HeadraceError, LeaseLostError, OptionError
from headrace.kernel import _kernel as kernel
from headrace.log.in_thread import in_thread, started
from headrace.product.batch import Batch, Lost
from headrace.product.joined import JoinedBatch
from headrace.timing.held import Held
from headrace.timing.intake import Arrival, Bounds, Intake, Source, is_consumer
from headrace.units import parse_age

if TYPE_CHECKING:
    from concurrent.futures import Future

SOURCES_MAX = 1000


class Release(Protocol):
    """Decides what is released when (release.py, schedule.py)."""

    held: Held
    dropped: deque[JoinedBatch]

    def add(self, batch: Batch, source: int, now_ns: int) -> None: ...
    def poll(self, now_ns: int, has_ended: bool = False) -> JoinedBatch | None: ...
    def due_ns(self) -> int | None: ...
    def take_back(self) -> list[JoinedBatch]: ...
    def __len__(self) -> int: ...


class OrderedStream:
    """An iterator of batches, for `for` and `async for`, and a context manager."""

    def __init__(
        self, sources: Sequence[Source], release: Release, bounds: Bounds, rest_s: float,
        timeout: float | str | timedelta | None,
    ) -> None:  # fmt: skip
        check_sources(sources)
        timeout_s = None if timeout is None else parse_age(timeout, "timeout")
        self._release = release
        self._intake = Intake(sources, bounds, rest_s, timeout_s)
        self._turn = threading.Lock()  # one thread at a time asks for a batch
        self._lost: deque[Lost] = deque()  # reported by sources, to be passed on
        self._returned: deque[JoinedBatch] = deque()  # released to a task that was cancelled
        self._in_hand: JoinedBatch | None = None
        self._closed = False

    # --- iterate ----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[JoinedBatch]:
        return self

    def __next__(self) -> JoinedBatch:
        """The next batch that is due; acknowledges the one before. Ends when all sources have ended."""
        batch = self._ack_and_wait(None)
        if batch is None:
            raise StopIteration
        return batch

    async def __aiter__(self) -> AsyncIterator[JoinedBatch]:
        """As `__iter__`; the waiting is done by a thread of its own."""
        while (batch := await self._next_async()) is not None:
            yield batch

    async def _next_async(self) -> JoinedBatch | None:
        import asyncio  # slow to load, and loaded already where this runs

        stop = threading.Event()
        future = started(lambda: self._ack_and_wait(stop), "release")
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            stop.set()
            future.add_done_callback(self._take_back)
            self._intake.wake()
            raise

    def _take_back(self, future: "Future[JoinedBatch | None]") -> None:
        """What was released to a task that was cancelled is released again."""
        if future.exception() is None and (batch := future.result()) is not None:
            self._in_hand = None
            self._returned.append(batch)

    def _ack_and_wait(self, stop: threading.Event | None) -> JoinedBatch | None:
        with self._turn:
            done, self._in_hand = self._in_hand, None
            if done is not None:
                self._finish(done)
            self._in_hand = self._next(stop)
            if self._in_hand is None:
                self._finish_all()
            return self._in_hand

    def _finish(self, batch: JoinedBatch) -> None:
        """The loop is done with a batch: acknowledge the rest of it."""
        self._settle_rest(batch, "ack")

    def _finish_all(self) -> None:
        """Acknowledge what `_finish` has put off."""

    def _next(self, stop: threading.Event | None) -> JoinedBatch | None:
        if self._closed:
            return None
        self._intake.start()
        while not (stop is not None and stop.is_set()):
            if self._returned:
                return self._returned.popleft()
            for arrival in self._intake.take():
                self._add(arrival)
            has_ended = self._intake.has_ended
            batch = self._poll(has_ended)
            if batch is not None:
                return batch
            if has_ended and not len(self._release):
                return None
            self._wait(self._release.due_ns(), stop)
        return None

    def _add(self, arrival: Arrival) -> None:
        if arrival.batch.lost is not None:
            self._lost.append(arrival.batch.lost)
        self._release.add(arrival.batch, arrival.source, arrival.now_ns)

    def _poll(self, has_ended: bool) -> JoinedBatch | None:
        held = self._release.held
        products, payload_bytes = len(held), held.bytes
        try:
            batch = self._release.poll(time.monotonic_ns(), has_ended)
        finally:
            if len(held) != products:
                self._intake.release(products - len(held), payload_bytes - held.bytes)
            while self._release.dropped:
                self._settle_rest(self._release.dropped.popleft(), "ack")
        if batch is None and self._lost:
            batch = _nothing(held.positions())
        if batch is not None and self._lost:
            batch.lost = self._lost.popleft()
        return batch

    def _wait(self, due_ns: int | None, stop: threading.Event | None) -> None:
        """Sleep until something is due or has arrived."""
        wait_s = None if due_ns is None else max(0.0, (due_ns - time.monotonic_ns()) / 1e9)
        self._intake.wait(wait_s, stop)

    # --- settle -----------------------------------------------------------------------------------

    def ack(self, batch: JoinedBatch) -> None:
        """Acknowledge what came from consumers: the work is done. For one source, `consumer.ack(batch)` is the same."""
        self._settle(batch, "ack")

    def nack(self, batch: JoinedBatch, *, failed: bool = False) -> None:
        """Give what came from consumers back to their stations. `failed` counts as a delivery."""
        self._settle(batch, "nack", failed=failed)

    def _settle(self, batch: JoinedBatch, how: str, **options: bool) -> None:
        if not isinstance(batch, JoinedBatch):
            raise OptionError(f"{batch!r} is not a batch of this buffer", "give a batch that it released")
        error: HeadraceError | None = None
        for number in batch.sources:
            source = self._intake.sources[number]
            if is_consumer(source):
                part = batch if len(batch.positions) == 1 else batch.of_source(number)
                try:
                    getattr(source, how)(part, **options)
                except HeadraceError as failed:  # the other sources first
                    error = failed if error is None or isinstance(error, LeaseLostError) else error
        if error is not None:
            raise error

    def _settle_rest(self, batch: JoinedBatch, how: str) -> None:
        """Settle what the program has not settled itself. A lease that was lost is delivered again."""
        with contextlib.suppress(LeaseLostError):
            self._settle(batch, how)

    # --- end --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take no more, and end the loop once what is held was released; from any thread. Followers end, too."""
        self._intake.stop()

    def close(self) -> None:
        """Stop taking, and give back what is held; followers end. The batch in hand stays leased."""
        if self._closed:
            return
        self._closed = True
        self._intake.stop()
        self._intake.join()
        with self._turn, contextlib.suppress(HeadraceError):  # `detach` returns what could not be given back
            self._finish_all()
            for arrival in self._intake.take():
                self._release.add(arrival.batch, arrival.source, arrival.now_ns)
            for batch in self._release.take_back():
                self._settle_rest(batch, "nack")
            while self._returned:
                self._settle_rest(self._returned.popleft(), "nack")

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.close, "close")

    def __del__(self) -> None:
        """Dropped without `close`: the threads end, and leases go back when their consumer detaches."""
        if not getattr(self, "_closed", True):
            self._intake.stop()


def check_sources(sources: Sequence[Source]) -> None:
    if not 1 <= len(sources) <= SOURCES_MAX:
        raise OptionError(f"{len(sources)} sources", f"give 1 to {SOURCES_MAX:,} consumers or followers")


def _nothing(positions: list[int]) -> JoinedBatch:
    none = np.empty(0, np.uint32)
    return JoinedBatch(kernel.join_rows([], none, none), [], [], none, none, positions)
