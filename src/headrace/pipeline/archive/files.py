"""The files of a table, and their rows as products, a few at a time.

    Parquet   every Parquet file below the folder; folders such as `origin=007` are partitions
    Delta     the files of the current version; the log has the partitions

The value of a partition is text in the name of a folder. It is converted to the type of the product's column
(source/columns.py), never to the type that the text looks like: origin `007` stays `007`. Times there are UTC, as the
pipeline writes them.

Rows are read from one row group at a time, and so few at once that they come to about `bytes_max`, however large the
table, its files or its payloads are. Rows have the types in `TYPES`, whatever program wrote the table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from headrace.errors import PipelineError
from headrace.extras import require
from headrace.files import open_to_read
from headrace.pipeline.source.columns import SCHEMA, TIME
from headrace.timing.replay.source import By

NEEDED = ("feed", "ident", "payload", "origin", "origin_sequence", "created")
TYPES = {field.name: pa.timestamp("ns", tz="UTC") if field.type == TIME else field.type for field in SCHEMA}
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # a folder of rows without a value; Spark uses it for empty text, too
_UNWRITABLE = ("payload", "signature", "properties")  # bytes and maps, which a folder name does not hold exactly
_ROWS_AT_ONCE = 1024
_BUFFER_BYTES = 1 << 20  # of each column that is read


# What Arrow raises for a damaged file, which includes text that is not UTF-8 and sizes that no memory has.
DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, KeyError)


@dataclass(frozen=True, slots=True)
class TableFile:
    """One file of a table."""

    name: str
    open: Callable[[], Any]  # returns a path, or an Arrow file
    values: Mapping[str, Any]  # of the columns that the table is partitioned by


def files_of(path: Path) -> list[TableFile]:
    """All files of a table, in the order of their names; PipelineError if there is no table at `path`."""
    if not path.exists():
        raise PipelineError(f"there is no table at {path}", "give the folder of a table")
    try:
        files = _delta_files(path) if (path / "_delta_log").is_dir() else list(_parquet_files(path))
    except OSError as error:
        raise _unreadable(path, error) from None
    if not files:
        raise PipelineError(f"{path} has no Parquet files, so it holds no products", "give the folder of a table")
    return files


def check_columns(file: TableFile) -> None:
    """PipelineError if the rows of the file are not products."""
    with _opened(file) as parquet:
        _check_names(parquet.schema_arrow.names, file)


def _check_names(inside: Sequence[str], file: TableFile) -> None:
    missing = [name for name in NEEDED if name not in inside and name not in file.values]
    if missing:
        raise PipelineError(
            f"{file.name} has no column {', '.join(missing)}, so it holds no products",
            "archive products by a rule with `table` and without `decode`",
        )
    odd = [name for name in _UNWRITABLE if name in file.values]
    if odd:
        raise PipelineError(
            f"{file.name} is in a partition by {odd[0]}, which folder names do not hold exactly",
            "partition by other columns",
        )


def rows_of(
    file: TableFile, columns: Sequence[str], bytes_max: int, within: Callable[[Any], bool] = lambda group: True
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in their order; row groups that are not `within` are skipped.

    A column that the file does not have, and that a product does not need, is null. PipelineError.
    """
    try:
        with _opened(file) as parquet:
            _check_names(parquet.schema_arrow.names, file)
            inside = [name for name in columns if name not in file.values and name in parquet.schema_arrow.names]
            for number in range(parquet.metadata.num_row_groups):
                group = parquet.metadata.row_group(number)
                if group.num_rows and within(group):
                    rows = _rows_at_once(group, bytes_max)
                    for batch in parquet.iter_batches(rows, row_groups=[number], columns=inside):
                        yield _fit(batch, file, columns)
    except DAMAGE as error:
        raise _unreadable(file.name, error) from None


def span_of(group: Any, column: str) -> tuple[datetime, datetime] | None:
    """The first and the last time in a column of a row group, if the file has statistics."""
    for number in range(group.num_columns):
        found = group.column(number)
        if found.path_in_schema == column and found.is_stats_set and found.statistics.has_min_max:
            try:
                first, last = _moment(found.statistics.min), _moment(found.statistics.max)
            except ValueError:  # nanoseconds, which Python's datetime does not have
                return None
            return None if first is None or last is None else (first, last)
    return None


def span(file: TableFile, by: By) -> tuple[int, int] | None:
    """The first and the last time of products in a file, in nanoseconds, or times beyond them; None if unknown.

    `inserted` counts as `created` in a table that does not have it.
    """
    with _opened(file) as parquet:
        column = by if by in (*parquet.schema_arrow.names, *file.values) else "created"
        if column in file.values:
            value = _moment(file.values[column])
            return None if value is None else (_nanoseconds(value), _nanoseconds(value))
        groups = [parquet.metadata.row_group(number) for number in range(parquet.metadata.num_row_groups)]
        spans = [span_of(group, column) for group in groups if group.num_rows]
        if any(_has_nulls(group, column) for group in groups):
            return None
    known = [each for each in spans if each is not None]
    if not known or len(known) < len(spans):
        return None
    first, last = min(first for first, _ in known), max(last for _, last in known)
    return _nanoseconds(first), _nanoseconds(last) + 999  # statistics may be cut to microseconds


