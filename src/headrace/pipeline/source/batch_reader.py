"""BatchReader: `spark.read.format("headrace")`, a closed range of a queue, fixed when Spark plans the query."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from headrace.pipeline.source.filters import narrowed
from headrace.pipeline.source.open_queues import open_queue
from headrace.pipeline.source.options import ReadOptions
from headrace.pipeline.source.spans import Span, read_span, spans_of
from headrace.selection import Selection


@dataclass
class SpanPartition(InputPartition):
    """What one task reads. None: nothing; Spark needs a partition even then."""

    span: Span | None
    select: str


class BatchReader(DataSourceReader):
    """Spark creates it in a planning process on the driver and sends it to the tasks, where `read` runs."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._select = str(options.selection)
        self._first: int | None = None  # set by filters
        self._end: int | None = None

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        queue = open_queue(options.address)
        first, end = queue.resolve(options.start("oldest")), queue.resolve(options.end)
        first = first if self._first is None else max(first, self._first)
        end = end if self._end is None else min(end, self._end)
        selection = Selection.parse(self._select)
        spans = spans_of(queue, selection, first, end, options.min_partitions, options.partition_by == "slice")
        return [SpanPartition(span, self._select) for span in spans] or [SpanPartition(None, "")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpanPartition)
        if partition.span is None:
            return
        yield from read_span(
            open_queue(self._options.address), partition.span, Selection.parse(partition.select),
            self._options.columns, fail=self._options.fail_on_data_loss,
        )  # fmt: skip


class PushdownReader(BatchReader):
    """Reads less by Spark's own filters. Spark keeps them for the DataFrame, so use each DataFrame for one query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 Spark's name
        """Narrow what is read. Return all filters: Spark applies them again, so reading too much is harmless."""
        queue = open_queue(self._options.address)
        narrow = narrowed(Selection.parse(self._select), filters, queue.resolve)
        self._select, self._first, self._end = str(narrow.selection), narrow.first, narrow.end
        if narrow.is_empty:
            self._first = self._end = 0
        return filters
