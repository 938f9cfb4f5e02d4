"""A program with a bookmark that is killed again and again, for the tests of bookmarks.

    python bookmark_kills.py KIND QUEUE RESULTS SEED KILLS [ENDPOINT]

It puts products into the queue, and follows them in forks of itself that are killed (-9) at random moments. In the end one
fork is left alone until it has stored everything. With an endpoint the forks follow the queue at its site.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from headrace import FileBookmark, Queue, SqliteBookmark, connect
from headrace.queue.bookmark import Bookmark

PRODUCTS = 120  # for each fork


def put(queue: Queue, first: int) -> int:
    numbers = range(first, first + PRODUCTS)
    queue.put_many([b"%d" % number for number in numbers], feed="x", ident=[f"i{number}" for number in numbers])
    return first + PRODUCTS


def is_behind(bookmark: Bookmark[Any], count: int) -> bool:
    return bookmark.position is None or bookmark.position <= count


def follow_with_sqlite(where: str, results: Path, count: int) -> None:
    with connect(where) as queue, SqliteBookmark(results) as bookmark:
        bookmark.database.execute("CREATE TABLE IF NOT EXISTS results (number INTEGER)")
        for batch in bookmark.follow(queue, limit=3, timeout=None if is_behind(bookmark, count) else 0):
            with bookmark.store(batch) as database:
                database.executemany("INSERT INTO results VALUES (?)", [(int(bytes(each.payload)),) for each in batch])
            if bookmark.position == count + 1:
                break


def follow_with_file(where: str, results: Path, count: int) -> None:
    with connect(where) as queue, FileBookmark(results) as bookmark:
        for batch in bookmark.follow(queue, limit=3, timeout=None if is_behind(bookmark, count) else 0):
            with bookmark.store(batch) as file:
                for each in batch:
                    file.write(bytes(each.payload) + b"\n")
                    file.flush()
            if bookmark.position == count + 1:
                break


FOLLOW = {"sqlite": follow_with_sqlite, "file": follow_with_file}


def run(kind: str, where: str, results: Path, count: int, life_s: float | None) -> bool:
    """Whether the fork has stored everything before it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            FOLLOW[kind](where, results, count)
            code = 0
        finally:
            os._exit(code)
    if life_s is not None:
        time.sleep(life_s)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if status and os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
        raise SystemExit(f"the fork ended with {status}")
    return status == 0


def main(kind: str, path: str, results: str, seed: str, kills: str, endpoint: str = "") -> None:
    chance, where, count, early = random.Random(int(seed)), endpoint or path, 0, 0
    longest_s = 0.6 if endpoint else 0.12  # the start of a fork that connects takes longer
    with Queue.open(path) as queue:
        for _ in range(int(kills)):
            count = put(queue, count)
            early += not run(kind, where, Path(results), count, chance.uniform(0, longest_s))
    assert run(kind, where, Path(results), count, None)
    print(f"{count} products, {early} of {kills} forks were killed before they had stored everything")


if __name__ == "__main__":
    main(*sys.argv[1:])
