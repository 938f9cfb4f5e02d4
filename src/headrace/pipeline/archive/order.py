"""Order: rows of an archive as one stream, in the order of time.

A file is opened when the stream reaches its first row, so only files that overlap in time are open together. Of each
open file one part is held, sorted. A row that is further than that behind its place in its file comes late.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.timing.replay.source import By

Times = npt.NDArray[np.int64]
Stream = tuple[int, Callable[[], Iterator[pa.RecordBatch]]]  # the time before which it has no row; its rows


def times_of(batch: pa.RecordBatch, by: By = "inserted") -> Times:
    """When each product was inserted, or created: also where the table has no `inserted`. Nanoseconds."""
    created = batch.column("created")
    times = (created if by == "created" else pc.coalesce(batch.column("inserted"), created)).cast(pa.int64())
    return np.asarray(times.to_numpy(zero_copy_only=False), np.int64)


def in_order(streams: Sequence[Stream], by: By = "inserted") -> Iterator[pa.RecordBatch]:
    """Rows of all streams in the order of time; each batch that is yielded comes from one stream."""
    waiting = sorted(enumerate(streams), key=lambda each: each[1][0], reverse=True)
    heads: list[tuple[int, int, pa.RecordBatch, Iterator[pa.RecordBatch]]] = []

    def advance(number: int, batch: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> None:
        batch = batch if batch is not None and batch.num_rows else _sorted(next(rest, None), by)
        if batch is not None:
            heapq.heappush(heads, (int(times_of(batch, by)[0]), number, batch, rest))

    while heads or waiting:
        while waiting and (not heads or waiting[-1][1][0] <= heads[0][0]):
            number, (_, opened) = waiting.pop()
            advance(number, None, opened())
        if not heads:
            continue
        _, number, batch, rest = heapq.heappop(heads)
        bounds = [heads[0][0]] if heads else []
        bounds += [waiting[-1][1][0]] if waiting else []
        times = times_of(batch, by)
        count = max(1, int(np.searchsorted(times, min(bounds), "right"))) if bounds else batch.num_rows
        yield batch.slice(0, count)
        advance(number, batch.slice(count), rest)


def _sorted(batch: pa.RecordBatch | None, by: By) -> pa.RecordBatch | None:
    return None if batch is None else batch.take(pa.array(np.argsort(times_of(batch, by), kind="stable")))
