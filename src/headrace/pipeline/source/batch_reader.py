"""BatchReader: `spark.read.format("headrace")`, a closed range of a queue that was fixed when the plan was made."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from headrace.pipeline.source.filters import narrowed
from headrace.pipeline.source.options import ReadOptions
from headrace.pipeline.source.place import open_place
from headrace.pipeline.source.reading import read_span
from headrace.pipeline.source.span import Span, spans_of
from headrace.selection import Selection


@dataclass
class SpanPartition(InputPartition):
    """One task's work. None: nothing at all, so that Spark has a partition to plan with."""

    span: Span | None
    select: str


class BatchReader(DataSourceReader):
    """Made by Spark in a planning process and sent to the tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._select = str(options.selection)
        self._first: int | None = None  # by filters
        self._end: int | None = None

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        queue = open_place(options.place)
        first = queue.resolve(start_of(options.starting_offsets or "oldest"))
        end = queue.resolve(start_of(options.ending_offsets))
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
            open_place(self._options.place), partition.span, Selection.parse(partition.select),
            self._options.columns, fail=self._options.fail_on_data_loss,
        )  # fmt: skip


class NarrowingReader(BatchReader):
    """Reads less by Spark's own filters. They hold for the DataFrame from then on, so it is good for one query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 Spark's name
        """Spark looks at all of them again, so that to read too much is no harm."""
        queue = open_place(self._options.place)
        narrow = narrowed(Selection.parse(self._select), filters, queue.resolve)
        self._select, self._first, self._end = str(narrow.selection), narrow.first, narrow.end
        if narrow.is_nothing:
            self._first = self._end = 0
        return filters


def start_of(text: str) -> int | str:
    """An offset that a user has written: a sequence, or whatever `Queue.resolve` knows."""
    return int(text) if text.isdecimal() else {"latest": "next", "earliest": "oldest"}.get(text, text)
