"""Pace: rows of an archive in the order of time, each when it is due, in parts of bounded size.

    files ──► in_order: one stream, by time ──► paced: waits ──► parts ──► put

A file is opened when the stream comes to its first row, so those are open that overlap in time. Of each a part is held,
sorted; a row that stands further behind in its file than that comes late, and at once.
"""

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import OptionError

PART_BYTES = 8 << 20
_PART_ROWS = 10_000
_ROW_BYTES = 256  # of a product besides its payload, about


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast: so many products in a second, or so many times as fast as they came."""

    rate: float | None = None
    speed: float | None = None

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.speed is None):
            raise OptionError("a pace is a rate or a speed", "give one of the two")
        if not 0 < (self.rate or self.speed or 0) < float("inf"):
            raise OptionError(f"a pace of {self.rate or self.speed or 0:g} is none", "give a number above 0")


class Gathering:
    """Small batches become parts of about `bytes_max`; a row that is larger is a part by itself."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Hold it; what is full by that comes out."""
        ends = np.cumsum(_weights(batch))
        done = 0
        while done < batch.num_rows:
            before = int(ends[done - 1]) if done else 0
            fitting = int(np.searchsorted(ends, before + self._bytes_max - self._bytes, "right")) - done
            count = min(fitting, _PART_ROWS - self._rows) if self._rows else max(1, min(fitting, _PART_ROWS))
            if count > 0:
                self._held.append(batch.slice(done, count))
                done += count
                self._rows, self._bytes = self._rows + count, self._bytes + int(ends[done - 1]) - before
            if done < batch.num_rows:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is held, if anything."""
        if self._held:
            whole = pa.Table.from_batches(self._held).combine_chunks().to_batches()
            self._held, self._rows, self._bytes = [], 0, 0
            yield from whole


def gathered(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    gathering = Gathering(bytes_max)
    for batch in batches:
        yield from gathering.add(batch)
    yield from gathering.rest()


def _weights(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    payloads = pc.binary_length(batch.column("payload")).to_numpy(zero_copy_only=False)
    return np.asarray(payloads, np.int64) + _ROW_BYTES


# --- order ------------------------------------------------------------------------------------------

Stream = tuple[int, Callable[[], Iterator[pa.RecordBatch]]]  # no row is before this; the rows


def in_order(streams: Sequence[Stream]) -> Iterator[pa.RecordBatch]:
    """Rows of all streams in the order in which they came, in runs that come from one of them."""
    waiting = sorted(enumerate(streams), key=lambda each: each[1][0], reverse=True)
    heads: list[tuple[int, int, pa.RecordBatch, Iterator[pa.RecordBatch]]] = []

    def go_on(number: int, batch: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> None:
        batch = batch if batch is not None and batch.num_rows else _sorted(next(rest, None))
        if batch is not None:
            heapq.heappush(heads, (int(times_of(batch)[0]), number, batch, rest))

    while heads or waiting:
        while waiting and (not heads or waiting[-1][1][0] <= heads[0][0]):
            number, (_, opened) = waiting.pop()
            go_on(number, None, opened())
        if not heads:
            continue
        _, number, batch, rest = heapq.heappop(heads)
        bounds = [heads[0][0]] if heads else []
        bounds += [waiting[-1][1][0]] if waiting else []
        times = times_of(batch)
        count = max(1, int(np.searchsorted(times, min(bounds), "right"))) if bounds else batch.num_rows
        yield batch.slice(0, count)
        go_on(number, batch.slice(count), rest)


def times_of(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """When each product was inserted or, where the table does not tell, created; nanoseconds."""
    times = pc.coalesce(batch.column("inserted"), batch.column("created")).cast(pa.int64())
    return np.asarray(times.to_numpy(zero_copy_only=False), np.int64)


def _sorted(batch: pa.RecordBatch | None) -> pa.RecordBatch | None:
    return None if batch is None else batch.take(pa.array(np.argsort(times_of(batch), kind="stable")))


# --- waiting ----------------------------------------------------------------------------------------


def paced(runs: Iterable[pa.RecordBatch], pace: Pace, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Parts of rows that are due, none before its time. Whoever is behind gets larger parts, and so catches up."""
    gathering = Gathering(bytes_max)
    due_s = _due(pace)
    began = 0.0
    for run in runs:
        due = due_s(run)
        began = began or time.monotonic()  # when there is something
        done = 0
        while done < run.num_rows:
            count = int(np.searchsorted(due[done:], time.monotonic() - began, "right"))
            if count:
                yield from gathering.add(run.slice(done, count))
                done += count
                continue
            yield from gathering.rest()
            time.sleep(max(0.0, float(due[done]) - (time.monotonic() - began)))
    yield from gathering.rest()


def _due(pace: Pace) -> Callable[[pa.RecordBatch], npt.NDArray[Any]]:
    """When the rows of a run are due, in seconds from the beginning."""
    first: list[int] = []
    count = 0

    def by_rate(run: pa.RecordBatch) -> npt.NDArray[Any]:
        nonlocal count
        count += run.num_rows
        return np.arange(count - run.num_rows, count) / (pace.rate or 1)

    def by_speed(run: pa.RecordBatch) -> npt.NDArray[Any]:
        times = times_of(run)
        if not first:
            first.append(int(times[0]))
        return (times - first[0]) / 1e9 / (pace.speed or 1)

    return by_speed if pace.rate is None else by_rate
