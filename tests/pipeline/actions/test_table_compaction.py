"""Compaction: fewer files, the same rows, at every moment and after every kill. Spark does not run here."""

import ctypes
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from acting import Killed, killed
from deltalake import DeltaTable
from pyarrow.dataset import dataset, field
from test_action_kills import judge_table, kill

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions import DeadLetters, table_compaction, table_delta_compaction, table_replaced
from headrace.pipeline.actions.table import TablePerformer
from headrace.pipeline.actions.table_compaction import FILES_MIN, compact_table
from headrace.pipeline.actions.table_replaced import remove_replaced
from headrace.pipeline.rules import TableAction
from support.seeds import random_seed

KINDS = pytest.mark.parametrize("scenario", ["parquet compacted", "delta compacted"])
ROWS = 10  # of each file


def small_files(folder: Path, count: int, first: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        rows = pa.table({"sequence": pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())})
        pq.write_table(rows, folder / f"part-life-{number:010}-00000.parquet")


def sequences(table: Path) -> list[int]:
    """By a reader that ignores no names."""
    held: list[int] = dataset(table, format="parquet", ignore_prefixes=[]).to_table()["sequence"].to_pylist()
    return sorted(held)


@pytest.mark.parametrize("parts", [[""], ["day=1", "day=2/hour=%3A"]])
def test_small_files_of_each_folder_become_one(tmp_path: Path, parts: list[str]) -> None:
    table = tmp_path / "t"
    for place, part in enumerate(parts):
        small_files(table / part, 20, first=place * 20)
    assert compact_table(table) == 19 * len(parts)
    assert sequences(table) == list(range(len(parts) * 20 * ROWS))
    assert len([path for path in table.rglob("*") if path.is_file()]) == len(parts)
    assert compact_table(table) == 0, "one file is left as it is"


def test_other_files_and_large_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "t"
    small_files(table, 5)
    pq.write_table(pa.table({"sequence": range(50, 5000)}), table / "large.parquet")
    (table / "_notes.txt").write_text("mine")
    table.chmod(0o750)
    large = (table / "large.parquet").stat()
    monkeypatch.setattr(table_compaction, "SMALL_BYTES", large.st_size)
    assert compact_table(table) == 4
    assert (table / "large.parquet").stat().st_ino == large.st_ino
    assert (table / "_notes.txt").read_text() == "mine"
    assert table.stat().st_mode & 0o777 == 0o750
    assert sorted(pq.read_table(table)["sequence"].to_pylist()) == list(range(5000))


def test_files_of_an_unfinished_batch_are_not_merged(tmp_path: Path) -> None:
    table = tmp_path / "t"
    small_files(table, 6)
    (tmp_path / ".headrace" / "t" / "staging-r-table-0" / "life-0000000005").mkdir(parents=True)
    assert compact_table(table) == 4
    assert (table / "part-life-0000000005-00000.parquet").exists()
    assert sequences(table) == list(range(60))


def test_files_whose_columns_differ_in_order_nullability_and_number_are_merged(tmp_path: Path) -> None:
    """As those of a table that has grown. Spark marks a column that has no null in a batch."""
    table = tmp_path / "t"
    table.mkdir()
    required = pa.schema(
        [pa.field("sequence", pa.int64(), nullable=False), pa.field("gust", pa.float64(), nullable=False)]
    )
    parts = [
        pa.table({"sequence": [0], "gust": [0.5]}, required), pa.table({"gust": [None], "sequence": [1]}),
        pa.table({"sequence": [2], "more": ["x"], "gust": [float("nan")]}), pa.table({"sequence": [3], "gust": [2.5]}),
    ]  # fmt: skip
    parts[1] = parts[1].cast(pa.schema({"gust": pa.float64(), "sequence": pa.int64()}))
    for number, part in enumerate(parts):
        pq.write_table(part, table / f"part-{number}.parquet")
    assert compact_table(table) == 3
    (made,) = table.iterdir()
    rows = pq.read_table(made).to_pydict()
    assert rows["sequence"] == [0, 1, 2, 3]
    assert rows["more"] == [None, None, "x", None]
    assert str(rows["gust"]) == "[0.5, None, nan, 2.5]"


