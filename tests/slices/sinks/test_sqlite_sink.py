"""SqliteSink: functions of the user's, other processes, full disks, wrong options."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from sink_bench import create, marks, open_sink, results, stored

from headrace.errors import OptionError, SinkError, SinkRefusedError, SinkUnavailableError
from headrace.slices.sinks import Result, SqliteSink


@pytest.fixture
def place(shared_memory: Path) -> Path:
    create("sqlite", shared_memory)
    return shared_memory


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def test_a_function_counts_in_the_transaction_of_the_positions(place: Path) -> None:
    with sqlite3.connect(place / "out.db") as database:
        database.execute("CREATE TABLE counts (station TEXT PRIMARY KEY, count INTEGER NOT NULL)")
    database.close()

    def count(transaction: sqlite3.Connection, results: Sequence[Result]) -> None:
        transaction.executemany(
            "INSERT INTO counts VALUES (?, 1) ON CONFLICT DO UPDATE SET count = count + 1",
            [(result.value,) for result in results],
        )

    sink = SqliteSink(place / "out.db", write=count)
    sink.claim("g", marks((0, 1, 1)))
    for _ in range(3):
        sink.store("g", [Result(0, n, "KDEN" if n % 2 else "KBOS") for n in range(1, 6)], marks((0, 1, 6)))
    sink.close()
    assert rows(place / "out.db", "SELECT * FROM counts ORDER BY 1") == [("KBOS", 2), ("KDEN", 3)]


@pytest.mark.parametrize("how", ["commit", "script", "statement"])
def test_a_function_cannot_end_the_transaction(place: Path, how: str) -> None:
    def write(transaction: sqlite3.Connection, results: Sequence[Result]) -> None:
        transaction.execute("INSERT INTO rows VALUES (1, 1, 1)")
        if how == "commit":
            transaction.commit()
        elif how == "script":
            transaction.executescript("INSERT INTO rows VALUES (2, 2, 2);")
        else:
            transaction.execute("COMMIT")

    sink = SqliteSink(place / "out.db", write=write)
    sink.claim("g", marks((0, 1, 1)))
    with pytest.raises(SinkError, match="begins or ends a transaction"):
        sink.store("g", [Result(0, 1, "x")], marks((0, 1, 2)))
    sink.close()
    assert stored("sqlite", place) == []


def test_an_error_of_the_function_blames_the_product_and_leaves_nothing(place: Path) -> None:
    def write(transaction: sqlite3.Connection, results: Sequence[Result]) -> None:
        for result in results:
            transaction.execute("INSERT INTO rows VALUES (?, ?, 0)", (result.slice, result.sequence))
            if result.value == "bad":
                raise ZeroDivisionError("by a bad value")

    sink = SqliteSink(place / "out.db", write=write)
    sink.claim("g", marks((2, 1, 1)))
    with pytest.raises(SinkRefusedError, match="product 3: by a bad value"):
        sink.store("g", [Result(2, 1, ""), Result(2, 3, "bad"), Result(2, 4, "")], marks((2, 1, 5)))
    sink.close()
    assert stored("sqlite", place) == []


@pytest.mark.parametrize("row", [(1, 2), ("a", 2, 3, 4), {"moon": 1}, 17, {}, {"part": object()}, (1, 2, 1 << 70)])
def test_rows_that_do_not_fit_are_refused(place: Path, row: object) -> None:
    sink = open_sink("sqlite", place)
    sink.claim("g", marks((0, 1, 1)))
    with pytest.raises(SinkRefusedError, match="product 8"):
        sink.store("g", [Result(0, 7, (0, 7, 0)), Result(0, 8, row)], marks((0, 1, 9)))
    sink.store("g", [Result(0, 7, (0, 7, 0)), Result(0, 9, {"sequence": 9})], marks((0, 1, 10)))
    sink.close()
    assert stored("sqlite", place) == [(0, 7, 0), (None, 9, None)]


def test_a_full_disk_stores_nothing_and_the_store_succeeds_later(place: Path) -> None:
    sink = SqliteSink(place / "out.db", "rows")
    sink.claim("g", marks((0, 1, 1)))
    pages = rows(place / "out.db", "PRAGMA page_count")[0][0]
    sink._database.execute(f"PRAGMA max_page_count = {pages}")
    call = (results("sqlite", 0, range(1, 5000)), marks((0, 1, 5000)))
    with pytest.raises(SinkUnavailableError, match=r"full.*free some space"):
        sink.store("g", *call)
    assert stored("sqlite", place) == []
    sink._database.execute("PRAGMA max_page_count = 100000")
    sink.store("g", *call)
    sink.close()
    assert len(stored("sqlite", place)) == 4999


def test_a_database_that_another_process_holds_is_reported(place: Path) -> None:
    sink = open_sink("sqlite", place, timeout="50ms")
    other = sqlite3.connect(place / "out.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(SinkUnavailableError, match="another process holds a transaction"):
        sink.claim("g", marks((0, 1, 1)))
    other.execute("ROLLBACK")
    other.close()
    assert sink.claim("g", marks((0, 1, 1))).tolist() == [1]
    sink.close()


def test_a_sink_is_not_carried_across_a_fork(place: Path) -> None:
    code = """
import os, sys
from sink_bench import marks, open_sink
from pathlib import Path
sink = open_sink("sqlite", Path(sys.argv[1]))
if (child := os.fork()) == 0:
    try:
        sink.claim("g", marks((0, 1, 1)))
    except Exception as error:
        print(error, flush=True)
    sink.close()
    os._exit(0)
os.waitpid(child, 0)
print(sink.claim("g", marks((0, 1, 1))).tolist())
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code, str(place)], capture_output=True, text=True, env=environment)
    assert "opened before a fork" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "[1]"


def test_wrong_options_are_named(place: Path, tmp_path: Path) -> None:
    path = place / "out.db"
    with pytest.raises(OptionError, match="either a table or a write function"):
        SqliteSink(path)
    with pytest.raises(OptionError, match="either a table or a write function"):
        SqliteSink(path, "rows", write=lambda transaction, results: None)
    with pytest.raises(OptionError, match="has no table 'moons'; create it first"):
        SqliteSink(path, "moons")
    with pytest.raises(OptionError, match="not the path of a database"):
        SqliteSink(":memory:", "rows")
    with pytest.raises(OptionError, match="timeout"):
        SqliteSink(path, "rows", timeout="soon")
    with pytest.raises(SinkUnavailableError, match="create the folder"):
        SqliteSink(tmp_path / "nowhere" / "out.db", "rows")
    (tmp_path / "text").write_text("this is not a database at all, " * 40)
    with pytest.raises(SinkError, match="not a database"):
        SqliteSink(tmp_path / "text", "rows")
    with sqlite3.connect(tmp_path / "foreign.db") as database:
        database.execute("CREATE TABLE headrace_positions (a)")
    database.close()
    with pytest.raises(SinkError, match="has the columns a"):
        SqliteSink(tmp_path / "foreign.db", write=lambda transaction, results: None)
