"""`keep`: rows that are old enough are removed, younger ones never, beside readers and kills. Spark does not run here."""

import os
import time
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pytest
from acting import Killed, killed
from deltalake import DeltaTable
from test_table_compaction import sequences, small_files

from headrace.errors import PipelineError
from headrace.pipeline.actions import table_delta_keep
from headrace.pipeline.actions.table_care import TableCare
from headrace.pipeline.actions.table_compaction import compact_table
from headrace.pipeline.actions.table_delta_compaction import compact_delta
from headrace.pipeline.actions.table_delta_keep import expire_delta
from headrace.pipeline.actions.table_keep import Removed, expire_table
from headrace.pipeline.rules import TableAction

DAY_S = 86400.0
LONG_S = 30 * DAY_S


def aged(table: Path, days: dict[int, float]) -> None:
    """Let the file with this number be so many days old."""
    for number, age in days.items():
        for path in table.rglob(f"part-life-{number:010}-*.parquet"):
            os.utime(path, (time.time() - age * DAY_S,) * 2)


def test_files_that_are_older_are_removed_and_younger_ones_stay(tmp_path: Path) -> None:
    table = tmp_path / "t"
    small_files(table, 4)
    aged(table, {0: 31, 1: 30.01, 2: 29.99, 3: 0})
    assert expire_table(table, LONG_S) == Removed(rows=20, files=2)
    assert sequences(table) == list(range(20, 40))
    assert expire_table(table, LONG_S) == Removed()


def test_partitions_without_files_are_removed_and_the_table_itself_stays(tmp_path: Path) -> None:
    table = tmp_path / "t"
    small_files(table / "day=1" / "hour=1", 1)
    small_files(table / "day=1" / "hour=2", 1, first=1)
    small_files(table / "day=2" / "hour=1", 1, first=2)
    (table / "day=2" / "mine.txt").write_text("mine")
    aged(table, {0: 31, 2: 31})
    assert expire_table(table, LONG_S).files == 2
    assert sorted(str(path.relative_to(table)) for path in table.rglob("*")) == [
        "day=1", "day=1/hour=2", "day=1/hour=2/part-life-0000000001-00000.parquet", "day=2", "day=2/mine.txt",
    ]  # fmt: skip
    aged(table, {1: 31})
    assert expire_table(table, LONG_S).files == 1
    assert table.is_dir()


def test_files_of_an_unfinished_batch_and_files_that_no_reader_sees_stay(tmp_path: Path) -> None:
    table = tmp_path / "t"
    small_files(table, 3)
    small_files(table / "_other", 1, first=7)
    (tmp_path / ".headrace" / "t" / "staging-r-table-0" / "life-0000000001").mkdir(parents=True)
    aged(table, dict.fromkeys((0, 1, 2, 7), 31))
    assert expire_table(table, LONG_S).files == 2
    assert [path.name for path in table.rglob("*.parquet") if "_other" not in str(path)] == [
        "part-life-0000000001-00000.parquet"
    ]
    assert (table / "_other" / "part-life-0000000007-00000.parquet").exists()


def test_a_kill_between_two_files_leaves_the_rest_to_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    small_files(table, 6)
    aged(table, dict.fromkeys(range(4), 31))
    real, calls = Path.unlink, []

    def some(path: Path, *args: Any, **options: Any) -> None:
        calls.append(path)
        if len(calls) == 3:
            raise Killed
        real(path, *args, **options)

    monkeypatch.setattr(Path, "unlink", some)
    with pytest.raises(Killed):
        expire_table(table, LONG_S)
    monkeypatch.undo()
    assert len(sequences(table)) == 40
    assert expire_table(table, LONG_S).files == 2
    assert sequences(table) == list(range(40, 60))


def test_merged_rows_are_removed_when_the_newest_of_them_is_old_and_little_later(tmp_path: Path) -> None:
    table = tmp_path / "t"
    small_files(table, 40)
    aged(table, {number: 40.1 - number / 2 for number in range(40)})
    assert compact_table(table, LONG_S / 10) > 20
    removed = expire_table(table, LONG_S)
    held = sequences(table)
    assert held == list(range(removed.rows, 400)), "the oldest are gone"
    assert not set(range(210, 400)) - set(held), "rows that are younger than 30 days are there"
    assert removed.rows >= 150, "rows that are older stay for a tenth longer at most: three days, six files"


def test_care_removes_old_rows_then_merges_and_says_how_many(tmp_path: Path) -> None:
    table = tmp_path / "t"
    small_files(table, 10)
    aged(table, {0: 31, 1: 31})
    care = TableCare(TableAction(path=str(table), keep_s=LONG_S, compact_s=3600.0))
    assert care.after_batch() == (20, 2, 7)
    assert care.after_batch() == (0, 0, 0), "not due"
    assert sequences(table) == list(range(20, 100))


