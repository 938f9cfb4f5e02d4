"""The yardstick of `headrace bench pipeline`: a Spark source that does nothing but hand over ready Arrow batches.

The batches lie in a mapped Arrow file, so a task neither reads a queue nor builds a column. What it takes is what Spark
itself takes for the same rows: Arrow's serialisation, the socket from the Python worker, and Java.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headrace.pipeline.source.columns import SCHEMA, arrow_of
from headrace.queue import Queue

BATCH_ROWS = 16_384
_PARTS = 2


def write_batches(queue: Queue, path: Path) -> None:
    """Write all products of a queue to an Arrow file, in batches of BATCH_ROWS."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        position = queue.oldest
        while position < queue.next:
            batch = queue.read_batch(position, limit=BATCH_ROWS, bytes_limit=1 << 30)
            writer.write_batch(arrow_of(batch))
            position = batch.next


@dataclass
class BatchRange(InputPartition):
    """Batches of the file from `first` up to `end`, which is not included."""

    first: int
    end: int


class BareSource(DataSource):
    """`format("bare")` with the options `path` and `batchesPerTrigger`."""

    @classmethod
    def name(cls) -> str:
        return "bare"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _StreamReader(self.options)


class _FileReader:
    """The part of both readers that opens the file."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = options["path"]
        self._per_trigger = int(options.get("batchesPerTrigger", "0"))

    def _file(self) -> Any:
        return pa.ipc.open_file(pa.memory_map(self._path))

    def _split(self, first: int, end: int) -> list[BatchRange]:
        middle = first + (end - first) // _PARTS
        return [BatchRange(first, middle), BatchRange(middle, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BatchRange)
        file = self._file()
        for number in range(partition.first, partition.end):
            yield file.get_batch(number)


class _BatchReader(_FileReader, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return self._split(0, self._file().num_record_batches)


class _StreamReader(_FileReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing to do: the file does not grow."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"batch": min(start["batch"] + self._per_trigger, self._file().num_record_batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._split(start["batch"], end["batch"])
