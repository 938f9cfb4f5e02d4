"""Parking: a product that fails too often is set aside, and the others are delivered."""

from collections.abc import Callable

import pytest
from handling import drain, idents, payloads, put, vanish, work

from headrace import Queue
from headrace.station import Consumer, Station


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick(dedup="none", size="8MiB")


def fail(consumer: Consumer, n: int = 1000) -> list[str]:
    """Get, and give back as failed."""
    batch = consumer.get_nowait(n)
    consumer.nack(batch, failed=True)
    return idents(batch)


def kill_one(station: Station) -> list[str]:
    """A consumer gets one product and dies."""
    consumer = station.attach()
    batch = consumer.get_nowait()
    vanish(consumer)
    station.statistics()
    return idents(batch)


def test_a_product_that_fails_too_often_is_parked_and_the_others_are_delivered(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=3)
    put(queue, "bad", "good")
    consumer = station.attach()
    for _ in range(3):
        batch = consumer.get_nowait()
        assert idents(batch) == ["bad"]
        consumer.nack(batch, failed=True)
    assert work(consumer) == ["good"]
    told = station.statistics()
    assert (told.parked, told.parked_total, told.waiting, told.retries, told.acknowledged) == (1, 1, 0, 0, 1)
    (parked,) = station.parked()
    assert (parked.sequence, parked.deliveries, parked.held) == (1, 3, True)
    assert (parked.feed, parked.ident, parked.size) == ("a", "bad", 3)


def where(station: Station) -> tuple[int, int, int]:
    """Products that wait, that are leased, and that are parked."""
    told = station.statistics()
    assert told.parked == len(station.parked())
    return told.waiting, told.leased, told.parked


def test_a_product_is_parked_when_it_comes_back_from_its_last_delivery(queue: Queue) -> None:
    """And not when the next consumer asks: there may be none, and it would seem to wait."""
    station = queue.station("s", "**", deliveries_max=2)
    put(queue, "bad")
    with station.attach() as consumer:
        fail(consumer)
        assert where(station) == (1, 0, 0)
        fail(consumer)
        assert where(station) == (0, 0, 1)
    assert station.lag().products == 0
    assert (station.retry(), where(station)) == (1, (1, 0, 0))


def test_a_product_that_killed_its_last_consumer_is_parked_without_another_one(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=1)
    put(queue, "1", "2")
    for number, ask in enumerate([lambda: len(station.parked()), lambda: station.forget()]):
        consumer = station.attach()
        consumer.get_nowait()
        vanish(consumer)
        assert ask() == number + 1
    assert where(station) == (0, 0, 0)


def test_a_product_of_a_consumer_that_left_by_an_exception_is_parked(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=1)
    put(queue, "bad")
    with pytest.raises(ValueError, match="decode"), station.attach() as consumer:
        consumer.get_nowait()
        raise ValueError("cannot decode")
    assert where(station) == (0, 0, 1)


def test_a_product_in_its_last_delivery_goes_on_when_its_station_is_removed(queue: Queue) -> None:
    first = queue.station("first", "**", deliveries_max=1)
    second = queue.station("second", "**", after="first")
    put(queue, "1")
    consumer = first.attach()
    consumer.get_nowait()
    first.remove()
    assert drain(second) == ["1"]


def test_a_product_that_was_sent_back_too_often_for_a_station_is_parked_on_its_way(queue: Queue) -> None:
    first = queue.station("first", "**", restore="start", deliveries_max=5)
    second = queue.station("second", "**", after="first", restore="start", deliveries_max=2)
    put(queue, "bad")
    for _ in range(2):
        assert drain(first) == ["bad"]
        assert kill_one(second) == ["bad"]
    assert drain(first) == ["bad"]
    assert (where(first), where(second)) == ((0, 0, 0), (0, 0, 1))


def test_a_product_that_kills_its_consumers_is_parked(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=3)
    put(queue, "bad", "good")
    assert [kill_one(station) for _ in range(3)] == [["bad"]] * 3
    assert drain(station) == ["good"]
    assert [parked.ident for parked in station.parked()] == ["bad"]
    assert station.statistics().restored == 3


