"""Writers: rows of a DataFrame become products, in a batch or in a stream.

Tasks put their rows at once. Spark may run a task twice, and after a failure a whole batch. The signature of a product
is made from everything in its row, so the queue drops the second one as a duplicate: each row becomes one product,
once. It follows that two rows that are equal in every column are one product, too; give them different idents if they
are different things. `put_batches` adds the number of the micro-batch, so there they are one only within a batch.

A task puts its rows in parts that are small beside the queue, however many rows Spark sends at once (parts.py).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from blake3 import blake3
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.errors import OptionError, PayloadError, PipelineError
from headrace.link.login import Login
from headrace.log.columns import arrow_values, number_column, text_column
from headrace.pipeline.source.open_queues import QueueAddress, open_queue
from headrace.pipeline.source.options import WriteOptions, write_options
from headrace.pipeline.source.parts import part_bytes, parts_of, put_or_halve
from headrace.product.product import PRIORITY_DEFAULT
from headrace.queue import AnyQueue

COLUMNS = ("payload", "feed", "ident", "priority", "created", "expiry", "slice", "properties", "signature")
_TYPES = {
    "payload": ("binary", "string"), "feed": ("string",), "ident": ("string",),
    "priority": ("int", "tinyint", "smallint"), "created": ("timestamp",), "expiry": ("timestamp",),
    "slice": ("int", "smallint"),
    "properties": ("map<string,string>",), "signature": ("binary",),
}  # fmt: skip
_TIME_MAX = (1 << 63) - 1


@dataclass
class TaskReceipt(WriterCommitMessage):
    """What one task put."""

    products: int
    duplicates: int


class _TaskWriter:
    """The part of both writers that runs in a task."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        queue, options = open_queue(self._options.address), self._options
        check_queue(queue)

        def put(part: pa.RecordBatch) -> tuple[int, int]:
            receipt = queue.put_many(**put_arguments(part, options))
            return receipt.products, receipt.stored

        products = stored = 0
        for part in parts_of(map(_with_payloads, iterator), part_bytes(queue.config)):
            counts = put_or_halve(part, put)
            products, stored = products + counts[0], stored + counts[1]
        return TaskReceipt(products, products - stored)


class BatchWriter(_TaskWriter, DataSourceArrowWriter):
    """`df.write.format("headrace")`."""


class StreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """`df.writeStream.format("headrace")`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: the tasks have put everything."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was put stays; the queue drops it as duplicates when the batch is repeated."""


def put_batches(
    queue: str | Path | None = None,
    *,
    site: str | None = None,
    login: Login | None = None,
    feed: str | None = None,
    application: str = "",
) -> Callable[[DataFrame, int], None]:
    """For `writeStream.foreachBatch`: each row of a micro-batch becomes a product, once, however often it is repeated.

    Two queries that may put the same rows need an `application` each. `login` is for the site; by default it is that
    of the environment. OptionError: an argument is invalid.
    """
    address = QueueAddress(None if queue is None else str(queue), site, login or Login())
    given = {"feed": feed, "application": application or None}
    options = address.options() | {name: value for name, value in given.items() if value is not None}
    write_options(options)

    def put(rows: DataFrame, batch_id: int) -> None:
        rows.write.format("headrace").options(**options, batch=batch_id).mode("append").save()

    return put


def check_queue(queue: AnyQueue) -> None:
    """PipelineError if the queue keeps duplicates."""
    if queue.config.dedup == "none":
        raise PipelineError(
            f"{queue.path} keeps duplicates, so it would hold a batch twice if Spark repeats it",
            "write to a queue with dedup, or use a foreachBatch of your own",
        )


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Before anything is written: OptionError if these are not the columns of products."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "payload" not in types:
        raise OptionError("column payload is missing", "select(…, your_column.alias('payload'))")
    if "feed" not in types and options.feed is None:
        raise OptionError("column feed is missing, and so is option feed", 'give option("feed", "wx/derived")')
    for name, kind in types.items():
        if name not in COLUMNS:
            raise OptionError(
                f"column {name!r} is unknown",
                f"drop it, or put it into properties; columns of products are {', '.join(COLUMNS)}",
            )
        if kind not in _TYPES[name]:
            raise OptionError(f"column {name} is {kind}", f"cast it to {_TYPES[name][0]}")


def _with_payloads(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same batch; PayloadError if the payload of a row is null."""
    payloads = batch.column("payload")
    if payloads.null_count:
        row = payloads.is_null().index(True).as_py()
        raise PayloadError(f"column payload is null in row {row} of a batch", "fill or drop such rows first")
    return batch


def put_arguments(batch: pa.RecordBatch, options: WriteOptions) -> Mapping[str, Any]:
    """Arguments of `Queue.put_many` for these rows; a null counts as a column that is left out."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    rows = batch.num_rows
    payloads = columns["payload"].cast(pa.binary())
    feeds = text_column(columns["feed"], rows, "feed") if "feed" in columns else [options.feed] * rows
    idents = text_column(columns["ident"], rows, "ident") if "ident" in columns else [""] * rows
    given: dict[str, Any] = {"payloads": payloads, "feed": feeds, "ident": idents}
    for name, missing_ns in (("created", time.time_ns()), ("expiry", 0)):
        if name in columns:
            given[name] = number_column(columns[name], rows, name, np.uint64, 0, _TIME_MAX, missing_ns)
    if "slice" in columns:
        given["slice"] = columns["slice"]
    if "priority" in columns:
        given["priority"] = columns["priority"].fill_null(PRIORITY_DEFAULT)
    if "properties" in columns:
        given["properties"] = [_properties(pairs) for pairs in arrow_values(columns["properties"], "properties")]
    given["signature"] = _signatures(batch, given, options)
    return given


def _properties(pairs: Iterable[tuple[str, str | None]] | None) -> dict[str, str]:
    return {name: value for name, value in pairs or () if value is not None}


def _signatures(batch: pa.RecordBatch, given: Mapping[str, Any], options: WriteOptions) -> Any:
    """The column of that name; where it has none, a signature made from the row."""
    if "signature" not in batch.schema.names:
        return _made_signatures(batch, given, options)
    column = batch.column("signature")
    if not column.null_count:
        return column
    made = _made_signatures(batch, given, options)
    return [one if said is None else said for said, one in zip(column.to_pylist(), made, strict=True)]


def _made_signatures(batch: pa.RecordBatch, given: Mapping[str, Any], options: WriteOptions) -> list[bytes]:
    """Made from everything in the row, the name of the writer, and the number of the batch if there is one."""
    writer = (options.application,) if options.batch is None else (options.application, options.batch)
    parts = [given["feed"], given["ident"], given["payloads"].to_pylist()]
    rest = [batch.column(name).to_pylist() for name in batch.schema.names if name not in ("feed", "ident", "payload")]
    return [
        blake3(repr((*writer, *row)).encode(errors="surrogatepass")).digest(16)
        for row in zip(*parts, *rest, strict=True)
    ]