def test_files_whose_columns_differ_in_type_are_named_and_nothing_changes(tmp_path: Path) -> None:
    table = tmp_path / "t"
    small_files(table, 6)
    pq.write_table(pa.table({"sequence": ["x"]}), table / "part-text.parquet")
    with pytest.raises(PipelineError, match=r"t cannot be compacted: .*its files differ"):
        compact_table(table)
    assert len(list(table.iterdir())) == 7


@pytest.mark.parametrize("step", ["_merge", "_copy_owner", "exchange", "after"])
def test_a_kill_in_a_compaction_leaves_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    table = tmp_path / "t"
    small_files(table, 6)
    real = table_compaction.exchange

    def exchange_and_die(one: Path, other: Path) -> None:
        real(one, other)
        raise Killed

    name = "exchange" if step == "after" else step
    monkeypatch.setattr(table_compaction, name, exchange_and_die if step == "after" else killed)
    with pytest.raises(Killed):
        compact_table(table)
    monkeypatch.undo()
    assert sequences(table) == list(range(60))
    assert compact_table(table) == (0 if step == "after" else 5)
    assert sequences(table) == list(range(60))
    pass_time(monkeypatch)
    remove_replaced(table)
    assert not list(tmp_path.rglob("compaction")), "the remains of the kill are gone too"


def test_a_folder_that_another_program_changes_meanwhile_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    small_files(table, 6)
    real = table_compaction._copy_owner

    def intrude(source: Path, target: Path) -> None:
        real(source, target)
        small_files(table, 1, first=6)

    monkeypatch.setattr(table_compaction, "_copy_owner", intrude)
    assert compact_table(table) == 0
    assert sequences(table) == list(range(70))


def test_a_file_system_that_cannot_exchange_folders_is_named_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    small_files(table, 6)
    monkeypatch.setattr(table_replaced, "_RENAME_EXCHANGE", 1 << 20)  # an invalid flag, as to NFS
    with pytest.raises(TargetError, match="t was not compacted: the file system cannot exchange folders"):
        compact_table(table)
    assert sequences(table) == list(range(60))
    assert not list(tmp_path.rglob("part-merged-*"))


@pytest.mark.parametrize("parts", [[""], ["day=1", "day=2"]])
def test_a_reader_that_opened_a_folder_before_its_exchange_and_lists_it_afterwards_finds_every_file(
    tmp_path: Path, parts: list[str]
) -> None:
    """Then the files are gone by name, so it repeats its read; an empty listing would be an empty table, without an error."""
    table = tmp_path / "t"
    opened = {}
    for part in parts:
        small_files(table / part, 6)
        opened[part] = os.open(table / part, os.O_RDONLY | os.O_DIRECTORY)
    names = sorted(os.listdir(table / parts[0]))
    assert compact_table(table) == 5 * len(parts)
    for part, descriptor in opened.items():
        assert sorted(os.listdir(descriptor)) == names
        with pytest.raises(FileNotFoundError):
            pq.read_table(table / part / names[0])
        os.close(descriptor)


def test_the_kernel_reports_who_lists_a_folder_and_not_who_reads_its_files(tmp_path: Path) -> None:
    """Arrow and Hadoop leave out listed files that are gone when they look at them, without an error."""
    libc = ctypes.CDLL(None, use_errno=True)
    watched = {}
    watch = libc.inotify_init1(os.O_NONBLOCK)
    for name in ("a", "b"):
        small_files(tmp_path / name, 2)
        watched[libc.inotify_add_watch(watch, os.fsencode(tmp_path / name), table_replaced._IN_OPEN)] = tmp_path / name
    for path in [*tmp_path.rglob("*.parquet")]:
        path.read_bytes()
    os.read(watch, 1 << 16)  # of the search
    for path in (
        tmp_path / "a" / "part-life-0000000000-00000.parquet",
        tmp_path / "b" / "part-life-0000000001-00000.parquet",
    ):
        path.read_bytes()
    assert table_replaced._opened(os.read(watch, 1 << 16), watched) == set()
    sequences(tmp_path / "b")
    assert table_replaced._opened(os.read(watch, 1 << 16), watched) == {tmp_path / "b"}
    assert table_replaced._opened(table_replaced._EVENT.pack(-1, 0x4000, 0, 0), watched) == set(watched.values())
    os.close(watch)


