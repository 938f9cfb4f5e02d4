"""Source: where the products of a replay come from. A window of a queue, here or at another site, is one.

A source gives chunks: products in their order, each with the stream time that spaces it and the position behind it.
Positions are numbers of the source (sequences of a queue) that only grow along the stream; `go_to` continues at one, so
a replay may give a chunk back and read it again. Products that were evicted before they were read are the `lost` of a
chunk's batch, an exact range. Damaged ones are a `damaged` range.

Not here: archives (pipeline/archive), which are a source too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from headrace.errors import OptionError, ProductDamagedError, StartAheadError
from headrace.log.read import Start
from headrace.product.batch import Batch, Lost, rows_behind
from headrace.timing.replay.spacing import Times

By = Literal["inserted", "created"]
CHUNK_PRODUCTS = 10_000
CHUNK_BYTES = 8 << 20


class Piece(Batch):
    """Some products of a chunk. Its `next` is behind the last of them, so that a cursor may commit it."""

    __slots__ = ("_next",)

    def __init__(self, batch: Batch, begin: int, end: int, following: int, lost: Lost | None) -> None:
        super().__init__(rows_behind(batch).some(np.arange(begin, end, dtype=np.uint32)), batch.names, lost)
        self._next = following

    @property
    def next(self) -> int:
        return self._next


@dataclass(frozen=True, slots=True)
class Chunk:
    """Products that follow each other in a source."""

    batch: Batch
    times: Times  # when each of them was in the stream; as they are, not in order
    ends: npt.NDArray[np.int64]  # the position behind each of them
    end: int  # the position behind all that was examined
    damaged: Lost | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a replay covers, as positions; `stop` is None if it has no end."""

    start: int
    stop: int | None


class Source(Protocol):
    """What a Replay reads. For one thread, except `find` and `stop`."""

    bounds: Bounds
    holds_memory: bool  # a chunk that is held keeps the queue's files from being recycled

    @property
    def position(self) -> int:
        """Where it reads on."""

    @property
    def is_ended(self) -> bool:
        """Whether everything in the bounds was read."""

    def read(self) -> Chunk | None:
        """What follows; None if there is nothing yet, or nothing more."""

    def go_to(self, position: int) -> None:
        """Read on at this position."""

    def find(self, start: Start) -> int:
        """The position that a time, a sequence, "oldest" or "next" means now. From any thread."""

    def wait(self, timeout_s: float) -> None:
        """Wait for new products; also for those that are being put at the end of the window."""

    def stop(self) -> None:
        """End a `wait`. From any thread."""


# --- a queue ----------------------------------------------------------------------------------------


class Reads(Protocol):
    """What a source needs of a follower, local or remote."""

    position: int

    def next_nowait(self) -> Batch | None: ...
    def wait(self, timeout_s: float) -> None: ...
    def stop(self) -> None: ...


class QueueSource:
    """A window of a queue: its sequences from `start` up to `stop`, which is not included."""

    def __init__(
        self, follower: Reads, resolve: Callable[[Start], int], stop: int | None, by: By = "inserted",
        *, holds_memory: bool = True,
    ) -> None:  # fmt: skip
        """`resolve` is that of the queue; the follower stands at the start, and waits for nothing."""
        self._follower, self._resolve, self._time = follower, resolve, f"{by}_ns"
        self.bounds = Bounds(follower.position, stop)
        self.holds_memory = holds_memory

    @property
    def position(self) -> int:
        return self._follower.position

    @property
    def is_ended(self) -> bool:
        return self.bounds.stop is not None and self._follower.position >= self.bounds.stop

    def read(self) -> Chunk | None:
        if self.is_ended:
            return None
        begin = self._follower.position
        try:
            batch = self._follower.next_nowait()
        except ProductDamagedError as error:
            self._follower.position = error.next
            return _damaged(error)
        end = self._follower.position
        if batch is None:
            return None if end == begin else _nothing(end)
        return self._chunk(batch, end)

    def _chunk(self, batch: Batch, end: int) -> Chunk:
        stop = self.bounds.stop
        sequences = batch.sequences.astype(np.int64)
        lost = batch.lost if batch.lost is None or batch.lost.first < self.find("oldest") else None  # never given
        if stop is not None and end > stop:
            end = stop
            count = int(np.searchsorted(sequences, stop))
            lost = None if lost is None or lost.first >= stop else Lost(lost.first, min(lost.last, stop - 1))
            batch, sequences = Piece(batch, 0, count, stop, lost), sequences[:count]
        batch.lost = lost
        return Chunk(batch, batch.columns[self._time].astype(np.int64), sequences + 1, end)

    def find(self, start: Start) -> int:
        """A time in the future is the end of the queue."""
        try:
            return self._resolve(start)
        except StartAheadError:
            return self._resolve("next")

    def go_to(self, position: int) -> None:
        self._follower.position = position

    def wait(self, timeout_s: float) -> None:
        self._follower.wait(timeout_s)

    def stop(self) -> None:
        self._follower.stop()


_NO_NUMBERS = np.zeros(0, np.int64)


def _nothing(end: int, damaged: Lost | None = None) -> Chunk:
    """Rows were examined, and none of them is wanted."""
    from headrace.kernel import _kernel as kernel

    return Chunk(Batch(kernel.Rows(None), ()), _NO_NUMBERS, _NO_NUMBERS, end, damaged)


def _damaged(error: ProductDamagedError) -> Chunk:
    return _nothing(error.next, Lost(error.sequence, error.next - 1))


def check_by(by: Any) -> By:
    """Return `by` if it names a time of products."""
    if by == "inserted":
        return "inserted"
    if by == "created":
        return "created"
    raise OptionError(f"by {by!r} is invalid", "give inserted, the pace of the queue, or created, that of its origins")
