"""Terms of delivery: order, times, batches and pacing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from handling import EPOCH_NS, drain, idents, put, put_together, work

from headrace import Queue, Selection
from headrace.testing import MockClock

S = 10**9


@pytest.fixture
def clock() -> MockClock:
    return MockClock(EPOCH_NS)


@pytest.fixture
def queue(make_quick: Callable[..., Queue], clock: MockClock) -> Queue:
    return make_quick(clock=clock)


# --- order ----------------------------------------------------------------------------------------


def test_urgent_products_come_first_and_equal_ones_in_order(queue: Queue) -> None:
    station = queue.station("s", "**")
    for ident, priority in [("1", 4), ("2", 7), ("3", 0), ("4", 4), ("5", 7)]:
        put(queue, ident, priority=priority)
    assert drain(station) == ["2", "5", "1", "4", "3"]


@pytest.mark.parametrize("order", ["fifo", "any"])
def test_fifo_ignores_the_priority(queue: Queue, order: str) -> None:
    station = queue.station("s", "**", order=order)
    for ident, priority in [("1", 4), ("2", 7), ("3", 0), ("4", 4)]:
        put(queue, ident, priority=priority)
    assert drain(station) == ["1", "2", "3", "4"]


def put_with_deadlines(queue: Queue) -> None:
    """In the order 1, 2, 3, 4; by deadline 2, 3, 1, and 4 has none."""
    for ident, seconds in [("1", 30), ("2", 10), ("3", 20)]:
        put(queue, ident, expiry=EPOCH_NS + seconds * S)
    put(queue, "4")


def test_products_are_delivered_by_deadline(queue: Queue) -> None:
    station = queue.station("s", "**", order="deadline", capacity=10)
    put_with_deadlines(queue)
    assert drain(station) == ["2", "3", "1", "4"]


def test_products_without_a_deadline_come_in_order(queue: Queue) -> None:
    station = queue.station("s", "**", order="deadline", capacity=10)
    for ident, priority in [("1", 4), ("2", 7), ("3", 0)]:
        put(queue, ident, priority=priority)
    assert drain(station) == ["1", "2", "3"]


def test_a_change_of_order_applies_to_later_products(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=10)
    consumer = station.attach()
    station.change(order="deadline")
    put_with_deadlines(queue)
    assert work(consumer) == ["2", "3", "1", "4"]
    station.change(order="fifo")
    for ident, priority in [("5", 4), ("6", 7)]:
        put(queue, ident, priority=priority)
    assert work(consumer) == ["5", "6"]
    station.change(order="priority")
    for ident, priority in [("7", 4), ("8", 7)]:
        put(queue, ident, priority=priority)
    assert work(consumer) == ["8", "7"]


@pytest.mark.parametrize("before", ["fifo", "priority"])
def test_a_change_to_deadline_order_applies_to_waiting_products(queue: Queue, before: str) -> None:
    station = queue.station("s", "**", capacity=10, order=before)
    put_with_deadlines(queue)
    assert station.statistics().waiting == 4
    station.change(order="deadline")
    assert drain(station) == ["2", "3", "1", "4"]


def test_a_change_from_deadline_order_applies_to_waiting_products(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=10, order="deadline")
    put_with_deadlines(queue)
    assert station.statistics().waiting == 4
    station.change(order="fifo")
    assert drain(station) == ["1", "2", "3", "4"]


# --- times ----------------------------------------------------------------------------------------


def test_products_older_than_the_timeout_expire(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", "**", timeout="10s")
    put(queue, "1")
    clock.advance(6)
    put(queue, "2")
    clock.advance(4)
    assert drain(station) == ["2"]
    assert (station.statistics().expired, station.statistics().acknowledged) == (1, 1)


def test_the_earlier_of_timeout_and_expiry_counts(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", "**", timeout="10s")
    put(queue, "1", expiry="5s")
    put(queue, "2", expiry="1h")
    clock.advance(5)
    assert drain(station) == ["2"]
    put(queue, "3", expiry="1h")
    clock.advance(10)
    assert drain(station) == []
    assert station.statistics().expired == 2


def test_the_timeout_applies_with_a_selection_by_ident(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", Selection(ident="^x"), timeout="10s")
    put(queue, "x1")
    assert station.statistics().waiting == 1
    clock.advance(10)
    put(queue, "x2")
    station.statistics()
    assert drain(station) == ["x2"]
    assert station.statistics().expired == 1


def test_nothing_is_delivered_before_the_start_time(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", "**", start_time=EPOCH_NS + 60 * S)
    consumer = station.attach()
    put(queue, "1", "2")
    assert work(consumer) == []
    assert station.statistics().waiting == 2
    clock.advance(59)
    assert work(consumer) == []
    clock.advance(1)
    assert work(consumer) == ["1", "2"]


def test_a_waiting_consumer_gets_its_products_at_the_start_time(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", "**", start_time=EPOCH_NS + 60 * S)
    put(queue, "1")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(station.attach().get, 1, 20)
        clock.advance(60)
        assert idents(waiting.result(240)) == ["1"]


@pytest.mark.parametrize("selection", [Selection("a"), Selection(ident="^x")], ids=["by rows", "by reading"])
def test_nothing_is_delivered_from_the_stop_time_on(queue: Queue, clock: MockClock, selection: Selection) -> None:
    station = queue.station("s", selection, stop_time=EPOCH_NS + 60 * S)
    put(queue, "x1")
    clock.advance(59)
    assert drain(station) == ["x1"]
    put(queue, "x2")
    station.statistics()
    clock.advance(1)
    put(queue, "x3")
    assert drain(station) == []
    assert (station.statistics().expired, station.statistics().waiting) == (2, 0)


def test_products_after_the_stop_time_are_counted_once(queue: Queue) -> None:
    queue.station("first", "**", blocking=True, capacity=1)
    station = queue.station("s", "**", after="first", stop_time=EPOCH_NS - 1)
    put_together(queue, "1", "2", "3")
    counts = [station.statistics().expired for _ in range(10)]
    assert max(counts) <= 3


# --- batches --------------------------------------------------------------------------------------


def test_a_get_returns_at_most_batch_max_products(queue: Queue) -> None:
    consumer = queue.station("s", "**", batch_max=2).attach()
    put(queue, *"12345")
    assert [idents(consumer.get_nowait(100)) for _ in range(3)] == [["1", "2"], ["3", "4"], ["5"]]


def test_batch_max_can_be_changed_while_consumers_work(queue: Queue) -> None:
    station = queue.station("s", "**", batch_max=1)
    consumer = station.attach()
    station.change(batch_max=3)
    put(queue, *"1234")
    assert idents(consumer.get_nowait(100)) == ["1", "2", "3"]


def test_pacing_waits_for_a_full_batch(queue: Queue) -> None:
    consumer = queue.station("s", "**", batch_max=3, pacing="30s").attach()
    with ThreadPoolExecutor(1) as pool:
        getting = pool.submit(consumer.get, 3, 60)
        put(queue, "1")
        put(queue, "2")
        with pytest.raises(TimeoutError):
            getting.result(0.5)
        put(queue, "3")
        assert idents(getting.result(240)) == ["1", "2", "3"]


def test_pacing_returns_a_partial_batch_after_its_time(queue: Queue) -> None:
    consumer = queue.station("s", "**", batch_max=3, pacing="100ms").attach()
    put(queue, "1", "2")
    assert idents(consumer.get(3)) == ["1", "2"]


def test_pacing_does_not_wait_longer_than_the_timeout(queue: Queue) -> None:
    consumer = queue.station("s", "**", batch_max=3, pacing="1h").attach()
    put(queue, "1")
    assert idents(consumer.get(3, timeout="100ms")) == ["1"]


def test_with_pacing_an_empty_get_waits_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = queue.station("s", "**", batch_max=3, pacing="1h").attach()
    left, fill = [], consumer._fill
    monkeypatch.setattr(consumer, "_fill", lambda *terms: left.append(fill(*terms)) or left[-1])
    assert len(consumer.get(3, timeout=0.3)) == 0
    assert left == [0.0]  # one wait, and nothing of the timeout is left for another