def test_a_folder_that_is_listed_all_the_time_is_left_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "t"
    small_files(table, 6)
    monkeypatch.setattr(table_compaction, "unlisted", lambda folders: set())
    assert compact_table(table) == 0
    assert "t is listed by readers all the time, and is not compacted now" in caplog.text
    assert sequences(table) == list(range(60))
    assert len(list(tmp_path.rglob("*.parquet"))) == 6


@pytest.mark.parametrize("failing", ["inotify_init1", "inotify_add_watch"])
def test_without_reports_of_the_kernel_the_exchange_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    monkeypatch.setattr(library, failing, lambda *_: -1)
    monkeypatch.setattr(table_replaced.ctypes, "CDLL", lambda *_, **__: library)
    small_files(tmp_path / "t", 6)
    assert compact_table(tmp_path / "t") == 5


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float = table_replaced.KEPT_S) -> None:
    """As if so long had passed."""
    now = time.time_ns() / 1e9
    monkeypatch.setattr(table_replaced.time, "time", lambda: now + seconds)


def test_replaced_folders_are_removed_after_a_while_by_the_next_batch_or_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    performer = TablePerformer(TableAction(path=str(table)), "table-0", DeadLetters(tmp_path / "dead"))
    small_files(table, 6)
    compact_table(table)
    for passed_s, kept in ((-3600, 6), (0, 6), (table_replaced.KEPT_S - 60, 6), (table_replaced.KEPT_S + 60, 0)):
        pass_time(monkeypatch, passed_s)
        performer.tidy()
        assert len(list((tmp_path / ".headrace" / "t").glob("compaction/*/folder/*"))) == kept, passed_s
    assert sequences(table) == list(range(60))


def test_compaction_waits_rather_than_keep_more_replaced_files_than_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    small_files(table, 12)
    size = max(path.stat().st_size for path in table.iterdir())
    monkeypatch.setattr(table_compaction, "KEPT_BYTES", int(5.5 * size))
    assert compact_table(table) == 4, "the five oldest"
    assert compact_table(table) == 0, "their old files are still kept"
    pass_time(monkeypatch)
    assert compact_table(table) == 4, "also if all small files together are too many"
    assert sequences(table) == list(range(120))


def test_a_file_that_another_program_adds_directly_before_the_exchange_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    small_files(table, 6)
    real = table_compaction.exchange

    def intrude(copy: Path, folder: Path) -> None:
        small_files(table, 1, first=6)
        real(copy, folder)

    monkeypatch.setattr(table_compaction, "exchange", intrude)
    assert compact_table(table) == 5
    assert sequences(table) == list(range(70))


