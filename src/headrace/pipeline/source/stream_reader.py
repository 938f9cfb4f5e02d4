"""StreamReader: `spark.readStream.format("headrace")`.

An offset is the sequence that is read next, with the id of its queue and the number of products that were lost on the
way, if that is allowed:

    {"queue": "0b7f...", "sequence": 4711, "lost": 0}

Spark keeps offsets in its checkpoint, and asks again for exactly the same range after a failure. A `station` at the
queue follows what Spark has committed, so that `headrace lag` shows the pipeline, and a blocking one keeps the products
that it has not read.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace.errors import PipelineError
from headrace.pipeline.source.batch_reader import SpanPartition, start_of
from headrace.pipeline.source.options import ReadOptions
from headrace.pipeline.source.place import open_place
from headrace.pipeline.source.reading import read_span, tell_loss
from headrace.pipeline.source.span import end_within, spans_of
from headrace.queue import Queue

Offset = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its driver side lives in one Python process as long as the query; `read` runs in tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._target: int | None = None  # of Trigger.AvailableNow
        self._has_station = False
        self._committed: int | None = None

    # --- offsets ----------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802
        queue = self._queue()
        return self._offset(queue, queue.resolve(start_of(self._options.starting_offsets or "next")), 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_bytes is not None and self._options.max_products is None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable() if self._options.max_products is None else ReadMaxRows(self._options.max_products)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._queue().next

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next batch goes. Spark asks when all before `start` is done, and commits it with the next one,
        which may be long in coming."""
        self.commit(start)
        queue = self._queue()
        first, lost = self._whole(queue, start)
        end = queue.next if self._target is None else min(queue.next, self._target)
        if end <= first:
            return self._offset(queue, first, lost) if lost > start["lost"] else start
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes
        if bytes_max is not None and not isinstance(limit, ReadAllAvailable):
            end = end_within(queue, self._options.selection, first, end, bytes_max)
        return self._offset(queue, end, lost)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        queue = self._queue()
        return self._offset(queue, queue.next, 0)

    def _offset(self, queue: Queue, sequence: int, lost: int) -> Offset:
        return {"queue": queue.config.uuid, "sequence": sequence, "lost": lost}

    def _whole(self, queue: Queue, start: Offset) -> tuple[int, int]:
        """Where to begin, and what was lost until then, once it is sure that nothing is gone that must not be."""
        if start["queue"] != queue.config.uuid:
            raise PipelineError(
                f"{self._options.place} is another queue than the one that the checkpoint speaks of",
                "begin with a new checkpoint, or give the old queue",
            )
        first, oldest = int(start["sequence"]), queue.oldest
        if oldest <= first:
            return first, int(start["lost"])
        tell_loss(queue, first, oldest - 1, "evicted before they were read", fail=self._options.fail_on_data_loss)
        return oldest, int(start["lost"]) + oldest - first

    # --- batches ----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        options, queue = self._options, self._queue()
        first = int(start["sequence"]) + int(end["lost"]) - int(start["lost"])
        spans = spans_of(
            queue, options.selection, first, int(end["sequence"]), options.min_partitions,
            options.partition_by == "slice",
        )  # fmt: skip
        return [SpanPartition(span, options.select) for span in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpanPartition)
        if partition.span is not None:
            options = self._options
            queue = open_place(options.place)
            yield from read_span(
                queue, partition.span, options.selection, options.columns, fail=options.fail_on_data_loss
            )

    def commit(self, end: Offset) -> None:
        """Everything before it has arrived where it should."""
        if self._options.station is not None and end["sequence"] != self._committed:
            self._queue().station(self._options.station).seek(int(end["sequence"]))
            self._committed = end["sequence"]

    def stop(self) -> None:
        """The station stays; the process ends."""

    def _queue(self) -> Queue:
        queue = open_place(self._options.place)
        if self._options.station is not None and not self._has_station:
            self._set_up_station(queue, self._options.station)
            self._has_station = True
        return queue

    def _set_up_station(self, queue: Queue, name: str) -> None:
        """Made, or changed if it is there on other terms: it follows the query, which may have been changed."""
        options = self._options
        if name not in queue.stations():
            start = start_of(options.starting_offsets or "next")
            queue.station(name, options.selection, start=start, blocking=options.blocking)
            return
        station = queue.station(name)
        if (station.terms.selection, station.terms.blocking) != (str(options.selection), options.blocking):
            station.change(selection=options.selection, blocking=options.blocking)
