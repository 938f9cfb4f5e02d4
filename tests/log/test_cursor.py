"""Durable named positions."""

from collections.abc import Callable

import pytest
from filling import fill

from headrace import Lost, Queue
from headrace.errors import CursorMissingError, CursorNameError, OptionError


def test_a_cursor_continues_at_its_saved_position(queue: Queue) -> None:
    fill(queue, 10)
    cursor = queue.cursor("decoder")
    batch = cursor.read_batch(limit=4)
    assert cursor.position == 1
    cursor.commit(batch)
    queue.close()
    with Queue.open(queue.path) as again:
        assert again.cursors() == ["decoder"]
        assert again.cursor("decoder", start="next").read_batch().sequences.tolist() == [5, 6, 7, 8, 9, 10]


def test_a_cursor_that_fell_behind_counts_the_exact_loss(queue: Queue) -> None:
    cursor = queue.cursor("slow")
    fill(queue, 30_000)
    lost = Lost(1, queue.oldest - 1)
    batch = cursor.read_batch()
    assert batch.lost == lost
    cursor.commit(batch)
    assert (cursor.state.lost, cursor.state.lost_products) == (lost, lost.products)
    (told,) = queue.statistics().cursors
    assert (told.name, told.lost_first, told.lost_last, told.lost_products) == ("slow", 1, lost.last, lost.products)
    assert told.behind == queue.next - batch.next


def test_a_cursor_commits_the_batches_that_it_follows(queue: Queue) -> None:
    fill(queue, 10)
    cursor = queue.cursor("c")
    for batch in cursor.follow(limit=3, timeout=0):
        cursor.commit(batch)
    assert cursor.position == 11


def test_a_cursor_can_seek_and_be_removed(queue: Queue) -> None:
    fill(queue, 10)
    cursor = queue.cursor("c", start="next")
    assert cursor.position == 11
    assert cursor.seek("oldest") == 1
    assert cursor.seek(7) == 7
    with pytest.raises(OptionError):
        cursor.seek("sometime")
    cursor.remove()
    assert queue.cursors() == []
    assert queue.cursor("c").position == 1


def test_a_removed_cursor_does_not_write_into_the_slot_of_its_successor(queue: Queue) -> None:
    old = queue.cursor("x")
    queue.cursor("x").remove()
    new = queue.cursor("y")
    with pytest.raises(CursorMissingError, match="removed"):
        old.save(1)
    assert new.position == 1


def test_two_processes_share_a_cursor_by_name(queue: Queue) -> None:
    fill(queue, 5)
    queue.cursor("c").save(4)
    with Queue.open(queue.path) as other:
        assert other.cursor("c").position == 4


@pytest.mark.parametrize("name", ["", "x" * 121, "tab\t", "new\nline", None, 7])
def test_an_invalid_cursor_name_is_refused(queue: Queue, name: object) -> None:
    with pytest.raises(CursorNameError, match="printable"):
        queue.cursor(name)  # type: ignore[arg-type]


def test_a_queue_holds_1024_cursors_and_refuses_one_more(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue()
    for number in range(1024):
        queue.cursor(f"cursor {number}")
    with pytest.raises(CursorNameError, match="1024"):
        queue.cursor("one more")
    assert len(queue.cursors()) == 1024
