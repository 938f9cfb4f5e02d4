"""Decoding on Spark: products of a DataFrame become the rows of a decoder, and errors.

The rows have the columns of the view `decoded` (rules/views.py) and two more: `_error`, null unless the product could
not be decoded, and `_payload`, which only such products keep, up to a limit. So one pass produces both the rows and the
dead letters.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, expr, lit, substring, when
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.pipeline.decoders.decoder import ERROR, NO_PRODUCT, PAYLOAD, Decoder
from headrace.pipeline.rules.rule import Rule
from headrace.pipeline.rules.views import decoder_of
from headrace.pipeline.source.columns import FRAGMENT, SCHEMA
from headrace.units import format_age

PAYLOAD_MAX = 1 << 20  # bytes kept of a product that could not be decoded
_ROWS = 4096  # in one batch: each has the columns of its product, and properties may be long

Batches = Iterator[pa.RecordBatch]


def decoded(products: DataFrame, rule: Rule, folder: Path) -> DataFrame:
    """The rows that the rule's decoder produces from these products, and the errors."""
    schema = decoded_schema(decoder_of(rule, folder).schema)
    return products.mapInArrow(_decode_with(rule, folder), from_arrow_schema(schema))


def marked(products: DataFrame) -> DataFrame:
    """The products themselves, with an error for each fragment of something larger: it is no product."""
    is_fragment = col(FRAGMENT).isNotNull()
    payload = when(is_fragment, substring("payload", 1, PAYLOAD_MAX))
    return products.withColumns({ERROR: when(is_fragment, lit(NO_PRODUCT)), PAYLOAD: payload}).drop(FRAGMENT)


def parted(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Whole products, and fragments of something larger, both without the column that tells them apart."""
    if FRAGMENT not in rows.schema.names:
        return rows, rows.slice(0, 0)
    mark, rows = rows.column(FRAGMENT), rows.drop_columns([FRAGMENT])
    if mark.null_count == len(mark):
        return rows, rows.slice(0, 0)
    return rows.filter(mark.is_null()), rows.filter(mark.is_valid())


def ship_decoders(spark: SparkSession, rules: Iterable[Rule], folder: Path, aside: Path) -> None:
    """Send the user's own decoders in `folder` to executors on a cluster, as copies in `aside`: executors that start
    later must get the same."""
    context = spark.sparkContext
    if str(context.master).startswith("local"):
        return
    decoders = {rule.decode for rule in rules if rule.decode is not None and ":" in rule.decode}
    for name in sorted({decoder.partition(":")[0].partition(".")[0] for decoder in decoders}):
        if (folder / f"{name}.py").is_file():
            context.addPyFile(str(shutil.copy(folder / f"{name}.py", aside)))
        elif (folder / name).is_dir():
            context.addPyFile(shutil.make_archive(str(aside / name), "zip", folder, name))


def without_future(frame: DataFrame, rule: Rule) -> DataFrame:
    """The same rows, with an error where the time of the watermark column is too far in the future.

    Such a time would move the watermark there, and Spark would silently drop every row that comes in time.
    """
    if rule.decode is None:
        frame = frame.withColumn(PAYLOAD, substring("payload", 1, PAYLOAD_MAX))
    column, ahead = rule.watermark_column, f"{rule.watermark_ahead_s} seconds"
    # current_timestamp() is the time of the batch, the same when it is repeated.
    future = expr(f"`{column}` > current_timestamp() + interval '{ahead}'")
    error = lit(f"{column} is more than {format_age(rule.watermark_ahead_s)} in the future (watermark_ahead)")
    return frame.withColumn(ERROR, coalesce(col(ERROR), when(future, error)))


def decoded_schema(produced: pa.Schema) -> pa.Schema:
    """Columns of the product that the decoder does not produce, then the decoder's, then the error."""
    kept = [field for field in SCHEMA if field.name != "payload" and field.name not in produced.names]
    extra = [pa.field(ERROR, pa.string()), pa.field(PAYLOAD, pa.binary())]
    return pa.schema([*kept, *(field.with_nullable(True) for field in produced), *extra])


def _decode_with(rule: Rule, folder: Path) -> Callable[[Batches], Batches]:
    """For a task, which loads the decoder itself: it may run on another machine."""

    def decode(batches: Batches) -> Batches:
        decoder = decoder_of(rule, folder)
        for batch in batches:
            products, fragments = parted(batch)
            yield from decode_batch(products, decoder)
            if fragments.num_rows:
                places = range(fragments.num_rows)
                yield _errors(fragments, [(place, NO_PRODUCT) for place in places], decoder)

    return decode


def decode_batch(batch: pa.RecordBatch, decoder: Decoder) -> Batches:
    """Decode a batch: its rows, then its errors."""
    rows, errors = decoder.decode(batch)
    schema = decoded_schema(decoder.schema)
    headers = batch.drop_columns(["payload"])
    for begin in range(0, rows.num_rows, _ROWS):
        part = rows.slice(begin, _ROWS)
        produced = {name: part.column(name) for name in decoder.schema.names}
        yield _row_batch(schema, headers.take(part.column("place")), produced)
    if errors:
        yield _errors(batch, errors, decoder)


def _errors(batch: pa.RecordBatch, errors: Iterable[tuple[int, str]], decoder: Decoder) -> pa.RecordBatch:
    """A row for each product that is refused: its place and why."""
    places, reasons = zip(*errors, strict=True)
    bad = batch.take(pa.array(places, pa.int32()))
    payloads = [payload[:PAYLOAD_MAX] for payload in bad.column("payload").to_pylist()]
    wrong = {ERROR: pa.array(reasons, pa.string()), PAYLOAD: pa.array(payloads, pa.binary())}
    return _row_batch(decoded_schema(decoder.schema), bad, dict.fromkeys(decoder.schema.names) | wrong)


def _row_batch(schema: pa.Schema, products: pa.RecordBatch, produced: dict[str, object]) -> pa.RecordBatch:
    count = products.num_rows
    columns = []
    for field in schema:
        column = produced.get(field.name)
        if field.name in SCHEMA.names and field.name not in produced:
            column = products.column(field.name).cast(field.type)
        columns.append(pa.nulls(count, field.type) if column is None else column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
