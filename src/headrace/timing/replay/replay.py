"""Replay: the products of a source again, in batches, each when it is due.

    with queue.replay("2h", "1h", "wx/**", speed=10) as replay:
        for batch in replay:
            ...             # meanwhile, from any thread: replay.pause(), resume(), seek("+5min"), speed("max")

The first product is due at once, and each other one as long after it as it was then, divided by the speed. A batch has
everything that is due, so a consumer that is too slow gets larger batches and catches up; how far it is behind is part
of the progress. Memory holds one chunk of the source. A chunk that would be held for longer than a second is given back
and read again, so a replay that waits or is paused does not keep files of the queue. If the queue evicts products
meanwhile, the next batch has their exact range in `lost`.

A source without an end goes on with live products: they are due when they arrive, once the replay has caught up.

One thread iterates; the other methods are for any thread. Not here: how products are put (marks.py).
"""

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from headrace.errors import OptionError
from headrace.kernel import _kernel as kernel
from headrace.log.follow import iterate_async
from headrace.log.read import Start
from headrace.product.batch import Batch, Lost
from headrace.timing.replay.marks import ONTO, MarkedBatch, Marks, Stored, Target, new_run
from headrace.timing.replay.source import Chunk, Piece, Source
from headrace.timing.replay.spacing import AS_FAST_AS_POSSIBLE, Spacing, parse_speed
from headrace.units import parse_age

HELD_S_MAX = 1.0  # how long a chunk is held that keeps memory of the queue
_NEAR_NS = 3_000_000  # from here on a sleep is one piece
_LIVE_S = 1.0  # how long to wait for live products before looking for commands

log = logging.getLogger("headrace.queue")


class Elapsed(Protocol):
    """The time that passes, and how to wait; tests have their own."""

    def elapsed_ns(self) -> int:
        """Nanoseconds since some fixed moment; never backwards."""

    def sleep(self, seconds: float | None, woken: threading.Event) -> None:
        """Return after so many seconds, or as soon as the event is set. None: only then."""


