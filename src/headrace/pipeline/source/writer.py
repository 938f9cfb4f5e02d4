"""Writers: rows of a DataFrame become products, in a batch or in a stream.

Tasks put what they get at once; Spark may run a task twice, and after a failure a whole batch. A product's signature is
made of everything that its row says, so the second time the queue drops it as a duplicate: each row is one product,
once. It follows that two rows which are equal in every column are one product too; give them an ident of their own if
they are not the same. `put_batches` knows the number of the micro-batch, so there they are one only within a batch.

A task puts its rows in parts that are small beside the queue, whatever Spark sends as one piece.
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

from headrace.errors import BatchTooLargeError, OptionError, PayloadError, PipelineError
from headrace.log.columns import arrow_values, number_column, text_column
from headrace.pipeline.archive.pace import gathered
from headrace.pipeline.archive.tables import part_bytes
from headrace.pipeline.source.options import WriteOptions, write_options
from headrace.pipeline.source.place import open_place
from headrace.product.product import PRIORITY_DEFAULT
from headrace.queue import Queue

TAKEN = ("payload", "feed", "ident", "priority", "created", "expiry", "slice", "properties", "signature")
_TYPES = {
    "payload": ("binary", "string"), "feed": ("string",), "ident": ("string",),
    "priority": ("int", "tinyint", "smallint"), "created": ("timestamp",), "expiry": ("timestamp",),
    "slice": ("int", "smallint"),
    "properties": ("map<string,string>",), "signature": ("binary",),
}  # fmt: skip
_TIME_MAX = (1 << 63) - 1


@dataclass
class Put(WriterCommitMessage):
    """What one task has done."""

    products: int
    duplicates: int

    def __add__(self, other: "Put") -> "Put":
        return Put(self.products + other.products, self.duplicates + other.duplicates)


class _Writing:
    """What both writers do in a task."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        queue = open_place(self._options.place)
        check_queue(queue)
        done = Put(0, 0)
        for part in gathered(map(_with_payloads, iterator), part_bytes(queue.config)):
            done += _put_part(queue, part, self._options)
        return done


class BatchWriter(_Writing, DataSourceArrowWriter):
    """`df.write.format("headrace")`."""


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("headrace")`."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Everything is there already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was put stays; when the batch comes again it is not put twice."""


def put_batches(
    queue: str | Path | None = None, *, site: str | None = None, feed: str | None = None, application: str = ""
) -> Callable[[DataFrame, int], None]:
    """For `writeStream.foreachBatch`: each row of a micro-batch becomes a product, once, however often it is repeated.

    Two queries that may put the same rows need an `application` each. A mistake in the arguments is told at once.
    """
    given = {"queue": queue, "site": site, "feed": feed, "application": application or None}
    options = {name: str(value) for name, value in given.items() if value is not None}
    write_options(options)

    def put(rows: DataFrame, batch_id: int) -> None:
        rows.write.format("headrace").options(**options, batch=batch_id).mode("append").save()

    return put


def check_queue(queue: Queue) -> None:
    if queue.config.dedup == "none":
        raise PipelineError(
            f"{queue.path} takes duplicates, so a batch that Spark repeats would be there twice",
            "write to a queue with dedup, or by foreachBatch on your own",
        )


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Before anything is written: are these the columns of products?"""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "payload" not in types:
        raise OptionError("there is no column payload", "select(…, your_column.alias('payload'))")
    if "feed" not in types and options.feed is None:
        raise OptionError("there is no column feed, and no option feed", 'give option("feed", "wx/derived")')
    for name, kind in types.items():
        if name not in TAKEN:
            raise OptionError(
                f"a product has no column {name!r}", f"drop it, or put it into properties; there are {', '.join(TAKEN)}"
            )
        if kind not in _TYPES[name]:
            raise OptionError(f"column {name} is {kind}", f"cast it to {_TYPES[name][0]}")


def _with_payloads(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same; PayloadError if a row has none."""
    payloads = batch.column("payload")
    if payloads.null_count:
        row = payloads.is_null().index(True).as_py()
        raise PayloadError(f"column payload is null in row {row} of a batch", "fill or drop such rows first")
    return batch


def _put_part(queue: Queue, part: pa.RecordBatch, options: WriteOptions) -> Put:
    """Put it; if it is too large because of its properties, each half perhaps is not."""
    try:
        receipt = queue.put_many(**puttable(part, options))
    except BatchTooLargeError:
        if part.num_rows < 2:
            raise
        middle = part.num_rows // 2
        return _put_part(queue, part.slice(0, middle), options) + _put_part(queue, part.slice(middle), options)
    return Put(receipt.products, receipt.products - receipt.stored)


def puttable(batch: pa.RecordBatch, options: WriteOptions) -> Mapping[str, Any]:
    """Arguments of `Queue.put_many` for these rows; a null is as a column that is left out."""
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
    given["signature"] = columns["signature"] if "signature" in columns else _signatures(batch, given, options)
    return given


def _properties(pairs: Iterable[tuple[str, str | None]] | None) -> dict[str, str]:
    return {name: value for name, value in pairs or () if value is not None}


def _signatures(batch: pa.RecordBatch, given: Mapping[str, Any], options: WriteOptions) -> list[bytes]:
    """Of everything that the row says, of the writer's name, and of the batch if it has a number."""
    writer = (options.application,) if options.batch is None else (options.application, options.batch)
    parts = [given["feed"], given["ident"], given["payloads"].to_pylist()]
    rest = [batch.column(name).to_pylist() for name in batch.schema.names if name not in ("feed", "ident", "payload")]
    return [
        blake3(repr((*writer, *row)).encode(errors="surrogatepass")).digest(16)
        for row in zip(*parts, *rest, strict=True)
    ]
