"""Parts: rows in record batches of bounded size, as they are put into a queue.

A part is small beside the queue, however large the batches are that Spark or a Parquet file delivers. Readers of the
queue see all of a part or nothing of it. Used by the writers of this folder and by archives (`pipeline/archive`).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BatchTooLargeError, InvalidError
from headrace.log.append import in_halves
from headrace.log.config import QueueConfig

PART_BYTES = 8 << 20
_PART_ROWS = 10_000
_ROW_BYTES = 256  # of a product besides its payload, about


def part_bytes(config: QueueConfig) -> int:
    """How many bytes to put into this queue at once."""
    return min(PART_BYTES, config.size // 8)


class PartBuilder:
    """Combines small batches into parts of about `bytes_max`, and splits large ones. A larger row is a part by itself.

    Rows keep their order.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take the rows of a batch; yield each part that they complete."""
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
        """Yield the rows that are held, if any, as a part that is not full."""
        if self._held:
            whole = pa.Table.from_batches(self._held).combine_chunks().to_batches()
            self._held, self._rows, self._bytes = [], 0, 0
            yield from whole


def parts_of(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The rows of all batches as parts of about `bytes_max`."""
    builder = PartBuilder(bytes_max)
    for batch in batches:
        yield from builder.add(batch)
    yield from builder.rest()


def _weights(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    payloads = pc.binary_length(batch.column("payload")).to_numpy(zero_copy_only=False)
    return np.asarray(payloads, np.int64) + _ROW_BYTES


def put_or_halve(part: pa.RecordBatch, put: Callable[[pa.RecordBatch], tuple[int, int]]) -> tuple[int, int]:
    """Put a part; if the queue rejects it as too large, retry in halves. Return the products, and those stored.

    Weights do not count properties, so a part can be larger than it seems. BatchTooLargeError: a single row is.
    """
    products = stored = 0

    def put_range(start: int, stop: int) -> None:
        nonlocal products, stored
        counted = put(part.slice(start, stop - start))
        products, stored = products + counted[0], stored + counted[1]

    def refuse(_: int, error: InvalidError) -> NoReturn:
        raise error

    in_halves(part.num_rows, put_range, refuse, BatchTooLargeError)
    return products, stored
