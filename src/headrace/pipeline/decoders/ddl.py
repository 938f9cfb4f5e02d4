"""Schemas in Spark's notation, `station string, temperature double`, as Arrow schemas, without Spark.

Parsed by sqlglot in Spark's dialect. Types: boolean, tinyint, smallint, int, bigint, float, double, decimal, string,
binary, date, timestamp, array<…>, map<…, …>, struct<…>.
"""

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.errors import OptionError
from headrace.pipeline.decoders.decoder import PLACE, TIME

_Type = exp.DataType.Type
_TYPES = {
    _Type.BOOLEAN: pa.bool_(),
    _Type.TINYINT: pa.int8(),
    _Type.SMALLINT: pa.int16(),
    _Type.INT: pa.int32(),
    _Type.BIGINT: pa.int64(),
    _Type.FLOAT: pa.float32(),
    _Type.DOUBLE: pa.float64(),
    _Type.TEXT: pa.string(),
    _Type.VARCHAR: pa.string(),
    _Type.BINARY: pa.binary(),
    _Type.DATE: pa.date32(),
    _Type.TIMESTAMP: TIME,
    _Type.TIMESTAMPTZ: TIME,
}
_HINT = "write it as for Spark: 'station string, temperature double, observed timestamp'"


def arrow_schema(ddl: str) -> pa.Schema:
    """The schema that a DDL string describes. OptionError tells what is invalid."""
    try:
        table = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", dialect="spark")
    except SqlglotError:
        raise OptionError(f"the schema {ddl!r} is invalid", _HINT) from None
    columns = table.this.expressions if isinstance(table, exp.Create) and isinstance(table.this, exp.Schema) else []
    if not columns or not all(isinstance(column, exp.ColumnDef) for column in columns):
        raise OptionError(f"the schema {ddl!r} is invalid", _HINT)
    fields = [pa.field(column.name, _type(column.kind, column.name)) for column in columns]
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise OptionError(f"the schema {ddl!r} has two columns of one name", "rename one of them")
    if PLACE.name in names:
        raise OptionError("the schema has a column 'place'", "leave it out: it is added automatically")
    return pa.schema(fields)


def _type(kind: exp.DataType | None, name: str) -> pa.DataType:
    if kind is None:
        raise OptionError(f"column {name!r} has no type", _HINT)
    inner = kind.expressions
    if kind.this == _Type.ARRAY and len(inner) == 1:
        return pa.list_(_type(inner[0], name))
    if kind.this == _Type.MAP and len(inner) == 2:
        return pa.map_(_type(inner[0], name), _type(inner[1], name))
    if kind.this == _Type.STRUCT and inner and all(isinstance(part, exp.ColumnDef) for part in inner):
        return pa.struct([pa.field(part.name, _type(part.kind, part.name)) for part in inner])
    if kind.this == _Type.DECIMAL:
        return _decimal(kind, name)
    if kind.this not in _TYPES:
        raise OptionError(f"column {name!r} has the type {kind.sql('spark')}, which is not supported", _HINT)
    return _TYPES[kind.this]


def _decimal(kind: exp.DataType, name: str) -> pa.DataType:
    try:
        return pa.decimal128(*[int(part.name) for part in kind.expressions] or (10, 0))
    except (ValueError, TypeError):
        raise OptionError(
            f"column {name!r} has the type {kind.sql('spark')}, which is invalid",
            "write decimal(9, 2); at most 38 digits",
        ) from None