def _has_nulls(group: Any, column: str) -> bool:
    """Whether rows lack this time; then another one counts for them."""
    for number in range(group.num_columns):
        found = group.column(number)
        if found.path_in_schema == column and found.is_stats_set:
            return not found.statistics.has_null_count or found.statistics.null_count > 0
    return False


def _nanoseconds(when: datetime) -> int:
    return int(pa.scalar(when, TYPES["created"]).value)


def _moment(value: Any) -> datetime | None:
    return zoned(value) if isinstance(value, datetime) else None


def zoned(value: Any) -> Any:
    """The same time; UTC if it has no zone."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


def _opened(file: TableFile) -> Any:
    try:
        return pq.ParquetFile(file.open(), pre_buffer=False, buffer_size=_BUFFER_BYTES)
    except DAMAGE as error:
        raise _unreadable(file.name, error) from None


def _rows_at_once(group: Any, bytes_max: int) -> int:
    return int(max(1, min(_ROWS_AT_ONCE, bytes_max * group.num_rows // max(1, group.total_byte_size))))


def _fit(batch: pa.RecordBatch, file: TableFile, columns: Sequence[str]) -> pa.RecordBatch:
    """The batch with all `columns`, in the types of products."""
    arrays = [_column(batch, file, name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([pa.field(name, TYPES[name]) for name in columns]))


def _column(batch: pa.RecordBatch, file: TableFile, name: str) -> Any:
    if name in file.values:
        column = pa.repeat(pa.scalar(file.values[name], TYPES[name]), batch.num_rows)
    elif name in batch.schema.names:
        column = _cast(batch.column(name), file, name)
    else:
        column = pa.nulls(batch.num_rows, TYPES[name])
    if name == "ident":
        return column.fill_null("")
    if name in NEEDED and column.null_count:
        raise PipelineError(f"{file.name} has a row without {name}, so it is not a product", "leave such rows out")
    return column


def _cast(column: Any, file: TableFile, name: str) -> Any:
    try:
        return column.cast(TYPES[name])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PipelineError(
            f"column {name} of {file.name} is {column.type}, which does not convert to {TYPES[name]}: {error!s:.200}",
            "cast it in the rule's sql",
        ) from None


# --- Parquet ----------------------------------------------------------------------------------------


def _parquet_files(path: Path) -> Iterator[TableFile]:
    if path.is_file():
        yield TableFile(str(path), partial(str, path), {})
        return
    for found in sorted(path.rglob("*")):
        within = found.relative_to(path).parts
        if not any(map(_is_hidden, within)) and _is_parquet(found):
            yield TableFile(str(found), partial(str, found), _folder_values(within[:-1], found))


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or (part.startswith("_") and "=" not in part)


def _is_parquet(path: Path) -> bool:
    if path.suffix == ".parquet":
        return not path.is_dir()  # also if it is gone since it was listed: then opening it is an error
    if not path.is_file():
        return False
    with open_to_read(path, follow=True) as file:
        return file.read(4) == b"PAR1"


def _folder_values(folders: Sequence[str], file: Path) -> dict[str, Any]:
    """The values that folder names give to columns of products; they are escaped as Spark and Hive do."""
    pairs = [folder.split("=", 1) for folder in folders if "=" in folder]
    texts = {unquote(name): None if text == _NO_VALUE else unquote(text) for name, text in pairs}
    return {name: _value(name, text, file) for name, text in texts.items() if name in TYPES}


def _value(name: str, text: str | None, file: Path) -> Any:
    kind = TYPES[name]
    try:
        if text is not None and pa.types.is_integer(kind):
            return int(text)
        return zoned(datetime.fromisoformat(text)) if text is not None and pa.types.is_timestamp(kind) else text
    except ValueError:
        raise PipelineError(f"{file} is in a folder for {name} {text!r}, which is not {kind}", "rename it") from None


# --- Delta ------------------------------------------------------------------------------------------


def _delta_files(path: Path) -> list[TableFile]:
    require("delta")
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(str(path))
        names = table.metadata().partition_columns
        fragments = sorted(table.to_pyarrow_dataset().get_fragments(), key=lambda fragment: str(fragment.path))
    except DeltaError as error:
        raise _unreadable(path, error) from None
    return [TableFile(f"{path}/{each.path}", each.open, _logged_values(each, names)) for each in fragments]


def _logged_values(fragment: Any, names: Sequence[str]) -> dict[str, Any]:
    values = ds.get_partition_keys(fragment.partition_expression)
    return {name: zoned(values.get(name)) for name in names if name in TYPES}


def _unreadable(what: Path | str, error: Exception) -> PipelineError:
    if isinstance(error, FileNotFoundError):
        return PipelineError(f"{what} was removed while the table was read", "try again: the table was compacted")
    return PipelineError(f"{what} is not readable as a table: {error!s:.300}", "give the folder of a table")
