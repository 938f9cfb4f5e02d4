"""Ranges in the log of a Delta table: a filter finds the rows that it finds in memory, whichever reader skips files."""

import json
import math
import operator
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyarrow.dataset import field

from headrace.pipeline.actions.table_delta import DeltaLog
from headrace.pipeline.actions.table_delta_commits import adds_of
from headrace.pipeline.actions.table_delta_compaction import compact_delta
from headrace.pipeline.actions.table_delta_statistics import TEXT_CHARS_MAX, statistics
from headrace.pipeline.actions.table_staging import Ready, Staged
from support.seeds import random_seed

KINDS = {
    "tiny": (pa.int8(), "byte"), "whole": (pa.int32(), "integer"), "long": (pa.int64(), "long"),
    "gust": (pa.float64(), "double"), "pressure": (pa.float32(), "float"), "station": (pa.string(), "string"),
    "day": (pa.date32(), "date"), "observed": (pa.timestamp("us", "UTC"), "timestamp"), "good": (pa.bool_(), "boolean"),
    "payload": (pa.binary(), "binary"), "levels": (pa.list_(pa.int32()), {"type": "array", "elementType": "integer", "containsNull": True}),
}  # fmt: skip
SINGLE = [name for name in KINDS if name not in ("payload", "levels")]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PREFIX = "é" * (TEXT_CHARS_MAX - 1)
TEXTS = [
    "",
    "KDEN",
    "a'b\"\\",
    PREFIX,
    PREFIX + "a",
    PREFIX + "ab",
    PREFIX + "b" * 9,
    "\U0010ffff" * 40,
    "z\0",
    "ünï",
    "\ud7ff",
]


def value(chance: random.Random, name: str) -> Any:
    makers: dict[str, Callable[[], Any]] = {
        "tiny": lambda: chance.choice([-128, 127, 0, 5]),
        "whole": lambda: chance.choice([-(1 << 31), (1 << 31) - 1, chance.randint(-9, 9)]),
        "long": lambda: chance.choice([-(1 << 63), (1 << 63) - 1, (1 << 53) + 1, chance.randint(-9, 9)]),
        "gust": lambda: chance.choice([0.0, -0.0, 0.1, 1e300, -1e-300, 5e-324, chance.uniform(-9, 9)]),
        "pressure": lambda: chance.choice([0.5, 1013.25, -0.25]),
        "station": lambda: chance.choice(TEXTS),
        "day": lambda: chance.choice([date(1, 1, 1), date(9999, 12, 31), date(2026, 2, 28)]),
        "observed": lambda: EPOCH + timedelta(microseconds=chance.choice([0, 1, 999, 1_000_001, -1, chance.getrandbits(50)])),
        "good": lambda: chance.random() < 0.5,
        "payload": lambda: chance.randbytes(3),
        "levels": lambda: [chance.randint(0, 9)],
    }  # fmt: skip
    return makers[name]()


def part(chance: random.Random, columns: list[str]) -> pa.Table:
    """Rows of one file: few values, so that its ranges are narrow; in some columns null, only null, or NaN."""
    rows, arrays = chance.randint(1, 6), {}
    for name in columns:
        nulls = chance.choice([0.0, 0.0, 0.3, 1.0])
        few = [value(chance, name) for _ in range(2)]
        if name in ("gust", "pressure") and chance.random() < 0.15:
            few.append(chance.choice([math.nan, math.inf, -math.inf]))
        made = [None if chance.random() < nulls else chance.choice(few) for _ in range(rows)]
        arrays[name] = pa.array(made, KINDS[name][0])
    return pa.table(arrays)


def add(table: Path, batch: int, rows: pa.Table, values: dict[str, str | None] | None = None) -> None:
    """As the action does."""
    table.mkdir(exist_ok=True)
    name = f"part-life-{batch:010}-00000.parquet"
    pq.write_table(rows, table / name, row_group_size=2, write_statistics=False)  # those of Arrow leave NaN out
    fields = [{"name": each, "type": KINDS[each][1], "nullable": True, "metadata": {}} for each in rows.column_names]
    fields += [{"name": each, "type": "string", "nullable": True, "metadata": {}} for each in values or {}]
    staged = Staged(name, name, rows.num_rows, (table / name).stat().st_size, values or {})
    DeltaLog(table, "test").add(Ready([staged], 0, {"type": "struct", "fields": fields}, list(values or {})), batch)


def filters(chance: random.Random, columns: list[str]) -> Iterator[tuple[str, str, Any]]:
    for name in columns:
        for how in ("==", "!=", "<", "<=", ">", ">=", "not ==", "not <="):
            yield name, how, value(chance, name)
        yield name, "null", None
        yield name, "valid", None


OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def expression(name: str, how: str, than: Any) -> Any:
    if how in ("null", "valid"):
        return field(name).is_null() if how == "null" else field(name).is_valid()
    made = OPERATORS[how.removeprefix("not ")](field(name), pa.scalar(than, KINDS[name][0]))
    return ~made if how.startswith("not ") else made


