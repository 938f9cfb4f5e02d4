"""Cursors: the same tests on a local and on a remote queue."""

import pytest

from headrace.errors import CursorMissingError
from headrace.queue import AnyQueue
from support.serving import idents, put


def test_a_cursor_keeps_its_position(queue: AnyQueue) -> None:
    put(queue, *"12345")
    cursor = queue.cursor("c")
    assert (cursor.position, cursor.name, queue.cursors()) == (1, "c", ["c"])
    batch = cursor.read_batch(limit=2)
    cursor.commit(batch)
    assert (cursor.position, queue.cursor("c", "next").position) == (3, 3)
    assert idents(next(cursor.follow(limit=2, timeout=1))) == ["3", "4"]
    assert (cursor.seek("next"), cursor.position) == (6, 6)
    cursor.save(2)
    for batch in cursor:
        assert idents(batch) == ["2", "3", "4", "5"]
        break
    assert cursor.state.position == 2
    assert cursor.state.saved_ns > 0


def test_a_cursor_keeps_the_sum_of_lost_products(queue: AnyQueue) -> None:
    cursor = queue.cursor("c")
    for number in range(60):
        queue.put(number.to_bytes(2, "big") + bytes(100_000), feed="a")
    batch = cursor.read_batch(limit=1)
    cursor.commit(batch)
    state = cursor.state
    assert (state.lost, state.lost_products) == (batch.lost, batch.lost.products if batch.lost else 0)


def test_a_removed_cursor_is_gone(queue: AnyQueue) -> None:
    cursor = queue.cursor("c")
    cursor.remove()
    assert queue.cursors() == []
    with pytest.raises(CursorMissingError, match="was removed"):
        cursor.save(1)
