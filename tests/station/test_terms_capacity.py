"""Terms that limit: prescale, capacity, consumers_max and max_queue."""

from collections.abc import Callable

import pytest
from handling import EPOCH_NS, drain, idents, put, vanish, work

from headrace import Queue, Selection
from headrace.errors import ConsumersFullError, RejectedError
from headrace.testing import MockClock


@pytest.fixture
def clock() -> MockClock:
    return MockClock(EPOCH_NS)


@pytest.fixture
def queue(make_quick: Callable[..., Queue], clock: MockClock) -> Queue:
    return make_quick(clock=clock)


# --- prescale -------------------------------------------------------------------------------------


@pytest.mark.parametrize("selection", [Selection("a"), Selection(ident="^x")], ids=["by rows", "by reading"])
def test_a_prescale_takes_exactly_every_nth_selected_product(queue: Queue, selection: Selection) -> None:
    station = queue.station("s", selection, prescale=3)
    consumer = station.attach()
    got: list[str] = []
    for number in range(1, 21):
        put(queue, f"x{number}", feed="a")
        put(queue, f"other{number}", feed="b")
        if number % 7 == 0:
            station.statistics()
            got += work(consumer)
    station.statistics()
    got += work(consumer)
    assert got == [f"x{number}" for number in range(3, 21, 3)]


def test_every_in_a_selection_equals_a_prescale(queue: Queue) -> None:
    station = queue.station("s", Selection("a", every=2))
    assert (station.terms.prescale, station.terms.selection) == (2, "a")
    put(queue, *"12345")
    assert drain(station) == ["2", "4"]
    assert queue.station("s", "a", prescale=2).terms == station.terms


def test_a_prescale_can_be_changed_while_consumers_work(queue: Queue) -> None:
    station = queue.station("s", "**", prescale=2)
    consumer = station.attach()
    put(queue, *"1234")
    assert work(consumer) == ["2", "4"]
    station.change(prescale=1)
    put(queue, "5", "6")
    assert work(consumer) == ["5", "6"]
    station.change(prescale=3)
    put(queue, *(str(number) for number in range(7, 16)))
    assert len(work(consumer)) == 3


def test_a_prescale_stays_exact_while_the_station_is_full(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none")
    station = queue.station("s", "**", prescale=2, blocking=True, capacity=2)
    queue.put_many([b"x"] * 20, feed="a")
    got: list[int] = []
    with station.attach() as consumer:
        for batch in consumer.batches(1, timeout=0):
            got += batch.sequences.tolist()
            station.statistics()
    assert got == list(range(2, 21, 2))


# --- capacity -------------------------------------------------------------------------------------


def test_without_a_capacity_nothing_is_dropped(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none", size="8MiB")
    station = queue.station("s", "**")
    for _ in range(10):
        queue.put_many([b"x"] * 1000, feed="a")
        station.statistics()
    got: list[int] = []
    with station.attach() as consumer:
        for batch in consumer.batches(3000, timeout=0):
            got += batch.sequences.tolist()
    assert got == list(range(1, 10_001))
    assert sum(station.statistics().dropped.values()) == 0


def test_new_products_flow_past_a_full_station_and_are_counted(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=2)
    consumer = station.attach()
    put(queue, *"1234")
    assert idents(consumer.get_nowait(1)) == ["1"]
    put(queue, "5", "6")
    assert idents(consumer.get_nowait(9)) == ["2", "5"]
    assert station.statistics().dropped["flowed_around"] == 3


def test_leased_products_do_not_count_towards_the_capacity(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=2)
    consumer = station.attach()
    put(queue, "1", "2")
    consumer.get_nowait(2)
    put(queue, "3", "4")
    assert idents(consumer.get_nowait(9)) == ["3", "4"]
    assert station.statistics().dropped["flowed_around"] == 0


def test_a_capacity_can_be_changed_while_consumers_work(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=1)
    consumer = station.attach()
    put(queue, "1", "2")
    assert station.statistics().dropped["flowed_around"] == 1
    station.change(capacity=3)
    put(queue, "3", "4", "5")
    assert (station.statistics().waiting, station.statistics().capacity) == (3, 3)
    station.change(capacity=1)
    assert station.statistics().waiting == 3  # what has been taken stays
    put(queue, "6")
    assert work(consumer) == ["1", "3", "4"]
    station.change(capacity=None)
    put(queue, "7", "8", "9")
    assert work(consumer) == ["7", "8", "9"]
    assert station.statistics().dropped["flowed_around"] == 3


def test_a_change_is_seen_by_other_openings(queue: Queue, clock: MockClock) -> None:
    station = queue.station("s", "**", capacity=1)
    with Queue.open(queue.path, clock=clock) as again:
        consumer = again.station("s").attach()
        station.change(capacity=2, order="fifo")
        assert again.station("s").terms == station.terms
        put(queue, "1", "2", "3")
        assert work(consumer) == ["1", "2"]


# --- limits ---------------------------------------------------------------------------------------


def test_more_consumers_than_consumers_max_are_refused(queue: Queue) -> None:
    station = queue.station("s", "**", consumers_max=2)
    first, _second = station.attach(), station.attach()
    with pytest.raises(ConsumersFullError, match="2 consumers, its consumers_max"):
        station.attach()
    first.detach()
    third = station.attach()
    vanish(third)
    fourth = station.attach()
    station.change(consumers_max=3)
    fifth = station.attach()
    assert station.statistics().consumers == 3
    for consumer in (fourth, fifth):
        consumer.detach()


def test_a_put_is_rejected_while_max_queue_products_wait(queue: Queue) -> None:
    station = queue.station("s", "a", max_queue=3)
    consumer = station.attach()
    put(queue, *"123")
    for _ in range(2):
        with pytest.raises(RejectedError, match="'s' has 3 products waiting") as told:
            put(queue, "4")
    assert "max_queue" in told.value.hint
    assert queue.next == 4
    put(queue, "other", feed="b")
    assert idents(consumer.get_nowait(1)) == ["1"]
    put(queue, "5")
    assert work(consumer) == ["2", "3", "5"]
    assert station.statistics().rejected == 2


def test_a_put_is_rejected_without_waiting(queue: Queue) -> None:
    queue.station("s", "a", max_queue=1)
    put(queue, "1")
    with pytest.raises(RejectedError):
        put(queue, "2", timeout="1h")


def test_max_queue_can_be_changed_and_removed(queue: Queue) -> None:
    station = queue.station("s", "a", max_queue=1)
    put(queue, "1")
    station.change(max_queue=2)
    put(queue, "2")
    with pytest.raises(RejectedError):
        put(queue, "3")
    station.change(max_queue=None)
    put(queue, "3")
    assert drain(station) == ["1", "2", "3"]


def test_max_queue_applies_in_other_openings(queue: Queue, clock: MockClock) -> None:
    with Queue.open(queue.path, clock=clock) as again:
        put(again, "0")
        queue.station("s", "a", max_queue=1)
        put(again, "1")
        with pytest.raises(RejectedError):
            put(again, "2")
