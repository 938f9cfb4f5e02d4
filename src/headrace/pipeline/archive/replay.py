"""An archive as the source of a replay: its rows in the order of time, as batches of products.

    files ──► in_order: one stream, by time ──► parts ──► records ──► chunks of a Replay (timing/replay)

Positions are times, in nanoseconds. Rows with the time of a position are behind it, so a run that continues there puts
some products again, which the queue recognises by their signatures.

A run that continues must not skip a row that comes late (order.py). Late rows are in parts of a file behind the part
in which the position lies, and none of those parts was replayed. So in the files that the position divides, rows before
it are left out up to the end of that part only.

A small queue in a temporary folder makes records of rows, so that consumers get the same kind of batch as from a queue.
"""

import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import OptionError
from headrace.kernel import _kernel as kernel
from headrace.log.read import Start, time_of
from headrace.log.records import Names, read_batch, rows_of
from headrace.pipeline.archive.files import TableFile, span
from headrace.pipeline.archive.order import Stream, times_of
from headrace.pipeline.source.parts import PART_BYTES, parts_of
from headrace.product.batch import Batch
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.timing.replay.source import Bounds, By, Chunk

if TYPE_CHECKING:
    from headrace.pipeline.archive.archive import Archive, ArchiveFilter

_PLACE = np.dtype([("sequence", "<u8"), ("inserted_ns", "<u8"), ("rest", "V8")])
_SCRATCH_BYTES = 64 << 20
_SCRATCH_ORIGIN = "headrace-archive-scratch"


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """From `start` up to `stop`, which is not included; `resume` is where a run goes on, if it is not at the start."""

    start: int
    stop: int
    resume: int | None = None


class ArchiveSource:
    """The products of a table between two times. It implements `Source`."""

    holds_memory = False

    def __init__(self, archive: "Archive", wanted: "ArchiveFilter", window: TimeWindow, by: By) -> None:
        self._archive, self._wanted, self._by = archive, wanted, by
        self.bounds = Bounds(window.start, window.stop)
        self._records = _Records()
        self._open(window)

    def _open(self, window: TimeWindow) -> None:
        self.position = window.start if window.resume is None else window.resume
        self._parts = parts_of(self._archive.in_order(self._wanted, window, self._by), PART_BYTES)
        self.is_ended = False

    def read(self) -> Chunk | None:
        part = next(self._parts, None)
        if part is None:
            self.is_ended = True
            self._records.close()
            return None
        times = times_of(part, self._by)
        self.position = max(self.position, int(times.max()))
        batch = self._records.batch_of(part)
        return Chunk(batch, times, np.maximum.accumulate(times), self.position)

    def go_to(self, position: int) -> None:
        self._open(TimeWindow(position, self.bounds.stop or 0))

    def find(self, start: Start) -> int:
        if start in ("oldest", "next"):
            return self.bounds.start if start == "oldest" else self.bounds.stop or 0
        return moment_of(start, time.time_ns())

    def wait(self, timeout_s: float) -> None:
        """Never needed: an archive has an end."""

    def stop(self) -> None:
        """Never needed, as above."""


def moment_of(start: Start, now_ns: int) -> int:
    """A place in an archive: a time, or an age."""
    if isinstance(start, int):
        raise OptionError(f"an archive has no place {start}", "give a time, such as 2026-11-15T12:00Z, or an age")
    return time_of(start, now_ns)


class _Records:
    """Makes batches of rows, by a small queue in a temporary folder."""

    def __init__(self) -> None:
        self._names = Names()
        self._queue: Queue | None = None
        self._finalizer: weakref.finalize[[Queue, str], _Records] | None = None

    def batch_of(self, part: pa.RecordBatch) -> Batch:
        from headrace.pipeline.archive.archive import put_arguments

        queue = self._scratch(part)
        first = queue.put_many(**put_arguments(part, queue.config, expiry=True)).first
        batch = log_of(queue).reader(None, part.num_rows, PART_BYTES << 4, expired=True)(first)
        places, records = kernel.gather_placed(rows_of(batch), part.num_rows)
        placed = np.frombuffer(places, _PLACE).copy()
        sequences = pc.coalesce(part.column("sequence"), part.column("origin_sequence"))
        placed["sequence"] = sequences.to_numpy(zero_copy_only=False)
        placed["inserted_ns"] = times_of(part)
        made = read_batch(records, self._names)
        kernel.place_rows(rows_of(made), placed.tobytes(), int(placed["sequence"][-1]) + 1, (part.num_rows, 0, 0, 0, 0))
        return made

    def _scratch(self, part: pa.RecordBatch) -> Queue:
        """A queue that takes the part as a whole; a larger one is made if a payload is very large."""
        needed = int(part.nbytes) * 5
        if self._queue is None or self._queue.config.size < needed:
            self.close()
            folder = tempfile.mkdtemp(prefix="headrace-archive-")
            self._queue = Queue.create(
                Path(folder) / "scratch", size=max(_SCRATCH_BYTES, needed), dedup="none",
                origin=_SCRATCH_ORIGIN,
            )  # fmt: skip
            self._finalizer = weakref.finalize(self, _remove, self._queue, folder)
        return self._queue

    def close(self) -> None:
        """Remove the queue; a later part makes another. It happens by itself when the replay is collected."""
        if self._finalizer is not None:
            self._finalizer()
        self._queue = self._finalizer = None


def _remove(queue: Queue, folder: str) -> None:
    queue.close()
    shutil.rmtree(folder, ignore_errors=True)


# --- rows in order ----------------------------------------------------------------------------------


Rows = Callable[[TableFile], Iterator[pa.RecordBatch]]


def streams_of(files: Iterable[TableFile], rows: Rows, window: TimeWindow, by: By) -> Iterator[Stream]:
    """One stream for each file that has rows in the window; `rows` reads a file."""
    for file in files:
        first, last = span(file, by) or (0, window.stop)
        if last < (window.start if window.resume is None else window.resume) or first >= window.stop:
            continue
        yield first, partial(_windowed, rows, file, window, by)


def _windowed(rows: Rows, file: TableFile, window: TimeWindow, by: By) -> Iterator[pa.RecordBatch]:
    resume = window.resume
    for part in parts_of(rows(file), PART_BYTES):
        times = times_of(part, by)
        keep = (times >= window.start) & (times < window.stop)
        if resume is not None:
            keep &= times >= resume
            if bool((times >= resume).any()):
                resume = None  # what follows in this file was not replayed yet
        if keep.any():
            yield part if keep.all() else part.filter(pa.array(keep))