def test_a_product_that_failed_twice_is_handed_out_alone(queue: Queue) -> None:
    """So that no other product is parked with it if it kills its consumer again."""
    station = queue.station("s", "**")
    put(queue, *"1234")
    consumer = station.attach()
    batch = consumer.get_nowait(3)
    consumer.nack([batch[1], batch[2]], failed=True)
    consumer.ack(batch[0])
    assert fail(consumer) == ["2", "3", "4"]
    assert idents(consumer.get_nowait(9)) == ["2"]
    assert idents(consumer.get_nowait(9)) == ["3"]
    assert idents(consumer.get_nowait(9)) == ["4"]


def test_only_the_product_that_kills_is_parked(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=4)
    put(queue, "1", "bad", "3", "4")
    seen = []
    for _ in range(20):
        consumer = station.attach()
        while len(batch := consumer.get_nowait(10)):
            if "bad" in idents(batch):
                vanish(consumer)
                break
            consumer.ack(batch)
            seen += idents(batch)
    assert seen == ["1", "3", "4"]
    assert [parked.ident for parked in station.parked()] == ["bad"]


def test_five_deliveries_are_the_default(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "bad")
    consumer = station.attach()
    assert [fail(consumer) for _ in range(7)] == [["bad"]] * 5 + [[], []]
    assert station.statistics().parked == 1


def test_products_given_back_without_failure_are_never_parked(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=1)
    put(queue, "1")
    consumer = station.attach()
    for _ in range(10):
        batch = consumer.get_nowait()
        assert (idents(batch), batch.deliveries.tolist()) == (["1"], [1])
        consumer.nack(batch)
    assert station.statistics().parked == 0


def test_without_a_limit_nothing_is_parked(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=0)
    put(queue, "bad")
    consumer = station.attach()
    assert [fail(consumer) for _ in range(50)] == [["bad"]] * 50
    assert consumer.get_nowait().deliveries.tolist() == [51]


def test_the_limit_can_be_changed_while_consumers_work(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=2)
    put(queue, "bad")
    consumer = station.attach()
    fail(consumer)
    station.change(deliveries_max=4)
    assert [fail(consumer) for _ in range(4)] == [["bad"]] * 3 + [[]]
    assert station.parked()[0].deliveries == 4


def test_retried_products_are_delivered_as_if_new(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=1)
    put(queue, "1", "2", "3")
    consumer = station.attach()
    fail(consumer)
    assert work(consumer) == []
    assert [parked.ident for parked in station.parked()] == ["1", "2", "3"]
    put(queue, "4")
    assert station.retry([2]) == 1
    assert station.retry([2, 99]) == 0
    batch = consumer.get_nowait(9)
    assert (idents(batch), batch.deliveries.tolist()) == (["2", "4"], [1, 1])
    consumer.ack(batch)
    assert station.retry() == 2
    assert work(consumer) == ["1", "3"]
    assert (station.statistics().parked, station.statistics().parked_total) == (0, 3)
    assert station.parked() == []


def test_a_retried_product_may_be_parked_again(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=1)
    put(queue, "bad")
    consumer = station.attach()
    for round_ in range(1, 4):
        assert fail(consumer) == ["bad"]
        assert work(consumer) == []
        assert station.statistics().parked_total == round_
        assert station.retry() == 1


def test_parked_products_can_be_forgotten(queue: Queue) -> None:
    first = queue.station("first", "**", deliveries_max=1)
    second = queue.station("second", "**", after="first")
    put(queue, "1", "2")
    consumer = first.attach()
    fail(consumer)
    assert work(consumer) == []
    assert first.forget([1]) == 1
    assert [parked.ident for parked in first.parked()] == ["2"]
    assert first.forget() == 1
    assert (first.forget(), first.retry()) == (0, 0)
    assert (first.statistics().parked, drain(first), drain(second)) == (0, [], [])


def test_parked_products_do_not_count_as_lag(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=1)
    put(queue, "bad")
    consumer = station.attach()
    fail(consumer)
    assert work(consumer) == []
    assert (station.lag().products, station.lag().seconds) == (0, 0)


def test_a_parked_product_keeps_its_revision(queue: Queue) -> None:
    first = queue.station("first", "**")
    second = queue.station("second", "**", after="first", deliveries_max=1)
    put(queue, "1")
    with first.attach() as consumer:
        consumer.ack(consumer.get_nowait(), payloads=[b"one"])
    consumer = second.attach()
    fail(consumer)
    assert work(consumer) == []
    second.retry()
    batch = consumer.get_nowait()
    assert (payloads(batch), batch.revisions.tolist()) == ([b"one"], [1])


