"""Readers: products as rows, in a batch and in a stream.

    BatchReader, PushdownReader   `spark.read`: a closed range of a queue, fixed when Spark plans the query
    StreamReader                  `spark.readStream`: micro-batches from an offset on

An offset of a stream is the sequence to read next, with the id of its queue and the number of products lost so far, if
loss is allowed:

    {"queue": "0b7f...", "sequence": 4711, "lost": 0}

Spark keeps offsets in its checkpoint, and requests exactly the same range again after a failure. A `station` at the
queue follows what Spark has committed, so that `headrace lag` shows the pipeline; a blocking station keeps the products
that the pipeline has not read.

Both readers run on the driver, except for `read`, which runs in tasks (spans.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace.errors import PipelineError
from headrace.pipeline.source.backlog import Backlog
from headrace.pipeline.source.filters import narrowed
from headrace.pipeline.source.open_queues import (
    AGAIN,
    CHECKPOINT,
    current_queue,
    moved_means,
    planned_queue,
    queue_of_stream,
)
from headrace.pipeline.source.options import ReadOptions
from headrace.pipeline.source.ranges import EARLIEST, LATEST, range_of
from headrace.pipeline.source.spans import Span, end_within, read_span, report_loss, spans_of
from headrace.queue import AnyQueue
from headrace.selection import Selection


@dataclass
class SpanPartition(InputPartition):
    """What one task reads. None: nothing; Spark needs a partition even then."""

    span: Span | None
    select: str
    queue: str  # the id of the queue that was planned


class BatchReader(DataSourceReader):
    """Spark creates it in a planning process, and sends it to the tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._select = str(options.selection)
        self._first: int | None = None  # set by filters
        self._end: int | None = None

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        queue = current_queue(options.address)
        first, end = range_of(queue, options.start(EARLIEST), options.end)
        first = first if self._first is None else max(first, self._first)
        end = end if self._end is None else min(end, self._end)
        selection = Selection.parse(self._select)
        spans = spans_of(
            queue, selection, first, end, options.min_partitions, options.partition_by == "slice",
            options.partition_bytes, options.measured_by,
        )  # fmt: skip
        return [SpanPartition(span, self._select, queue.config.uuid) for span in spans] or [SpanPartition(None, "", "")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpanPartition)
        if partition.span is None:
            return
        queue = planned_queue(self._options.address, partition.queue, AGAIN)
        with moved_means(AGAIN):
            yield from read_span(
                queue, partition.span, Selection.parse(partition.select), self._options.names,
                fail=self._options.fail_on_data_loss,
            )  # fmt: skip


class PushdownReader(BatchReader):
    """Reads less by Spark's own filters. Spark keeps them for the DataFrame, so use each DataFrame for one query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 Spark's name
        """Narrow what is read. Return all filters: Spark applies them again, so reading too much is harmless."""
        queue = current_queue(self._options.address)
        narrow = narrowed(Selection.parse(self._select), filters, queue.resolve)
        self._select, self._first, self._end = str(narrow.selection), narrow.first, narrow.end
        if narrow.is_empty:
            self._first = self._end = 0
        return filters


# --- streams ----------------------------------------------------------------------------------------

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its driver side lives in one Python process for as long as the query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._target: int | None = None  # of Trigger.AvailableNow
        self._has_station = False
        self._committed: int | None = None
        self._planned: Offset | None = None  # the end of the batch that was planned last
        self._backlog = Backlog(options.selection)

    def initialOffset(self) -> Offset:  # noqa: N802
        queue = self._queue()
        return self._offset(queue, self._options.start(LATEST).resolved(queue), 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_bytes is not None and self._options.max_products is None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable() if self._options.max_products is None else ReadMaxRows(self._options.max_products)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._queue().next

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next batch. Spark calls this when everything before `start` is done, but it commits `start`
        only with the next batch, which may come much later; so commit it here."""
        self.commit(start)
        queue = self._queue()
        first, lost = self._checked_start(queue, start)
        end = queue.next if self._target is None else min(queue.next, self._target)
        if end <= first:
            self._planned = self._offset(queue, first, lost) if lost > start["lost"] else start
            return self._planned
        if not isinstance(limit, ReadAllAvailable):
            products_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_products
            bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes
            end = end_within(queue, self._options.selection, first, end, products_max, bytes_max)
        self._planned = self._offset(queue, end, lost)
        return self._planned

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """The end of the queue, and how far the batch that was planned last is behind it (backlog.py)."""
        queue = self._queue()
        latest = self._offset(queue, queue.next, 0 if self._planned is None else int(self._planned["lost"]))
        if self._planned is not None:
            products, seconds = self._backlog.behind(queue, int(self._planned["sequence"]))
            latest |= {"behind_products": products, "behind_s": seconds}
        return latest

    def _offset(self, queue: AnyQueue, sequence: int, lost: int) -> Offset:
        return {"queue": queue.config.uuid, "sequence": sequence, "lost": lost}

    def _check_queue(self, queue: AnyQueue, offset: Offset) -> None:
        if offset["queue"] != queue.config.uuid:
            raise PipelineError(
                f"{self._options.address} is not the queue that the checkpoint belongs to",
                "start with a new checkpoint, or give the old queue",
            )

    def _checked_start(self, queue: AnyQueue, start: Offset) -> tuple[int, int]:
        """Where to begin, and the products lost until then. PipelineError: another queue. DataLossError."""
        self._check_queue(queue, start)
        first, oldest = int(start["sequence"]), queue.oldest
        if oldest <= first:
            return first, int(start["lost"])
        report_loss(queue, first, oldest - 1, "evicted before they were read", fail=self._options.fail_on_data_loss)
        return oldest, int(start["lost"]) + oldest - first

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        options, queue = self._options, self._queue()
        first = int(start["sequence"]) + int(end["lost"]) - int(start["lost"])
        spans = spans_of(
            queue, options.selection, first, int(end["sequence"]), options.min_partitions,
            options.partition_by == "slice", options.partition_bytes, options.measured_by,
        )  # fmt: skip
        return [SpanPartition(span, "", queue.config.uuid) for span in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpanPartition)
        if partition.span is not None:
            options = self._options
            queue = planned_queue(options.address, partition.queue, CHECKPOINT)
            with moved_means(CHECKPOINT):
                yield from read_span(
                    queue, partition.span, options.selection, options.names, fail=options.fail_on_data_loss
                )

    def commit(self, end: Offset) -> None:
        """Move the station: everything before `end` is done."""
        if self._options.station is not None and end["sequence"] != self._committed:
            self._check_queue(self._queue(), end)
            self._queue().station(self._options.station, create=False).seek(int(end["sequence"]))
            self._committed = end["sequence"]

    def stop(self) -> None:
        """Nothing to do: the station stays, the process ends."""

    def _queue(self) -> AnyQueue:
        """QueueMovedError: it is no longer in its place. Each call checks it, also while nothing comes."""
        queue = queue_of_stream(self._options.address)
        if self._options.station is not None and not self._has_station:
            self._set_up_station(queue, self._options.station)
            self._has_station = True
        return queue

    def _set_up_station(self, queue: AnyQueue, name: str) -> None:
        """Create the station, or change its terms to those of the query, which may have changed."""
        options = self._options
        if name not in queue.stations():
            start = options.start(LATEST).resolved(queue)
            queue.station(name, options.selection, start=start, blocking=options.blocking)
            return
        station = queue.station(name, create=False)
        if (station.terms.selection, station.terms.blocking) != (str(options.selection), options.blocking):
            station.change(selection=options.selection, blocking=options.blocking)
