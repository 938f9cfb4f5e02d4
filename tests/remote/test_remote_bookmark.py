"""Bookmarks of programs that follow the queue of another site."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import BookmarkError, FileBookmark, SqliteBookmark
from support.seeds import random_seed
from support.serving import Served, put

KILLER = Path(__file__).parent.parent / "queue" / "bookmark_kills.py"


def follow(bookmark: FileBookmark, served: Served) -> None:
    with served.connect() as queue:
        for batch in bookmark.follow(queue, "a", limit=2, timeout=0):
            with bookmark.store(batch) as file:
                file.writelines(bytes(product.payload) for product in batch)


def test_a_program_goes_on_where_it_was_at_a_site_that_was_restarted(served: Served, tmp_path: Path) -> None:
    put(served.queue, *"abc")
    for more in ("d", "ef", ""):
        with FileBookmark(tmp_path / "out") as bookmark:
            follow(bookmark, served)
        served.stop()
        put(served.queue, *more)
        served.start()
    assert (tmp_path / "out").read_bytes() == b"abcdef"


def test_another_queue_of_a_site_is_refused(make_served: Callable[..., Served], tmp_path: Path) -> None:
    with FileBookmark(tmp_path / "out") as bookmark:
        follow(bookmark, make_served())
        with pytest.raises(BookmarkError, match="is at product 1 of another queue"):
            follow(bookmark, make_served())


def test_a_restored_queue_of_a_site_is_refused(served: Served, tmp_path: Path) -> None:
    put(served.queue, "a", "b")
    with SqliteBookmark(tmp_path / "out.db") as bookmark, served.connect() as queue:
        with bookmark.store(next(bookmark.follow(queue))):
            pass
        mark = bookmark._mark
        assert mark is not None
        text = bookmark.database.execute("SELECT mark FROM headrace_bookmarks").fetchone()[0]
        bookmark.database.execute(
            "UPDATE headrace_bookmarks SET mark = ?", [text.replace(mark.signature, "00" * 16)]
        )  # as if it had been made with another product 2
    with (
        SqliteBookmark(tmp_path / "out.db") as bookmark,
        served.connect() as queue,
        pytest.raises(BookmarkError, match="the queue was restored from an older copy"),
    ):
        bookmark.follow(queue)


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_a_program_at_another_machine_that_is_killed_stores_each_result_once(
    shared_memory: Path, tmp_path: Path, kills: int
) -> None:
    served = Served(shared_memory, size="16MiB")
    try:
        words = [
            "sqlite",
            str(served.queue.path),
            str(tmp_path / "out.db"),
            str(random_seed()),
            str(kills),
            served.endpoint,
        ]
        done = subprocess.run(
            [sys.executable, str(KILLER), *words], capture_output=True, text=True, timeout=600, check=False
        )
        print(done.stdout)
        assert done.returncode == 0, done.stderr
        with sqlite3.connect(tmp_path / "out.db") as database:
            stored = [row[0] for row in database.execute("SELECT number FROM results ORDER BY rowid")]
        assert stored == list(range(int(done.stdout.split()[0])))
        assert served.queue.next == len(stored) + 1
    finally:
        served.close()