def test_a_reader_beside_compaction_never_sees_a_row_twice_or_misses_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose files are gone gets an error, and repeats."""
    chance = random.Random(random_seed())
    monkeypatch.setattr(table_replaced, "_PATIENCE_S", 60.0)
    table = tmp_path / "t"
    small_files(table, FILES_MIN)
    stop, seen = threading.Event(), [0, 0]
    wrong: list[Any] = []

    def read() -> None:
        while not stop.is_set():
            try:
                held = sequences(table)
            except FileNotFoundError:
                seen[1] += 1
                continue
            stop.wait(chance.random() * 0.5)
            seen[0] += 1
            if held != list(range(len(held))) or len(held) < FILES_MIN * ROWS:
                wrong.append(held)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for turn in range(1, 12):
            small_files_in_place(tmp_path, table, turn * FILES_MIN)
            assert compact_table(table) >= FILES_MIN
    finally:
        stop.set()
        reader.join()
    print(f"{seen[0]} reads, {seen[1]} repeated")
    assert not wrong
    assert seen[0]


def small_files_in_place(root: Path, table: Path, first: int) -> None:
    """As a stage does: complete files are renamed, in order."""
    small_files(root / "stage", FILES_MIN, first)
    for path in sorted((root / "stage").iterdir()):
        os.replace(path, table / path.name)


@KINDS
def test_a_writer_that_compacts_and_is_killed_many_times_leaves_every_row_once(tmp_path: Path, scenario: str) -> None:
    kill(scenario, tmp_path / "killed", "random", random_seed(), batches=6)
    judge_table(scenario, tmp_path / "killed" / "table", 6)


@KINDS
@pytest.mark.parametrize("stride", [24, pytest.param(1, marks=pytest.mark.soak)])
def test_a_writer_that_compacts_and_is_killed_at_any_step_leaves_every_row_once(
    tmp_path: Path, scenario: str, stride: int
) -> None:
    """At each n-th from a random one on; in `make soak` at each."""
    kill(scenario, tmp_path / "killed", "everywhere", stride, random.SystemRandom().randint(1, stride), batches=4)
    for folder in (tmp_path / "killed").iterdir():
        judge_table(scenario, folder / "table", 4)


def delta_of(tmp_path: Path, values: list[str | None]) -> Path:
    from deltalake import write_deltalake

    for number in range(3):
        rows = pa.table({
            "sequence": pa.array(range(number * len(values), (number + 1) * len(values))), "station": values,
        })  # fmt: skip
        write_deltalake(tmp_path / "t", rows, partition_by=["station"], mode="append")
    return tmp_path / "t"


def test_a_delta_table_is_compacted_in_one_transaction_that_changes_no_rows(tmp_path: Path) -> None:
    import deltalake

    values = ["a b", "é", "x/y", "%2F", None, "a=b"]
    table = delta_of(tmp_path, values)
    before = DeltaTable(table).to_pyarrow_table().sort_by("sequence").to_pylist()
    assert table_delta_compaction.compact_delta(table, deltalake) == 12
    made = DeltaTable(table)
    assert made.to_pyarrow_table().sort_by("sequence").to_pylist() == before
    assert len(made.file_uris()) == 6
    assert made.version() == 3
    commit = [*map(pa_json, (table / "_delta_log" / f"{3:020}.json").read_text().splitlines())]
    assert {entry[kind]["dataChange"] for entry in commit for kind in ("add", "remove") if kind in entry} == {False}
    assert DeltaTable(table, version=2).to_pyarrow_table().num_rows == len(before), "older versions are readable"


def pa_json(text: str) -> Any:
    import msgspec

    return msgspec.json.decode(text)


def test_a_delta_compaction_gives_way_to_another_commit_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import deltalake

    table = delta_of(tmp_path, ["a"])
    real = table_delta_compaction._publish

    def late(*args: Any) -> None:
        delta_of(tmp_path, ["a"])
        real(*args)

    monkeypatch.setattr(table_delta_compaction, "_publish", late)
    assert table_delta_compaction.compact_delta(table, deltalake) == 0
    monkeypatch.undo()
    assert len(DeltaTable(table).file_uris()) == 6
    assert table_delta_compaction.compact_delta(table, deltalake) == 5
    assert DeltaTable(table).to_pyarrow_table().num_rows == 6
    assert len(list(table.rglob("*.parquet"))) == 7, "six that older versions need, and one"


def test_a_filter_on_a_compacted_delta_table_finds_the_rows_that_it_finds_in_memory(tmp_path: Path) -> None:
    """Also beside NaN and null; and beside a file that was added since, without ranges as tables add them."""
    import deltalake

    values = [[0.0, float("nan")], [1.5, None], [2.0, 3.0]]
    for part in values:
        deltalake.write_deltalake(tmp_path / "t", pa.table({"gust": pa.array(part, pa.float64())}), mode="append")
    assert table_delta_compaction.compact_delta(tmp_path / "t", deltalake) == 2
    opened = DeltaTable(tmp_path / "t")
    whole, held = opened.to_pyarrow_table(), opened.to_pyarrow_dataset()
    for value in (0.0, 1.5, 2.5, 3.0):
        for chosen in (field("gust") == value, field("gust") <= value, field("gust") >= value, field("gust").is_null()):
            assert held.to_table(filter=chosen).num_rows == whole.filter(chosen).num_rows, str(chosen)
