"""Decoders that users write: a function, named "module:function", in one of two forms.

    by batch   RecordBatch of products -> RecordBatch of rows, with the column `place` first
    by row     product as a dict -> dicts, one for each row, of the schema that the rule gives

A function by batch has its schema from its attribute `schema` (a pa.Schema, without `place`), or else from its result
for no products. It may return a `Decoded` to report errors. An exception affects only the product that caused it: the
batch is divided until that product is found.

The result of a function is checked. Its time and memory are not limited.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.errors import OptionError
from headrace.pipeline.decoders.ddl import arrow_schema
from headrace.pipeline.decoders.decoder import (
    ERROR,
    PAYLOAD,
    PLACE,
    Decoded,
    Decoder,
    Errors,
    brief,
    make_decoder,
    no_rows,
    reason,
    with_place,
)
from headrace.pipeline.source.columns import SCHEMA as PRODUCTS
from headrace.user_objects import load_object

_PLAIN = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(),
)  # fmt: skip
_RENAME = "rename it"

ByBatch = Callable[[pa.RecordBatch], Any]
ByRow = Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]]


def own_decoder(name: str, ddl: str | None) -> Decoder:
    """The decoder of a function: called by row if there is a schema, else by batch."""
    function = _load(name)
    schema = _schema_of(name, function) if ddl is None else arrow_schema(ddl)
    _check_schema(name, schema)
    if ddl is not None:
        return make_decoder(name, schema, partial(_by_row, function, schema))
    return make_decoder(name, schema, partial(_by_batch, function, schema))


def _load(name: str) -> Callable[..., Any]:
    found = load_object(name, "decoder")
    if not callable(found):
        raise OptionError(f"decoder {name!r} is not a function", "name a function: module:function")
    return found  # type: ignore[no-any-return]


def _schema_of(name: str, function: Callable[..., Any]) -> pa.Schema:
    schema = getattr(function, "schema", None)
    if isinstance(schema, pa.Schema):
        return schema
    try:
        made = _rows_and_errors(function(_no_products()))[0]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything
        raise OptionError(
            f"the schema of decoder {name!r} is unknown: called without products, it fails with {reason(error)}",
            "if it takes one product, give the rule a schema; if it takes a batch, let it return no rows for no "
            "products, or give it an attribute `schema` (a pyarrow.Schema)",
        ) from None
    if made.schema.names[:1] != [PLACE.name]:
        raise OptionError(f"decoder {name!r} returns rows without 'place' as first column", "add it (int32)")
    return pa.schema(list(made.schema)[1:])


def _check_schema(name: str, schema: pa.Schema) -> None:
    """Refuse columns that a DataFrame cannot have beside those of products. SQL ignores the case of names."""
    taken = {column.lower(): column for column in PRODUCTS.names}
    for field in schema:
        if field.name in (PLACE.name, ERROR, PAYLOAD):
            raise OptionError(f"decoder {name!r} has a column {field.name!r}, which is reserved", _RENAME)
        known = taken.setdefault(field.name.lower(), field.name)
        if known != field.name or schema.names.count(field.name) > 1:
            raise OptionError(f"decoder {name!r} has a column {field.name!r}, and there is {known!r} already", _RENAME)
        if not _is_sparks(field.type):
            raise OptionError(
                f"decoder {name!r} has a column {field.name!r} of type {field.type}, which Spark does not support",
                "cast it: signed integers, float32 or float64, string, binary, date32, times in µs",
            )


def _is_sparks(kind: pa.DataType) -> bool:
    """Whether Spark takes the type as it is; nested types by their parts."""
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return bool(kind.unit == "us")
    if pa.types.is_list(kind):
        return _is_sparks(kind.value_type)
    if pa.types.is_map(kind):
        return _is_sparks(kind.key_type) and _is_sparks(kind.item_type)
    if pa.types.is_struct(kind):
        names = [field.name.lower() for field in kind]
        return len(set(names)) == len(names) and all(_is_sparks(field.type) for field in kind)
    return bool(pa.types.is_decimal128(kind) or kind in _PLAIN)


def _no_products() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=PRODUCTS)


def _by_batch(function: ByBatch, schema: pa.Schema, products: pa.RecordBatch) -> Decoded:
    rows, reported = _rows_and_errors(function(products))
    errors = [(operator.index(place), brief(str(why or "no reason was given"))) for place, why in reported]
    wanted = with_place(schema)
    if rows.schema.names != wanted.names:
        raise ValueError(f"it returned the columns {rows.schema.names}, not {wanted.names}")
    rows = pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(rows.columns, wanted, strict=True)], schema=wanted
    )
    places = rows.column(0).to_pylist()
    failed = {place for place, _ in errors}
    if not all(place is not None and 0 <= place < products.num_rows for place in {*places, *failed}):
        raise ValueError(f"it returned a place that is not from 0 to {products.num_rows - 1}")
    if not failed.isdisjoint(places):
        raise ValueError("it returned rows and an error for the same product")
    return Decoded(rows, errors)


def _rows_and_errors(made: Any) -> tuple[pa.RecordBatch, Errors]:
    rows, errors = (made.rows, made.errors) if isinstance(made, Decoded) else (made, [])
    if not isinstance(rows, pa.RecordBatch):
        raise TypeError(f"it returned a {type(rows).__name__}, not a pyarrow.RecordBatch")
    return rows, errors


def _by_row(function: ByRow, schema: pa.Schema, products: pa.RecordBatch) -> Decoded:
    batches, errors = [no_rows(schema)], Errors()
    for place in range(products.num_rows):
        try:
            batches.append(_rows_of_one(function, schema, place, _product(products, place)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything
            errors.append((place, reason(error)))
    return Decoded(pa.concat_batches(batches), errors)


def _product(products: pa.RecordBatch, place: int) -> dict[str, Any]:
    product: dict[str, Any] = products.slice(place, 1).to_pylist()[0]
    if "properties" in product:
        product["properties"] = dict(product["properties"] or ())
    return product


def _rows_of_one(function: ByRow, schema: pa.Schema, place: int, product: dict[str, Any]) -> pa.RecordBatch:
    rows = [{**row, PLACE.name: place} for row in function(product)]
    unknown = {name for row in rows for name in row}.difference(schema.names, [PLACE.name])
    if unknown:
        raise ValueError(f"it returned {', '.join(sorted(unknown))}, which the schema does not have")
    return pa.RecordBatch.from_pylist(rows, schema=with_place(schema))