def test_each_station_counts_its_own_deliveries(queue: Queue) -> None:
    first = queue.station("first", "**", deliveries_max=2)
    second = queue.station("second", "**", after="first", deliveries_max=2)
    put(queue, "1")
    consumer = first.attach()
    fail(consumer)
    assert work(consumer) == ["1"]
    behind = second.attach()
    batch = behind.get_nowait()
    assert batch.deliveries.tolist() == [1]
    behind.nack(batch, failed=True)
    assert work(behind) == ["1"]
    assert second.statistics().parked == 0


def test_parked_products_survive_a_reopening(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=1)
    put(queue, "bad")
    with station.attach() as consumer:
        fail(consumer)
        assert work(consumer) == []
    queue.close()
    with Queue.open(queue.path) as again:
        station = again.station("s")
        assert [parked.ident for parked in station.parked()] == ["bad"]
        assert station.retry() == 1
        assert drain(station) == ["bad"]


def test_parked_products_survive_a_seek(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=1)
    put(queue, "bad")
    consumer = station.attach()
    fail(consumer)
    assert work(consumer) == []
    station.seek("next")
    assert (len(station.parked()), station.retry()) == (1, 1)
    assert work(consumer) == ["bad"]


def test_at_most_a_thousand_products_are_parked_and_the_rest_are_counted(queue: Queue) -> None:
    station = queue.station("s", "**", deliveries_max=1)
    queue.put_many([b"x"] * 1100, feed="a")
    consumer = station.attach()
    assert len(fail(consumer, 2000)) == 1100
    assert work(consumer) == []
    told = station.statistics()
    assert (told.parked, told.parked_total, told.dropped["parking_full"]) == (1000, 1000, 100)
    assert [parked.sequence for parked in station.parked()] == list(range(1, 1001))
    assert station.retry() == 1000
    assert len(work(consumer, 2000)) == 1000


def test_a_parked_product_that_was_evicted_is_marked(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="1MiB", dedup="none")
    station = queue.station("s", "a", deliveries_max=1)
    put(queue, "bad")
    consumer = station.attach()
    fail(consumer)
    assert work(consumer) == []
    for _ in range(40):
        queue.put(bytes(50_000), feed="b")
        station.statistics()
    (parked,) = station.parked()
    assert (parked.held, parked.ident, parked.size) == (False, "", 0)
    assert station.retry() == 1
    assert work(consumer) == []
    assert (station.statistics().evicted, station.statistics().parked) == (1, 0)


@pytest.mark.parametrize("restore", ["input", "group"])
def test_a_product_that_kills_its_consumers_is_parked_wherever_it_is_restored(queue: Queue, restore: str) -> None:
    stations = [queue.station(f"w{n}", "**", group="g", restore=restore, deliveries_max=3) for n in range(3)]
    put(queue, "bad")
    killed = 0
    for _ in range(20):
        for station in stations:
            killed += len(kill_one(station))
    assert killed == 3
    assert sum(len(station.parked()) for station in stations) == 1


def test_a_product_that_is_restored_to_the_start_is_parked_at_the_limit(queue: Queue) -> None:
    first = queue.station("first", "**", restore="start", deliveries_max=3)
    second = queue.station("second", "**", after="first", restore="start", deliveries_max=3)
    put(queue, "bad")
    killed = 0
    for _ in range(20):
        drain(first)
        killed += len(kill_one(second))
    assert 0 < killed <= 3
    assert len(first.parked()) + len(second.parked()) == 1


def test_a_product_that_was_restored_to_the_start_too_often_can_be_retried(queue: Queue) -> None:
    first = queue.station("first", "**", restore="start", deliveries_max=2)
    second = queue.station("second", "**", after="first", restore="start", deliveries_max=2)
    put(queue, "bad")
    for _ in range(10):
        drain(first)
        kill_one(second)
    assert first.retry() + second.retry() == 1
    assert drain(first) + drain(second) in (["bad"], ["bad", "bad"])
    assert first.parked() + second.parked() == []
