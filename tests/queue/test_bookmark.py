"""Bookmarks: results and the position are stored together, belong to one queue, and to one process at a time."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bookmark_kills import PRODUCTS

from headrace import FileBookmark, Queue, ReleaseBuffer, SqliteBookmark
from headrace.errors import BookmarkError, OptionError
from headrace.queue.bookmark_file import counted_bytes
from support.seeds import random_seed

Make = Callable[..., Queue]
KINDS = ("file", "sqlite")


class Keeper:
    """A program that stores the payloads of products, with either kind of bookmark."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.results = kind, folder / f"results.{kind}"
        if kind == "sqlite":
            with sqlite3.connect(self.results) as database:
                database.execute("CREATE TABLE results (text TEXT)")

    def open(self) -> Any:
        return FileBookmark(self.results) if self.kind == "file" else SqliteBookmark(self.results)

    def write(self, target: Any, batch: Any) -> None:
        for product in batch:
            text = bytes(product.payload).decode()
            if self.kind == "file":
                target.write(f"{text}\n".encode())
            else:
                target.execute("INSERT INTO results VALUES (?)", [text])

    def run(self, queue: Queue, batches: int | None = None, **terms: Any) -> None:
        """Store batches of two, up to a number of them."""
        with self.open() as bookmark:
            for number, batch in enumerate(bookmark.follow(queue, limit=2, timeout=0, **terms), 1):
                with bookmark.store(batch) as target:
                    self.write(target, batch)
                if number == batches:
                    return

    @property
    def stored(self) -> list[str]:
        return stored_in(self.kind, self.results)


def stored_in(kind: str, results: Path) -> list[str]:
    if kind == "file":
        return results.read_text().split()
    with sqlite3.connect(results) as database:
        return [row[0] for row in database.execute("SELECT * FROM results ORDER BY rowid")]


@pytest.fixture(params=KINDS)
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Keeper:
    return Keeper(request.param, tmp_path)


@pytest.fixture
def queue(make_quick: Make) -> Queue:
    queue = make_quick()
    put(queue, 1, 7)
    return queue


def put(queue: Queue, first: int, last: int, **facts: Any) -> None:
    for number in range(first, last + 1):
        queue.put(b"%d" % number, feed="x", ident=f"i{number}", **facts)


def test_a_program_goes_on_behind_what_it_has_stored(keeper: Keeper, queue: Queue) -> None:
    keeper.run(queue, batches=2)
    assert keeper.stored == ["1", "2", "3", "4"]
    keeper.run(queue)
    put(queue, 8, 9)
    keeper.run(queue)
    assert keeper.stored == [str(number) for number in range(1, 10)]


def test_a_block_that_raises_stores_neither_results_nor_the_position(keeper: Keeper, queue: Queue) -> None:
    with keeper.open() as bookmark:
        follower = bookmark.follow(queue, limit=2)
        with pytest.raises(ZeroDivisionError), bookmark.store(next(follower)) as target:
            keeper.write(target, queue.read_batch(limit=2))
            1 / 0
        assert bookmark.position == 1
    assert keeper.stored == []
    keeper.run(queue)
    assert keeper.stored == [str(number) for number in range(1, 8)]


def test_next_means_the_moment_of_the_first_follow_even_if_nothing_was_stored_then(
    keeper: Keeper, queue: Queue
) -> None:
    keeper.run(queue, start="next")
    put(queue, 8, 9)
    keeper.run(queue, start="next")
    assert keeper.stored == ["8", "9"]


def test_a_queue_that_was_created_again_is_refused_until_the_bookmark_is_forgotten(
    keeper: Keeper, queue: Queue, make_quick: Make
) -> None:
    keeper.run(queue, batches=1)
    other = make_quick("other")
    put(other, 100, 102)
    with pytest.raises(
        BookmarkError, match=r"is at product 3 of another queue: .*other was created again, or is a copy"
    ):
        keeper.run(other)
    with keeper.open() as bookmark:
        bookmark.forget()
    keeper.run(other)
    assert keeper.stored == ["1", "2", "100", "101", "102"]


@pytest.mark.parametrize("grown", [False, True], ids=["as it was", "and has grown since"])
def test_a_queue_that_was_restored_from_an_older_copy_is_refused(
    keeper: Keeper, make_queue: Make, tmp_path: Path, grown: bool
) -> None:
    queue = make_queue()
    put(queue, 1, 3)
    queue.close()
    shutil.copytree(queue.path, tmp_path / "backup")
    with Queue.open(queue.path) as later:
        put(later, 4, 6)
        keeper.run(later)
    shutil.rmtree(queue.path)
    shutil.copytree(tmp_path / "backup", queue.path)
    with Queue.open(queue.path) as restored:
        if grown:
            put(restored, 14, 20)
        with pytest.raises(BookmarkError, match="the queue was restored from an older copy"):
            keeper.run(restored)
    assert keeper.stored == [str(number) for number in range(1, 7)]


def test_a_range_that_was_evicted_is_reported_and_passed(keeper: Keeper, make_quick: Make) -> None:
    queue = make_quick(size="1MiB")
    put(queue, 1, 2)
    keeper.run(queue)
    for number in range(40):
        queue.put(bytes(100_000), feed="big", ident=str(number))
    put(queue, 50, 51)
    with keeper.open() as bookmark:
        lost = []
        for batch in bookmark.follow(queue, "x", timeout=0):
            lost += [batch.lost] if batch.lost else []
            with bookmark.store(batch) as target:
                keeper.write(target, batch)
    assert [each.first for each in lost] == [3]
    assert keeper.stored == ["1", "2", "50", "51"]


