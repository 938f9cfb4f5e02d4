"""The columns of a table, and whether rows still fit them.

A Parquet table records them in `_headrace.json`, which readers skip; for a table that another program has written,
they are read from its files. A Delta table has them in its log. Types are Spark's, as JSON, without nullability.

Columns may change their order, and nothing else: some tools read a table whose files differ and others do not, and the
difference is found too late.

Durability: `write_schema` returns when the file survives a power failure.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.log.documents import replace_file
from headrace.pipeline.actions.disk import DISK, disk_error, make_folder

NAME = "_headrace.json"


class TableSchema(msgspec.Struct, frozen=True):
    columns: dict[str, Any]  # by name: Spark's type as JSON
    partition_by: list[str]


_DECODER = msgspec.json.Decoder(TableSchema)


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
    try:
        return _DECODER.decode((table / NAME).read_bytes())
    except FileNotFoundError:
        pass
    except OSError as error:
        raise disk_error(error, table / NAME, "read") from error
    except msgspec.MsgspecError as error:
        raise PipelineError(
            f"{table / NAME} is damaged: {error}", "remove it; the columns are then read from the files"
        ) from None
    found = next((path for path in table.rglob("*.parquet") if not _is_hidden(path, table)), None)
    if found is None:
        return None
    folders = [part.partition("=")[0] for part in found.relative_to(table).parts[:-1]]
    return schema_of(frame.sparkSession.read.parquet(str(table)).schema, folders)


def write_schema(table: Path, schema: TableSchema) -> None:
    try:
        if not (table / NAME).exists():
            make_folder(table)
            replace_file(table / NAME, msgspec.json.encode(schema), DISK)
    except OSError as error:
        raise disk_error(error, table / NAME) from error


def check_fits(rows: TableSchema, held: TableSchema | None, table: Path) -> None:
    """PipelineError names every column that differs."""
    if held is None:
        return
    differences = list(_differences(rows.columns, held.columns))
    if differences:
        raise PipelineError(
            f"the rows do not fit the table {table}: {'; '.join(differences)}",
            "select the columns of the table, cast them, or choose a new path; nothing was written",
        )
    if rows.partition_by != held.partition_by:
        raise PipelineError(
            f"the table {table} is partitioned by {_listed(held.partition_by)},"
            f" and partition_by is {_listed(rows.partition_by)}",
            "restore partition_by, or choose a new path; nothing was written",
        )


def _differences(rows: Mapping[str, Any], held: Mapping[str, Any]) -> list[str]:
    new = [f"column {name!r} ({_shown(rows[name])}) is new" for name in rows if name not in held]
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