# --- Delta ----------------------------------------------------------------------------------------


def delta(table: Path, days: list[float], values: list[str | None] | None = None) -> list[dict[str, Any]]:
    """A table with one transaction for each of these ages, in days."""
    for number, age in enumerate(days):
        part = values or ["a"]
        rows = pa.table({"sequence": [number * 10 + place for place in range(len(part))], "station": part})
        deltalake.write_deltalake(table, rows, partition_by=["station"], mode="append")
        commit = table / "_delta_log" / f"{number:020}.json"
        entries = [msgspec.json.decode(line) for line in commit.read_text().splitlines()]
        for entry in entries:
            if "add" in entry:
                entry["add"]["modificationTime"] = int((time.time() - age * DAY_S) * 1000)
        commit.write_bytes(b"\n".join(map(msgspec.json.encode, entries)))
    return rows_of(table)


def rows_of(table: Path, version: int | None = None) -> list[dict[str, Any]]:
    held: list[dict[str, Any]] = DeltaTable(table, version=version).to_pyarrow_table().sort_by("sequence").to_pylist()
    return held


VALUES = ["a b", "é", "x/y", "%2F", None, "a=b"]


def test_old_files_of_a_delta_table_leave_it_in_one_transaction(tmp_path: Path) -> None:
    before = delta(tmp_path / "t", [31, 30.01, 29.99, 0], VALUES)
    assert expire_delta(tmp_path / "t", deltalake, LONG_S) == Removed(rows=12, files=12)
    assert rows_of(tmp_path / "t") == before[12:]
    assert DeltaTable(tmp_path / "t").version() == 4
    assert rows_of(tmp_path / "t", version=3) == before, "older versions are readable, and so are their files"
    assert expire_delta(tmp_path / "t", deltalake, LONG_S) == Removed()
    assert DeltaTable(tmp_path / "t").version() == 4, "nothing is committed if nothing is old"
    rows = pa.table({"sequence": [99], "station": ["a b"]})
    deltalake.write_deltalake(tmp_path / "t", rows, mode="append")
    DeltaTable(tmp_path / "t").create_checkpoint()
    assert rows_of(tmp_path / "t") == [*before[12:], {"sequence": 99, "station": "a b"}], "by the library, too"


@pytest.mark.parametrize("step", ["private_copy", "write_removal", "publish_commit"])
def test_a_kill_while_old_rows_leave_a_delta_table_removes_all_of_them_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = delta(tmp_path / "t", [31, 0])
    monkeypatch.setattr(table_delta_keep, step, killed)
    with pytest.raises(Killed):
        expire_delta(tmp_path / "t", deltalake, LONG_S)
    monkeypatch.undo()
    assert rows_of(tmp_path / "t") == before
    assert expire_delta(tmp_path / "t", deltalake, LONG_S).files == 1
    assert rows_of(tmp_path / "t") == before[1:]


def test_keep_gives_way_to_another_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delta(tmp_path / "t", [31])
    real = table_delta_keep.publish_commit

    def late(*args: Any) -> None:
        deltalake.write_deltalake(tmp_path / "t", pa.table({"sequence": [7], "station": ["a"]}), mode="append")
        real(*args)

    monkeypatch.setattr(table_delta_keep, "publish_commit", late)
    assert expire_delta(tmp_path / "t", deltalake, LONG_S) == Removed()
    assert len(rows_of(tmp_path / "t")) == 2


def test_merged_rows_of_a_delta_table_keep_their_age(tmp_path: Path) -> None:
    before = delta(tmp_path / "t", [float(40 - number) for number in range(12)], ["a", "é/%"])
    assert compact_delta(tmp_path / "t", deltalake, LONG_S / 10) >= 12
    assert rows_of(tmp_path / "t") == before
    removed = expire_delta(tmp_path / "t", deltalake, LONG_S)
    assert rows_of(tmp_path / "t") == before[removed.rows :]
    assert 14 <= removed.rows <= 22, "ten days and a tenth of thirty"


def test_an_append_only_delta_table_is_refused(tmp_path: Path) -> None:
    delta(tmp_path / "t", [31])
    DeltaTable(tmp_path / "t").alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(PipelineError, match="append-only"):
        expire_delta(tmp_path / "t", deltalake, LONG_S)


def test_large_files_of_a_delta_table_are_not_rewritten_for_each_small_one(tmp_path: Path) -> None:
    """Replaced files stay for a week."""
    table = tmp_path / "t"
    big = pa.table({"sequence": range(100_000)})
    deltalake.write_deltalake(table, big, mode="append")
    for number in range(4):
        deltalake.write_deltalake(table, pa.table({"sequence": [100_000 + number]}), mode="append")
    assert compact_delta(table, deltalake) == 3
    assert len(DeltaTable(table).file_uris()) == 2
    assert len(DeltaTable(table).to_pyarrow_table()) == 100_004
