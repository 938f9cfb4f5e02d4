"""Statistics of a file in the log of a Delta table: rows, and per column the range of values and the number of nulls.

Readers skip a file whose ranges exclude a filter, without opening it. A range that is too narrow hides rows without an
error, so a file has ranges of all its columns or none at all. Measured with deltalake 1.6.6, whose datasets give ranges
to Arrow as facts:

    a column without a range, beside others that have one     is taken for a column without values: the file is hidden
    the same, all null, with its number of nulls              is read correctly
    no ranges at all                                          the file is always read
    NaN in the file                                           lies outside every range, and Spark sorts it above all

So ranges are left out if a column has NaN or an infinity, a type that has no exact form in JSON (decimals, local
times), fields of its own, or a value that Python cannot show. Binary columns, lists and maps have no ranges in Delta,
and readers know. A long text is cut: the lower end to a prefix, the upper end to a prefix and the highest character.

A column that was added to the table after the file is null in all its rows; `grown` says so in the log.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TEXT_CHARS_MAX = 32  # as Delta itself cuts them
_HIGHEST = "\U0010ffff"


class _NoRangeError(Exception):
    """A column of the file has values that no range describes."""


def statistics(path: Path, columns: Iterable[str]) -> str:
    """The statistics of a file as the log has them. columns: of the table, without those that it is partitioned by."""
    with pq.ParquetFile(path) as file:
        rows = file.metadata.num_rows
        made: dict[str, Any] = {"numRecords": rows}
        try:
            nulls, least, most = _ranges(file)
        except (_NoRangeError, ValueError, OverflowError):  # the last two: Python has no such text or time
            return msgspec.json.encode(made).decode()
    nulls.update({name: rows for name in columns if name not in file.schema_arrow.names})
    return msgspec.json.encode({**made, "minValues": least, "maxValues": most, "nullCount": nulls}).decode()


def grown(add: dict[str, Any], new: Sequence[str]) -> dict[str, Any] | None:
    """The entry of a file, for a table that has these columns too. None: the entry may stay as it is."""
    held = msgspec.json.decode(add.get("stats") or "{}")
    missing = [name for name in new if name not in held.get("nullCount", {})]
    if not missing or not ("minValues" in held or "maxValues" in held):
        return None
    held.setdefault("nullCount", {}).update(dict.fromkeys(missing, held["numRecords"]))
    return {**add, "dataChange": False, "stats": msgspec.json.encode(held).decode()}


def _ranges(file: pq.ParquetFile) -> tuple[dict[str, int], dict[str, Any], dict[str, Any]]:
    """By column: the number of nulls, the lower end, the upper end."""
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for field in file.schema_arrow:
        if _is_without_range(field.type):
            continue
        _check_type(field)
        lows, highs, nulls[field.name] = [], [], 0
        for number in range(file.num_row_groups):
            column = file.read_row_group(number, columns=[field.name]).column(0)
            nulls[field.name] += column.null_count
            if column.null_count < len(column):
                low, high = _ends(column)
                lows.append(low)
                highs.append(high)
        if lows:
            least[field.name], most[field.name] = _lower(min(lows)), _upper(max(highs))
    return nulls, least, most


def _is_without_range(kind: pa.DataType) -> bool:
    """Types whose columns have no ranges in any Delta table."""
    return bool(pa.types.is_binary(kind) or pa.types.is_list(kind) or pa.types.is_map(kind))


def _check_type(field: pa.Field) -> None:
    kind, types = field.type, pa.types
    is_plain = (
        types.is_signed_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or types.is_string(kind)
        or types.is_boolean(kind) or types.is_date32(kind) or kind == pa.timestamp("us", "UTC")
    )  # fmt: skip
    if not is_plain or "." in field.name:  # Arrow takes a dot for the path of an inner field
        raise _NoRangeError


def _ends(column: pa.ChunkedArray) -> tuple[Any, Any]:
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        raise _NoRangeError
    ends = pc.min_max(column)
    return ends["min"].as_py(), ends["max"].as_py()


def _lower(value: Any) -> Any:
    return value[:TEXT_CHARS_MAX] if isinstance(value, str) else _shown(value)


def _upper(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= TEXT_CHARS_MAX:
        return _shown(value)
    if value[TEXT_CHARS_MAX] == _HIGHEST:
        raise _NoRangeError
    return value[:TEXT_CHARS_MAX] + _HIGHEST


def _shown(value: Any) -> Any:
    """A value as Delta writes it into JSON."""
    if hasattr(value, "tzinfo"):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value.isoformat() if hasattr(value, "isoformat") else value