class MachineTime:
    """The machine's own: steps of the wall clock do not change it.

    The last milliseconds are slept in the kernel, without the interpreter, until an absolute time; no command wakes it
    there.
    """

    def elapsed_ns(self) -> int:
        return time.monotonic_ns()

    def sleep(self, seconds: float | None, woken: threading.Event) -> None:
        until_ns = None if seconds is None else time.monotonic_ns() + round(seconds * 1e9)
        if until_ns is None or seconds is None:
            woken.wait()
        elif seconds * 1e9 <= _NEAR_NS or not woken.wait(seconds - _NEAR_NS / 1e9):
            kernel.sleep_precisely(until_ns, 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is. Positions are those of its source: sequences of a queue, times of an archive."""

    products: int  # handed out
    payload_bytes: int
    lost: int  # products evicted before they were read
    damaged: int
    position: int  # behind the last product; where a seek goes, from its call on
    start: int
    stop: int | None
    time_ns: int  # of the last product in the stream; 0 before the first one, and after a seek
    speed: float
    is_paused: bool
    lap: int  # how often it went back
    is_live: bool  # everything that there is was handed out, and the source goes on
    behind_s: float  # by how much the consumer is late

    @property
    def fraction(self) -> float | None:
        """How much of the window is done, from 0 to 1; None for one without an end."""
        if self.stop is None:
            return None
        return min(1.0, (self.position - self.start) / max(1, self.stop - self.start))


class Replay:
    """An iterator over batches; `Queue.replay` and `Archive.replay` make one."""

    def __init__(self, source: Source, speed: Any = 1.0, elapsed: Elapsed | None = None) -> None:
        self._source, self._elapsed = source, elapsed or MachineTime()
        self._spacing = Spacing(parse_speed(speed))
        self._lock = threading.Lock()  # of everything that follows but the chunk, which belongs to the iterating thread
        self._woken = threading.Event()
        self._target: int | None = None  # where a seek goes
        self._lap = 0
        self._is_stopped = self._is_live = False
        self._position = source.position
        self._time_ns = 0  # of the last product, in the stream
        self._place_ns = 0  # of the last product, in the queue; or where the last seek went, if that was later
        self.on_wait: Callable[[float | None], None] = lambda seconds: None  # before so long a wait; None: no limit
        self._has_moved = False  # to a place whose time is known when its product is found
        self._products = self._payload_bytes = self._lost = self._damaged = self._behind_ns = 0
        self._chunk: Chunk | None = None
        self._done = 0  # products of the chunk that were handed out
        self._times = np.zeros(0, np.int64)  # of the chunk, in order

    # --- commands, from any thread ----------------------------------------------------------------

    def pause(self) -> None:
        """Hand out nothing until `resume`. A batch that was handed out already is the consumer's."""
        with self._lock:
            if not self._spacing.is_paused:
                self._spacing.pause(self._time_ns, self._elapsed.elapsed_ns())
        self._woken.set()

    def resume(self) -> None:
        """Go on where it was paused."""
        with self._lock:
            if self._spacing.is_paused:
                self._spacing.resume(self._elapsed.elapsed_ns())
        self._woken.set()

    def speed(self, speed: Any) -> None:
        """Go on at this speed: a factor, "10x", or "max" for as fast as possible."""
        factor = parse_speed(speed)
        with self._lock:
            self._spacing.set_speed(factor, self._time_ns, self._elapsed.elapsed_ns())
        self._woken.set()

    def seek(self, to: Start) -> int:
        """Go on at a sequence, "oldest", or a time; "+10s" and "-5min" count from where it is. The position.

        That is the last product, or the place of a seek that no product has followed yet. Times are those at which
        products came into the queue. A place outside the window is moved to its nearer end.
        """
        bounds = self._source.bounds
        place_ns = self._relative(to)
        found = self._source.find(to if place_ns is None else _moment(place_ns))
        position = max(bounds.start, found if bounds.stop is None else min(found, bounds.stop))
        with self._lock:
            self._target = position
            self._has_moved = place_ns is None or position != found
            self._place_ns = self._place_ns if self._has_moved or place_ns is None else place_ns
        self._woken.set()
        return position

    def _relative(self, to: Start) -> int | None:
        """The time in the queue that is so far from where the replay is; None if `to` is a place."""
        if not isinstance(to, str) or to[:1] not in ("+", "-"):
            return None
        try:
            distance_ns = int(parse_age(to[1:], "seek") * 1e9) * (1 if to[0] == "+" else -1)
        except OptionError:
            raise OptionError(
                f"seek {to!r} is not a distance in time",
                f'write a number and a unit, such as "{to[0]}50s"; a sequence has no sign',
            ) from None
        with self._lock:
            place_ns = self._place_ns
        if not place_ns and distance_ns > 0:
            raise OptionError(f"seek {to!r} counts from the last product, and there was none yet", "give a time")
        return max(0, place_ns + distance_ns)

    def stop(self) -> None:
        """End the iteration; it wakes up at once."""
        with self._lock:
            self._is_stopped = True
        self._woken.set()
        self._source.stop()

    @property
    def is_ended(self) -> bool:
        """Whether everything in the window was handed out; not if it was stopped before."""
        return self._chunk is None and self._target is None and self._source.is_ended

    def progress(self) -> Progress:
        """How far it is now."""
        with self._lock:
            bounds, spacing, target = self._source.bounds, self._spacing, self._target
            position, time_ns = (self._position, self._time_ns) if target is None else (target, 0)
            return Progress(
                self._products, self._payload_bytes, self._lost, self._damaged, position, bounds.start,
                bounds.stop, time_ns, spacing.speed, spacing.is_paused, self._lap, self._is_live,
                self._behind_ns / 1e9,
            )  # fmt: skip

    # --- iteration --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        """The replay itself: after a `break`, another loop goes on with the batch after the last one."""
        return self

    def __next__(self) -> Batch:
        """The products that are due; waits until some are. StopIteration at the end of the window."""
        while True:
            self._woken.clear()
            if self._is_stopped:
                raise StopIteration
            self._follow_seek()
            if self._chunk is None and not self._read():
                if self._is_stopped or self._target is None:
                    raise StopIteration
                continue
            piece = self._due()
            if piece is not None:
                return piece
            self._wait()

    def __aiter__(self) -> AsyncIterator[Batch]:
        """As `__iter__`; it waits in a thread of its own, which ends with the iteration. A `break` stops the replay."""
        return iterate_async(self)

    def _follow_seek(self) -> None:
        with self._lock:
            target, self._target = self._target, None
            if target is None:
                return
            self._lap += target < self._position
            self._position, self._is_live = target, False
            self._spacing.forget()
        self._source.go_to(target)
        self._chunk, self._times = None, self._times[:0]
        self._done, self._time_ns = 0, 0

    def _read(self) -> bool:
        """Get the next chunk, waiting for it if the source goes on; False at the end, and if there is a command."""
        while self._target is None and not self._is_stopped:
            chunk = self._source.read()
            if chunk is not None:
                self._hold(chunk)
                return True
            if self._source.is_ended:
                return False
            with self._lock:
                self._is_live = self._source.bounds.stop is None
            self.on_wait(_LIVE_S)
            self._source.wait(_LIVE_S)
        return self._target is not None

    def _hold(self, chunk: Chunk) -> None:
        """A product that is out of order in the stream is due with the one before it."""
        self._chunk, self._done = chunk, 0
        self._times = np.maximum.accumulate(np.maximum(chunk.times, self._time_ns))
        with self._lock:
            if self._has_moved and len(self._times):
                self._place_ns, self._has_moved = int(chunk.batch.columns["inserted_ns"][0]), False

    def _due(self) -> Batch | None:
        """What is due of the chunk, or a range that was lost; None if nothing is."""
        chunk = self._chunk
        if chunk is None:
            return None
        if chunk.damaged is not None:
            self._note_damage(chunk.damaged)
        if self._done == 0 and chunk.batch.lost is not None and self._position <= chunk.batch.lost.last:
            return self._hand_out_lost(chunk, chunk.batch.lost)
        with self._lock:
            now_ns = self._elapsed.elapsed_ns()
            if self._target is not None:
                return None
            count = self._spacing.due(self._times[self._done :], now_ns)
            if not count:
                if self._done == len(self._times) and not self._spacing.is_paused:
                    self._end_chunk(chunk)
                return None
            return self._hand_out(chunk, count, now_ns)

    def _hand_out(self, chunk: Chunk, count: int, now_ns: int) -> Piece:
        begin, end = self._done, self._done + count
        self._done = end
        self._behind_ns = self._spacing.behind_ns(int(self._times[begin]), now_ns)
        self._time_ns = int(self._times[end - 1])
        self._place_ns = int(chunk.batch.columns["inserted_ns"][end - 1])
        self._position = int(chunk.ends[end - 1])
        if end == len(self._times):
            self._end_chunk(chunk)
        piece = Piece(chunk.batch, begin, end, self._position, None)
        self._products += count
        self._payload_bytes += piece.payload_bytes
        return piece

    def _end_chunk(self, chunk: Chunk) -> None:
        self._position = max(self._position, chunk.end)
        self._chunk = None

    def _hand_out_lost(self, chunk: Chunk, lost: Lost) -> Piece:
        """An empty batch with the range, at once: a program that counts learns of it before the products behind it."""
        with self._lock:
            first = max(lost.first, self._position)
            self._lost += lost.last + 1 - first
            self._position = lost.last + 1
        return Piece(chunk.batch, 0, 0, lost.last + 1, Lost(first, lost.last))

    def _note_damage(self, damaged: Lost) -> None:
        with self._lock:
            self._damaged += damaged.products
            self._position = damaged.last + 1
        log.warning("products %s are damaged, and are not replayed", damaged)
        self._chunk = None

    def _wait(self) -> None:
        """Sleep until the next product of the chunk is due, or there is a command."""
        if self._chunk is None:
            return
        with self._lock:
            left_s = None
            if not self._spacing.is_paused:
                left_ns = self._spacing.left_ns(int(self._times[self._done]), self._elapsed.elapsed_ns())
                left_s = left_ns / 1e9
        if self._source.holds_memory and (left_s is None or left_s > HELD_S_MAX):
            self._source.go_to(self._position)
            self._chunk = None
        self.on_wait(left_s)
        self._elapsed.sleep(left_s, self._woken)

    # --- onto a feed ------------------------------------------------------------------------------

    def put_into(
        self, target: Target, onto: str = ONTO, *, relay: bool = False, run: int | None = None
    ) -> Iterator[Stored]:
        """Put each batch when it is due, as products that are marked as a replay (marks.py); yields what became of it.

        `onto` is the feed: `**` at its end stands for the original one. With `relay`, other sites get them, too. `run`
        is the number of a run that is repeated; a new one is drawn otherwise.
        """
        marks = Marks(run or new_run(), onto, relay)
        for batch in self:
            yield MarkedBatch(batch, marks, lap=self._lap).put(target)

    # --- with -------------------------------------------------------------------------------------

    def __enter__(self) -> "Replay":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> "Replay":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        progress = self.progress()
        speed = "as fast as possible" if progress.speed == AS_FAST_AS_POSSIBLE else f"at {progress.speed:g}x"
        stop = "live" if progress.stop is None else progress.stop
        return f"<Replay {speed}{', paused' if progress.is_paused else ''}, at {progress.position} of {stop}>"


def _moment(ns: int) -> str:
    """As a start: ISO 8601, to the microsecond."""
    from headrace.product.product import utc

    return utc(ns).isoformat()
