"""Sinks in the hands of a processing node: restored from a backup, refusing a result, and away for a while."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.errors import FeedError, OptionError
from headrace.slices import ProcessingNode, SqliteSink
from support.waiting import until

Make = Callable[..., Queue]


@pytest.fixture
def queue(make_quick: Make) -> Queue:
    queue = make_quick()
    queue.channel("s", "x", slices=4)
    queue.put_many([b"%d" % n for n in range(1, 61)], feed="x", ident=[f"i{n}" for n in range(1, 61)])
    return queue


@pytest.fixture
def path(shared_memory: Path) -> Path:
    path = shared_memory / "out.db"
    execute(path, "CREATE TABLE rows (sequence INTEGER)")
    return path


def execute(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(statement).fetchall()


def sequences(path: Path) -> list[int]:
    return [row[0] for row in execute(path, "SELECT sequence FROM rows ORDER BY 1")]


def row(product: Any) -> tuple[int]:
    return (product.sequence,)


ALL = list(range(1, 61))


def test_a_result_that_is_refused_is_parked_and_holds_up_nothing(queue: Queue, path: Path) -> None:
    execute(path, "CREATE TABLE choosy (sequence INTEGER CHECK (sequence <> 13))")
    with ProcessingNode(queue, "s", row, sink=SqliteSink(path, "choosy"), confirm="10ms", retry="10ms"):
        until(lambda: [parked.sequence for parked in queue.share("s").parked()] == [13])
        until(lambda: execute(path, "SELECT count(*) FROM choosy") == [(59,)], lambda: sequences(path))
    assert "CHECK constraint failed" in queue.share("s").parked()[0].error


def test_a_sink_that_was_restored_from_a_backup_gets_its_results_again(queue: Queue, path: Path) -> None:
    with ProcessingNode(queue, "s", row, sink=SqliteSink(path, "rows"), confirm="10ms", retry="10ms"):
        until(lambda: sequences(path) == ALL, lambda: sequences(path))
    execute(path, "DELETE FROM rows WHERE sequence > 20")
    execute(path, "UPDATE headrace_positions SET position = 21")
    with ProcessingNode(queue, "s", row, sink=SqliteSink(path, "rows"), confirm="10ms", retry="10ms"):
        until(lambda: sequences(path) == ALL, lambda: sequences(path))


def test_a_sink_that_is_away_is_waited_for(queue: Queue, path: Path) -> None:
    sink = SqliteSink(path, "rows", timeout="10ms")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ProcessingNode(queue, "s", row, sink=sink, confirm="10ms", retry="10ms"):
            until(lambda: sink.statistics().claims == 0 and queue.share("s").state().nodes)
            other.execute("COMMIT")
            until(lambda: sequences(path) == ALL, lambda: sequences(path))


def test_results_are_not_published_into_the_stream_itself(make_quick: Make) -> None:
    queue = make_quick("tree")
    queue.channel("s", "wx/**", slices=4)
    with pytest.raises(OptionError, match="'wx/derived' is part of the stream 'wx/\\*\\*'"):
        ProcessingNode(queue, "s", row, publish="wx/derived")
    with pytest.raises(FeedError):
        ProcessingNode(queue, "s", row, publish="a//b")
    queue.put(b"1", feed="wx/a")
    with ProcessingNode(queue, "s", lambda product: bytes(product.payload), publish="derived", confirm="10ms"):
        until(lambda: queue.next == 3)
