"""ParquetSink: the folder that readers see, the log of commits, full disks, wrong options."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sink_bench import SCHEMA, marks, open_sink, results, stored

from headrace.errors import OptionError, SinkError, SinkRefusedError, SinkUnavailableError
from headrace.log.locks import locked
from headrace.slices.sinks import ParquetSink, Result, commit_log, committed_files


def home(place: Path) -> Path:
    return place / ".headrace" / "out" / "sink"


def test_the_folder_has_committed_files_and_nothing_else(shared_memory: Path) -> None:
    sink = open_sink("parquet", shared_memory)
    sink.claim("g", marks((0, 1, 1)))
    for number in range(1, 4):
        sink.store("g", results("parquet", 0, [number]), marks((0, 1, number + 1)))
    assert len(list((shared_memory / "out").rglob("*"))) == 3
    assert list((home(shared_memory) / "staged").iterdir()) == []
    assert pq.read_table(shared_memory / "out").column("sequence").to_pylist() == [1, 2, 3]


def test_rows_may_come_as_tables_and_keep_their_order(shared_memory: Path) -> None:
    sink = open_sink("parquet", shared_memory)
    sink.claim("g", marks((0, 1, 1)))
    batch = pa.RecordBatch.from_pydict({"part": [0, 1], "sequence": [2, 2], "slice": [0, 0]})
    one, three = results("parquet", 0, [1, 3])
    sink.store("g", [one, Result(0, 2, batch), three], marks((0, 1, 4)))
    assert stored("parquet", shared_memory) == [(0, 1, 0), (0, 2, 0), (0, 2, 1), (0, 3, 0)]


@pytest.mark.parametrize(
    "value",
    [17, "text", {"moon": 1}, {"slice": "a"}, {"slice": 1 << 70}, pa.table({"slice": [1]}),
     pa.table({"slice": ["a"], "sequence": [1], "part": [1]})],
)  # fmt: skip
def test_rows_that_do_not_fit_are_refused(shared_memory: Path, value: Any) -> None:
    sink = open_sink("parquet", shared_memory)
    sink.claim("g", marks((0, 1, 1)))
    with pytest.raises(SinkRefusedError, match="product 8"):
        sink.store("g", [*results("parquet", 0, [7]), Result(0, 8, value)], marks((0, 1, 9)))
    sink.store("g", results("parquet", 0, [7]), marks((0, 1, 9)))
    assert stored("parquet", shared_memory) == [(0, 7, 0)]


def test_a_null_in_a_required_column_is_refused(shared_memory: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64())])
    sink = ParquetSink(shared_memory / "strict", schema)
    sink.claim("g", marks((0, 1, 1)))
    with pytest.raises(SinkRefusedError, match="column 'a' is null"):
        sink.store("g", [Result(0, 1, {"a": 1}), Result(0, 2, {"b": 1})], marks((0, 1, 3)))


def test_a_committed_file_whose_writer_died_is_found_by_readers(shared_memory: Path) -> None:
    sink = open_sink("parquet", shared_memory)
    sink.claim("g", marks((0, 1, 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log.CommitLog, "_place", lambda self: None)
        sink.store("g", results("parquet", 0, [1]), marks((0, 1, 2)))
    assert list((shared_memory / "out").iterdir()) == []
    assert [path.name[:15] for path in committed_files(shared_memory / "out")] == ["part-0000000002"]
    assert stored("parquet", shared_memory) == [(0, 1, 0)]


def test_a_file_that_readers_have_merged_or_deleted_does_not_come_back(shared_memory: Path) -> None:
    sink = open_sink("parquet", shared_memory)
    sink.claim("g", marks((0, 1, 1)))
    sink.store("g", results("parquet", 0, [1]), marks((0, 1, 2)))
    for path in committed_files(shared_memory / "out"):
        path.unlink()
    again = open_sink("parquet", shared_memory)
    assert again.claim("g", marks((0, 2, 1))).tolist() == [2]
    again.store("g", results("parquet", 0, [1, 2]), marks((0, 2, 3)))
    assert stored("parquet", shared_memory) == [(0, 2, 0)]


def test_a_log_that_has_grown_is_replaced_and_others_notice(
    shared_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "LOG_BYTES", 1000)
    one, other = open_sink("parquet", shared_memory), open_sink("parquet", shared_memory)
    one.claim("g", marks((0, 1, 1)))
    other.claim("h", marks((0, 1, 1)))
    for number in range(1, 40):
        one.store("g", results("parquet", 0, [number]), marks((0, 1, number + 1)))
        other.store("h", results("parquet", 0, [number]), marks((0, 1, number + 1)))
    assert (home(shared_memory) / "commits").stat().st_size < 1500
    assert open_sink("parquet", shared_memory).claim("g", marks((0, 2, 1))).tolist() == [40]
    assert len(stored("parquet", shared_memory)) == 78


@pytest.mark.parametrize("tail", [b'12345678 {"num', b"00000000 {}\n", b"\0" * 50])
def test_a_line_that_was_cut_short_counts_for_nothing(shared_memory: Path, tail: bytes) -> None:
    sink = open_sink("parquet", shared_memory)
    sink.claim("g", marks((0, 1, 1)))
    with (home(shared_memory) / "commits").open("ab") as log:
        log.write(tail)
    sink.store("g", results("parquet", 0, [1]), marks((0, 1, 2)))
    assert open_sink("parquet", shared_memory).claim("g", marks((0, 2, 1))).tolist() == [2]


def test_a_damaged_or_missing_log_is_an_error(shared_memory: Path) -> None:
    sink = open_sink("parquet", shared_memory)
    sink.claim("g", marks((0, 1, 1)))
    sink.claim("g", marks((0, 2, 1)))
    log = home(shared_memory) / "commits"
    good = log.read_bytes()
    log.write_bytes(good.replace(b"[[0,1", b"[[0,7", 1))
    with pytest.raises(SinkError, match="is damaged at byte 0"):
        open_sink("parquet", shared_memory)
    log.unlink()
    with pytest.raises(SinkError, match="is gone"):
        sink.claim("g", marks((0, 3, 1)))


def test_a_full_disk_stores_nothing_and_the_store_succeeds_later(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=1M tmpfs {mount} 2>/dev/null") != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    try:
        sink = ParquetSink(mount / "out", pa.schema([("noise", pa.binary())]))
        sink.claim("g", marks((0, 1, 1)))
        sink.store("g", [Result(0, 1, {"noise": b"first"})], marks((0, 1, 2)))
        filler = mount / "filler"
        filler.write_bytes(bytes(900_000))
        call = ([Result(0, 2, {"noise": os.urandom(400_000)})], marks((0, 1, 3)))
        for _ in range(2):
            with pytest.raises(SinkUnavailableError, match=r"No space left|free some space"):
                sink.store("g", *call)
        assert list((mount / ".headrace/out/sink/staged").iterdir()) == []
        assert len(committed_files(mount / "out")) == 1
        filler.unlink()
        sink.store("g", *call)
        assert [pq.read_metadata(path).num_rows for path in committed_files(mount / "out")] == [1, 1]
    finally:
        assert os.system(f"umount --lazy {mount}") == 0


def test_an_error_after_the_commit_loses_nothing(shared_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = open_sink("parquet", shared_memory)
    sink.claim("g", marks((0, 1, 1)))
    call = (results("parquet", 0, [1, 2]), marks((0, 1, 3)))

    def refuse(source: Any, target: Any) -> None:
        raise OSError(13, "Permission denied", str(target))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log.os, "replace", refuse)
        with pytest.raises(SinkUnavailableError, match="Permission denied"):
            sink.store("g", *call)
    sink.store("g", *call)
    assert stored("parquet", shared_memory) == [(0, 1, 0), (0, 2, 0)]


def test_a_folder_that_another_process_holds_is_reported(shared_memory: Path) -> None:
    sink = open_sink("parquet", shared_memory, timeout="20ms")
    with locked(home(shared_memory) / "lock"), pytest.raises(SinkUnavailableError, match="locked by process"):
        sink.claim("g", marks((0, 1, 1)))


def test_wrong_options_are_named(shared_memory: Path) -> None:
    with pytest.raises(OptionError, match="not a schema with columns"):
        ParquetSink(shared_memory / "out", pa.schema([]))
    with pytest.raises(OptionError, match="folder is empty"):
        ParquetSink("", SCHEMA)
    (shared_memory / "file").write_text("in the way")
    with pytest.raises(SinkUnavailableError, match="move it away"):
        ParquetSink(shared_memory / "file", SCHEMA)
    (shared_memory / "old").mkdir()
    pq.write_table(pa.table({"a": [1]}), shared_memory / "old" / "part-1.parquet")
    with pytest.raises(OptionError, match="has the columns a int64, and not slice int64"):
        ParquetSink(shared_memory / "old", SCHEMA)
    with pytest.raises(OptionError, match="is not a folder"):
        committed_files(shared_memory / "nowhere")
    assert committed_files(shared_memory / "old") == [shared_memory / "old" / "part-1.parquet"]
