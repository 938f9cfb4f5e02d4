"""A queue whose directory is moved, deleted or replaced while it is open refuses, and says what happened."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.errors import QueueDamagedError, QueueMovedError
from headrace.testing import MockClock
from support.waiting import until

FORK, SPAWN = get_context("fork"), get_context("spawn")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Queue.create(tmp_path / "q", size="2MiB", origin="here").close()
    return tmp_path / "q"


def refused(act: Callable[[], Any]) -> str:
    """Act until it is refused: a put that comes less than 0.1 s after another one does not look again."""
    found: list[str] = []

    def is_refused() -> bool:
        try:
            act()
        except QueueMovedError as error:
            found.append(str(error))
        return bool(found)

    until(is_refused, "the refusal")
    return found[0]


def moved(path: Path) -> Path:
    return path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    moved(path)
    Queue.create(path, size="2MiB", origin="other").close()


OPERATIONS: dict[str, Callable[[Queue], Any]] = {
    "put": lambda queue: queue.put(b"x", feed="a"),
    "put_with_facts": lambda queue: queue.put(b"x", feed="a", properties={"n": 1}),
    "put_many": lambda queue: queue.put_many([b"x", b"y"], feed="a"),
    "read": lambda queue: list(queue.read()),
    "follow": lambda queue: next(queue.follow("next", timeout=60)),
    "cursor": lambda queue: queue.cursor("new"),
    "cursors": lambda queue: queue.cursors(),
    "station": lambda queue: queue.station("new", "**"),
    "stations": lambda queue: queue.stations(),
    "channel": lambda queue: queue.channel("new", "wx"),
    "channels": lambda queue: queue.channels(),
    "resolve": lambda queue: queue.resolve("oldest"),
    "delete": lambda queue: queue.delete("**"),
    "resize": lambda queue: queue.resize(size="4MiB"),
    "flush": lambda queue: queue.flush(),
    "statistics": lambda queue: queue.statistics(),
    "check": lambda queue: queue.check(),
}


@pytest.mark.parametrize("happen", [moved, shutil.rmtree, replaced])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_works_on_a_queue_that_is_elsewhere(
    path: Path, operation: str, happen: Callable[[Path], Any]
) -> None:
    with Queue.open(path) as queue:
        queue.put(b"first", feed="a")
        happen(path)
        refused(lambda: OPERATIONS[operation](queue))


def test_the_error_says_where_the_queue_is_now(path: Path) -> None:
    with Queue.open(path) as queue:
        elsewhere = moved(path)
        assert f"{path} was moved to {elsewhere}" in refused(queue.stations)


def test_the_error_says_that_the_queue_was_deleted(path: Path) -> None:
    with Queue.open(path) as queue:
        shutil.rmtree(path)
        assert f"{path} was deleted" in refused(lambda: queue.put(b"x", feed="a"))


def test_the_error_says_that_another_queue_took_the_place(path: Path) -> None:
    with Queue.open(path) as queue:
        replaced(path)
        told = refused(lambda: queue.put(b"x", feed="a"))
    assert "elsewhere" in told
    assert "another queue is there now" in told
    with Queue.open(path) as other:
        assert other.next == 1
        assert other.check() == []


def test_a_put_under_a_clock_that_stands_still_notices_too(path: Path) -> None:
    with Queue.open(path, clock=MockClock(10**18)) as queue:
        queue.put(b"x", feed="a")
        moved(path)
        with pytest.raises(QueueMovedError):
            queue.put(b"y", feed="a")


def test_a_queue_that_is_moved_back_works_again_and_has_lost_nothing(path: Path) -> None:
    with Queue.open(path) as queue:
        queue.put(b"before", feed="a")
        elsewhere = moved(path)
        refused(queue.flush)
        elsewhere.rename(path)
        queue.put(b"after", feed="a")
        queue.flush()
        assert [bytes(product.payload) for product in queue.read()] == [b"before", b"after"]
    with Queue.open(path) as again:
        assert again.check() == []


def test_a_symbolic_link_that_leads_to_another_queue_is_noticed(path: Path, tmp_path: Path) -> None:
    Queue.create(tmp_path / "other", size="2MiB", origin="other").close()
    link = tmp_path / "link"
    link.symlink_to(path)
    with Queue.open(link) as queue:
        queue.put(b"x", feed="a")
        (tmp_path / "new").symlink_to(tmp_path / "other")
        (tmp_path / "new").rename(link)
        assert "another queue is there now" in refused(lambda: queue.put(b"x", feed="a"))


def test_a_parent_directory_that_moves_takes_the_queue_away(tmp_path: Path) -> None:
    (tmp_path / "parent").mkdir()
    with Queue.create(tmp_path / "parent" / "q", size="2MiB") as queue:
        (tmp_path / "parent").rename(tmp_path / "other")
        assert str(tmp_path / "other" / "q") in refused(queue.cursors)


def test_a_follower_that_sleeps_notices(path: Path) -> None:
    told: list[str] = []
    with Queue.open(path) as queue:
        follower = queue.follow("next")
        sleeper = threading.Thread(target=lambda: told.append(refused(lambda: next(follower))))
        sleeper.start()
        moved(path)
        sleeper.join(240)
    assert told
    assert "was moved" in told[0]


@pytest.mark.parametrize("durability", ["process", "disk"])
def test_nothing_is_called_durable_that_was_moved_away(tmp_path: Path, durability: str) -> None:
    with Queue.create(tmp_path / "q", size="2MiB", durability=durability) as queue:
        queue.put(b"x", feed="a")
        synced = queue._log.kernel.state["synced"]
        elsewhere = moved(tmp_path / "q")
        refused(queue.flush)
        assert queue._log.kernel.state["synced"] == synced
        elsewhere.rename(tmp_path / "q")
        queue.flush()  # the disk did not fail
        assert queue._log.kernel.state["synced"] == queue.next


def test_closing_leaves_the_queue_that_took_the_place_alone(path: Path) -> None:
    queue = Queue.open(path)
    queue.put(b"x", feed="a")
    replaced(path)
    queue.close()
    for place, products in ((path, 0), (path.with_name("elsewhere"), 1)):
        with Queue.open(place) as found:
            assert found.check() == []
            assert found.next == 1 + products


def test_a_forked_child_refuses_too(path: Path) -> None:
    def child() -> None:
        refused(lambda: queue.put(b"x", feed="a"))
        os._exit(42)

    with Queue.open(path) as queue:
        queue.put(b"x", feed="a")
        moved(path)
        process = FORK.Process(target=child)
        process.start()
        process.join(240)
        assert process.exitcode == 42


def _follow(path: Path, ready: Any) -> None:
    with Queue.open(path) as queue:
        ready.set()
        refused(lambda: next(queue.follow("next")))
    os._exit(42)


def test_a_process_that_follows_the_queue_by_itself_refuses_too(path: Path) -> None:
    ready = SPAWN.Event()
    process = SPAWN.Process(target=_follow, args=(path, ready))
    process.start()
    assert ready.wait(240)
    shutil.rmtree(path)
    process.join(240)
    assert process.exitcode == 42


def test_a_fork_after_a_replacement_does_not_attach_to_the_other_queue(path: Path) -> None:
    with Queue.open(path) as queue:
        replaced(path)
        process = FORK.Process(target=time.sleep, args=(60,))
        process.start()
        try:
            Queue.remove(path)  # QueueBusyError if the child were attached to it
        finally:
            process.kill()
            process.join()
        refused(queue.cursors)


def test_positions_are_not_saved_into_a_file_that_nobody_finds(path: Path) -> None:
    with Queue.open(path) as queue:
        cursor = queue.cursor("reader")
        (path / "cursors").unlink()
        with pytest.raises(QueueDamagedError, match="deleted or replaced"):
            cursor.save(1)


def test_a_cursor_of_a_queue_that_was_moved_is_not_saved(path: Path) -> None:
    with Queue.open(path) as queue:
        cursor = queue.cursor("reader")
        queue.put_many([b"x", b"y"], feed="a")
        moved(path)
        refused(lambda: cursor.save(3))
    with Queue.open(path.with_name("elsewhere")) as again:
        assert again.cursor("reader").position == 1