def check_filters(table: Path, chance: random.Random, columns: list[str]) -> None:
    opened = DeltaTable(table)
    whole, held = opened.to_pyarrow_table(), opened.to_pyarrow_dataset()
    for chosen in filters(chance, columns):
        made = expression(*chosen)
        found, expected = held.to_table(filter=made), whole.filter(made)
        order = str(sorted(map(str, found.to_pylist()))), str(sorted(map(str, expected.to_pylist())))
        assert order[0] == order[1], chosen


def check_ranges(table: Path, columns: list[str]) -> int:
    """What Spark and others rely on: every value is in its range, NaN above all; return how many files have ranges."""
    with_ranges = 0
    for entry in adds_of(table, DeltaTable(table)):
        rows = pq.read_table(table / unquote(entry["path"]))
        stats = json.loads(entry["stats"])
        assert stats["numRecords"] == rows.num_rows
        if "minValues" not in stats:
            assert stats.keys() == {"numRecords"}
            continue
        with_ranges += 1
        for name in columns:
            values = rows[name].to_pylist() if name in rows.column_names else [None] * rows.num_rows
            known = [each for each in values if each is not None]
            assert stats["nullCount"][name] == len(values) - len(known), name
            assert (name in stats["minValues"]) == (name in stats["maxValues"]) == bool(known), name
            for each in known:
                assert not (isinstance(each, float) and math.isnan(each))
                assert read(name, stats["minValues"][name]) <= each <= read(name, stats["maxValues"][name]), name
    return with_ranges


def read(name: str, shown: Any) -> Any:
    if name == "day":
        return date.fromisoformat(shown)
    return datetime.fromisoformat(shown) if name == "observed" else shown


@pytest.mark.parametrize("partitioned", [False, True])
def test_filters_find_what_they_find_in_memory(tmp_path: Path, partitioned: bool) -> None:
    chance = random.Random(random_seed())
    table, columns = tmp_path / "t", [name for name in KINDS if name not in ("pressure", "whole")]
    before = [name for name in SINGLE if name in columns]
    for batch in range(12):
        values = {"place": chance.choice(["a b", None, "x"])} if partitioned else None
        add(table, batch, part(chance, columns), values)
    check_filters(table, chance, before)
    assert check_ranges(table, before) > 0
    add(table, 12, part(chance, list(KINDS)), {"place": "x"} if partitioned else None)  # the table grows
    check_filters(table, chance, SINGLE)
    assert check_ranges(table, SINGLE) > 0
    DeltaTable(table).create_checkpoint()
    whole = sorted(map(str, DeltaTable(table).to_pyarrow_table().to_pylist()))
    assert compact_delta(table, deltalake) > 0
    assert sorted(map(str, DeltaTable(table).to_pyarrow_table().to_pylist())) == whole
    exact = [name for name in SINGLE if name not in ("gust", "pressure")]  # merged files have statistics inside
    check_filters(table, chance, exact)
    check_ranges(table, SINGLE)
    add(table, 13, part(chance, list(KINDS)), {"place": "x"} if partitioned else None)
    check_filters(table, chance, exact)


def test_a_file_is_skipped_if_its_ranges_exclude_a_filter(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for batch in range(4):
        rows = {"long": [batch * 10, batch * 10 + 5], "station": [f"s{batch}", None], "gust": [0.5, 1.5]}
        add(table, batch, pa.table({name: pa.array(made, KINDS[name][0]) for name, made in rows.items()}))
    for path in table.glob("part-*"):
        if "0000000002" not in path.name:
            path.write_bytes(b"never opened")
    held = DeltaTable(table).to_pyarrow_dataset()
    assert held.to_table(filter=(field("long") >= 20) & (field("long") < 30))["long"].to_pylist() == [20, 25]
    assert held.to_table(filter=field("station") == "s2")["long"].to_pylist() == [20]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, math.nan]), pa.array([math.inf]), pa.array([1], pa.decimal128(30, 2)), pa.array([{"a": 1}]),
        pa.array([1], pa.timestamp("us")), pa.array([-(1 << 62)], pa.timestamp("us", "UTC")),
        pa.array([1 << 30], pa.date32()), pa.array(["x" * TEXT_CHARS_MAX + "\U0010ffff"]), pa.array([1], pa.uint64()),
        pa.array([b"\xff"]).view(pa.string()), pa.array([1], pa.timestamp("ns", "UTC")),
    ],
)  # fmt: skip
def test_a_file_with_a_column_that_has_no_exact_range_has_none_at_all(tmp_path: Path, column: pa.Array) -> None:
    pq.write_table(pa.table({"fine": pa.array(range(len(column))), "odd": column}), tmp_path / "f.parquet")
    kept = pq.read_schema(tmp_path / "f.parquet").field("odd").type
    assert json.loads(statistics(tmp_path / "f.parquet", ["fine", "odd"])) == {"numRecords": len(column)}, kept
