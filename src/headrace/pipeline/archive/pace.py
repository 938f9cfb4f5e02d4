"""Pace: rows of an archive in the order of time, each when it is due.

    files ──► in_order: one stream, by time ──► paced: waits ──► parts ──► put

A file is opened when the stream reaches its first row, so only files that overlap in time are open together. Of each
open file one part is held, sorted. A row that is further than that behind its place in its file comes late, and without
a pause.
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
from headrace.pipeline.source.parts import PartBuilder


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast to put: `rate` products per second, or `speed` times as fast as the products were inserted."""

    rate: float | None = None
    speed: float | None = None

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.speed is None):
            raise OptionError("a pace needs either a rate or a speed", "give one of the two")
        if not 0 < (self.rate or self.speed or 0) < float("inf"):
            raise OptionError(f"a pace of {self.rate or self.speed or 0:g} is invalid", "give a number above 0")


# --- order ------------------------------------------------------------------------------------------

Stream = tuple[int, Callable[[], Iterator[pa.RecordBatch]]]  # the time before which it has no row; its rows


def in_order(streams: Sequence[Stream]) -> Iterator[pa.RecordBatch]:
    """Rows of all streams in the order of time; each batch that is yielded comes from one stream."""
    waiting = sorted(enumerate(streams), key=lambda each: each[1][0], reverse=True)
    heads: list[tuple[int, int, pa.RecordBatch, Iterator[pa.RecordBatch]]] = []

    def advance(number: int, batch: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> None:
        batch = batch if batch is not None and batch.num_rows else _sorted(next(rest, None))
        if batch is not None:
            heapq.heappush(heads, (int(times_of(batch)[0]), number, batch, rest))

    while heads or waiting:
        while waiting and (not heads or waiting[-1][1][0] <= heads[0][0]):
            number, (_, opened) = waiting.pop()
            advance(number, None, opened())
        if not heads:
            continue
        _, number, batch, rest = heapq.heappop(heads)
        bounds = [heads[0][0]] if heads else []
        bounds += [waiting[-1][1][0]] if waiting else []
        times = times_of(batch)
        count = max(1, int(np.searchsorted(times, min(bounds), "right"))) if bounds else batch.num_rows
        yield batch.slice(0, count)
        advance(number, batch.slice(count), rest)


def times_of(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """When each product was inserted, or created where the table has no `inserted`; nanoseconds."""
    times = pc.coalesce(batch.column("inserted"), batch.column("created")).cast(pa.int64())
    return np.asarray(times.to_numpy(zero_copy_only=False), np.int64)


def _sorted(batch: pa.RecordBatch | None) -> pa.RecordBatch | None:
    return None if batch is None else batch.take(pa.array(np.argsort(times_of(batch), kind="stable")))


# --- waiting ----------------------------------------------------------------------------------------


def paced(runs: Iterable[pa.RecordBatch], pace: Pace, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Parts of rows that are due, none before its time. A caller that falls behind gets larger parts and catches up."""
    builder = PartBuilder(bytes_max)
    due_s = _due(pace)
    began = 0.0
    for run in runs:
        due = due_s(run)
        began = began or time.monotonic()  # the clock starts with the first row
        done = 0
        while done < run.num_rows:
            count = int(np.searchsorted(due[done:], time.monotonic() - began, "right"))
            if count:
                yield from builder.add(run.slice(done, count))
                done += count
                continue
            yield from builder.rest()
            time.sleep(max(0.0, float(due[done]) - (time.monotonic() - began)))
    yield from builder.rest()


def _due(pace: Pace) -> Callable[[pa.RecordBatch], npt.NDArray[Any]]:
    """A function that tells when the rows of a run are due, in seconds from the start."""
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