def test_a_batch_is_stored_once_and_in_turn(keeper: Keeper, queue: Queue) -> None:
    with keeper.open() as bookmark:
        with pytest.raises(OptionError, match="belongs to no queue yet"):
            bookmark.store(queue.read_batch())
        follower = bookmark.follow(queue, limit=2)
        batch = next(follower)
        with bookmark.store(batch) as target:
            keeper.write(target, batch)
        with pytest.raises(OptionError, match="a batch that begins with product 1 was stored before"):
            bookmark.store(batch)
        follower.stop()
        with ReleaseBuffer(queue.follow("oldest", timeout=0), hold="1ms") as buffer:
            batch = next(buffer)
            with pytest.raises(OptionError, match="is not a batch of a follower"):
                bookmark.store(batch)
    assert keeper.stored == ["1", "2"]


# --- SQLite ---------------------------------------------------------------------------------------


@pytest.fixture
def keeper_in_sqlite(tmp_path: Path) -> Keeper:
    return Keeper("sqlite", tmp_path)


def test_two_programs_with_one_bookmark_store_nothing_twice(keeper_in_sqlite: Keeper, queue: Queue) -> None:
    keeper = keeper_in_sqlite
    with keeper.open() as one, keeper.open() as other:
        first, again = next(one.follow(queue, limit=2)), next(other.follow(queue, limit=2))
        with one.store(first) as database:
            keeper.write(database, first)
        with (
            pytest.raises(BookmarkError, match="another process has moved bookmark main"),
            other.store(again) as target,
        ):
            keeper.write(target, again)
    assert keeper.stored == ["1", "2"]


def test_bookmarks_of_one_database_have_names(keeper_in_sqlite: Keeper, queue: Queue) -> None:
    path = keeper_in_sqlite.results
    with SqliteBookmark(path, "one") as one, SqliteBookmark(path, "two") as two:
        with one.store(next(one.follow(queue, limit=2))):
            pass
        two.follow(queue)
        assert (one.position, two.position) == (3, 1)


@pytest.mark.parametrize("statement", ["COMMIT", "BEGIN", "ROLLBACK"])
def test_a_block_does_not_end_the_transaction(keeper_in_sqlite: Keeper, queue: Queue, statement: str) -> None:
    with keeper_in_sqlite.open() as bookmark:
        batch = next(bookmark.follow(queue))
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"), bookmark.store(batch) as database:
            database.execute("INSERT INTO results VALUES ('x')")
            database.execute(statement)
    assert keeper_in_sqlite.stored == []


@pytest.mark.parametrize("path", ["", ":memory:", "file:x"])
def test_a_path_that_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(OptionError, match="is not the path of a database"):
        SqliteBookmark(path)


def test_a_name_has_a_length(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a name of 0 characters"):
        SqliteBookmark(tmp_path / "x", "")


def test_a_database_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(BookmarkError, match="unable to open database file"):
        SqliteBookmark(tmp_path / "missing" / "x.db")


# --- files ----------------------------------------------------------------------------------------


def test_a_file_is_used_by_one_program_at_a_time(tmp_path: Path) -> None:
    with FileBookmark(tmp_path / "out"), pytest.raises(BookmarkError, match=r"out is in use by process \d+"):
        FileBookmark(tmp_path / "out")


def test_content_without_a_bookmark_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(BookmarkError, match="has content, and no bookmark says where it ends"):
        FileBookmark(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_bytes_that_were_not_committed_are_cut_off_and_not_counted(tmp_path: Path, queue: Queue) -> None:
    keeper = Keeper("file", tmp_path)
    keeper.run(queue, batches=1)
    with keeper.results.open("ab") as file:
        file.write(b"3\nhalf a li")
    assert counted_bytes(keeper.results) == len("1\n2\n")
    keeper.run(queue)
    assert keeper.stored == [str(number) for number in range(1, 8)]


def test_a_file_that_was_shortened_is_damage(tmp_path: Path, queue: Queue) -> None:
    keeper = Keeper("file", tmp_path)
    keeper.run(queue)
    keeper.results.write_text("1\n")
    with pytest.raises(BookmarkError, match="has 2 bytes, and its bookmark counts 14") as caught:
        keeper.open()
    name = keeper.results.name
    assert caught.value.hint == f"restore it, or remove both {name} and {name}.bookmark to start again"
    for each in (name, f"{name}.bookmark"):  # what it says works
        (tmp_path / each).unlink()
    keeper.run(queue)


@pytest.mark.parametrize("text", ["", "{", '{"version":1}', '{"version":2,"bytes":0,"mark":null}'])
def test_a_damaged_bookmark_of_a_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "out.bookmark").write_text(text)
    with pytest.raises(BookmarkError, match=r"out.bookmark (is damaged|has version 2)"):
        FileBookmark(tmp_path / "out")


# --- kills ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [15, pytest.param(500, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_program_that_is_killed_at_any_moment_stores_each_result_once(
    make_quick: Make, tmp_path: Path, kind: str, kills: int
) -> None:
    queue = make_quick(size="16MiB")
    results = tmp_path / f"results.{kind}"
    words = [kind, str(queue.path), str(results), str(random_seed()), str(kills)]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("bookmark_kills.py")), *words],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert [int(text) for text in stored_in(kind, results)] == list(range(kills * PRODUCTS))
