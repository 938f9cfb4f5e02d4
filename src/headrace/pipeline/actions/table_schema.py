"""The columns of a table, and whether rows still fit them.

A Parquet table has a record of them in its home (table_home.py). Without one, as for a table that another program has
written, they are read from its files; partition columns then have the types of the rows, because the names of folders
have none. A Delta table has its columns in its log. Types are Spark's, as JSON, without nullability.

Earlier versions kept the record in the table, as `_headrace.json`; `move_record` moves it.

Columns may change their order, and nothing else, unless `columns = "grow"`: some tools read a table whose files differ
and others do not, and the difference is found too late. A table that grows gets the columns that rows bring; its older
files have null there. No column is ever taken away, or changes its type.

Durability: `write_schema` returns when the file survives a power failure.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headrace.decoding import Decoder
from headrace.errors import PipelineError
from headrace.files import read_regular
from headrace.log.documents import UNREADABLE, replace_file
from headrace.pipeline.actions.disk import DISK, disk_error, make_folder
from headrace.pipeline.actions.table_home import homes

RECORD = "columns.json"
OLD_RECORD = "_headrace.json"  # in the folder of the table


class TableSchema(msgspec.Struct, frozen=True):
    columns: dict[str, Any]  # by name: Spark's type as JSON
    partition_by: list[str]


_DECODER: Decoder[TableSchema] = Decoder(TableSchema, encoding="json")


def schema_of(schema: StructType, partition_by: Sequence[str]) -> TableSchema:
    """The columns of rows. PipelineError names a column that no table can have."""
    columns = {field["name"]: field["type"] for field in schema.jsonValue()["fields"]}
    if len({name.casefold() for name in columns}) < len(schema.fields):
        raise PipelineError("two columns have the same name", "rename one of them: select a as b")
    for name, kind in columns.items():
        if kind == "void":
            raise PipelineError(f"column {name!r} has no type: it is null in every row", f"cast({name} as string)")
    missing = [name for name in partition_by if name not in columns]
    if missing:
        raise PipelineError(
            f"the rows have no column {missing[0]!r} to partition by", f"there are {', '.join(columns)}"
        )
    return TableSchema({name: plain(kind) for name, kind in columns.items()}, list(partition_by))


def plain(kind: Any) -> Any:
    """A type without nullability and metadata, which may differ."""
    if isinstance(kind, list):
        return [plain(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    kept = {
        key: value for key, value in kind.items() if key not in ("nullable", "metadata") and "ontainsNull" not in key
    }
    return {key: plain(value) for key, value in kept.items()}


def read_schema(table: Path, frame: DataFrame) -> TableSchema | None:
    """The columns of a Parquet table; None if there is no table yet."""
    if _is_empty(table):
        return None  # also if there is a record: the table that it describes has been deleted
    return _recorded(_record(table)) or _schema_of_files(table, frame)


def _recorded(record: Path) -> TableSchema | None:
    try:
        return _DECODER.decode(read_regular(record))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(error, record, "read") from error
    except UNREADABLE as error:
        raise PipelineError(
            f"{record} is damaged: {error}", "remove it; the columns are then read from the files"
        ) from None


def _schema_of_files(table: Path, frame: DataFrame) -> TableSchema | None:
    found = next((path for path in table.rglob("*.parquet") if not _is_hidden(path, table)), None)
    if found is None:
        return None
    folders = [part.partition("=")[0] for part in found.relative_to(table).parts[:-1]]
    held = schema_of(frame.sparkSession.read.option("mergeSchema", "true").parquet(str(table)).schema, folders)
    rows = schema_of(frame.schema, [])
    return TableSchema(
        {**held.columns, **{name: rows.columns.get(name, held.columns[name]) for name in folders}}, folders
    )


def write_schema(table: Path, schema: TableSchema) -> None:
    """Record the columns of a table that has no record, has no rows yet, or grows."""
    record = _record(table)
    held = None if _is_empty(table) else _recorded(record)
    if held is not None and schema.columns.keys() <= held.columns.keys():
        return
    columns = schema.columns if held is None else {**held.columns, **schema.columns}
    try:
        make_folder(record.parent)
        replace_file(record, msgspec.json.encode(TableSchema(columns, schema.partition_by)), DISK)
    except OSError as error:
        raise disk_error(error, record) from error


def move_record(table: Path) -> None:
    """Move the record of an earlier version out of the folder of the table. May be repeated after a kill."""
    old, record = table / OLD_RECORD, _record(table)
    try:
        data = read_regular(old)
        if not record.exists():
            make_folder(record.parent)
            replace_file(record, data, DISK)
        old.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise disk_error(error, old, "moved") from error


def _record(table: Path) -> Path:
    """The record that exists, or else the path for a new one."""
    first, second = (home / RECORD for home in homes(table))
    return second if second.exists() and not first.exists() else first


def _is_empty(table: Path) -> bool:
    try:
        with os.scandir(table) as entries:
            return all(entry.name.startswith((".", "_")) for entry in entries)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise disk_error(error, table, "read") from error


def check_fits(rows: TableSchema, held: TableSchema | None, table: Path, may_grow: bool = False) -> None:
    """PipelineError names every column that differs."""
    if held is None:
        return
    differences = list(_differences(rows.columns, held.columns, may_grow))
    if differences:
        others = "" if may_grow else ', allow new ones with columns = "grow"'
        raise PipelineError(
            f"the rows do not fit the table {table}: {'; '.join(differences)}",
            f"select the columns of the table, cast them{others}, or choose a new path; nothing was written",
        )
    if rows.partition_by != held.partition_by:
        raise PipelineError(
            f"the table {table} is partitioned by {_listed(held.partition_by)},"
            f" and partition_by is {_listed(rows.partition_by)}",
            "restore partition_by, or choose a new path; nothing was written",
        )


def _differences(rows: Mapping[str, Any], held: Mapping[str, Any], may_grow: bool) -> list[str]:
    known = {name.casefold() for name in held}  # Spark does not distinguish them by case
    new = [
        f"column {name!r} ({_shown(rows[name])}) is new"
        for name in rows if name not in held and (not may_grow or name.casefold() in known)
    ]  # fmt: skip
    gone = [f"column {name!r} ({_shown(held[name])}) is missing" for name in held if name not in rows]
    other = [
        f"column {name!r} is {_shown(rows[name])}, and the table has {_shown(held[name])}"
        for name in rows if name in held and rows[name] != held[name]
    ]  # fmt: skip
    return new + gone + other


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind.get("type")) if isinstance(kind, dict) else json.dumps(kind)


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"


def _is_hidden(path: Path, table: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(table).parts)
