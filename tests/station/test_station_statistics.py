"""What a station counts: statistics, lag, and lost products by cause."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from handling import EPOCH_NS, drain, idents, put, work

from headrace import Queue, Selection
from headrace.testing import MockClock
from support.damage import flip_bit

# --- statistics and lag ---------------------------------------------------------------------------


def test_a_station_counts_what_happens_to_its_products(queue: Queue) -> None:
    station = queue.station("s", "a/**", capacity=4)
    put(queue, *"12345", feed="a/b")
    put(queue, "x", feed="b")
    consumer = station.attach()
    batch = consumer.get_nowait(3)
    consumer.ack(batch[0])
    consumer.discard(batch[1])
    consumer.nack(batch[2], failed=True)
    told = station.statistics()
    assert (told.name, told.selection, told.blocking, told.durable, told.capacity) == ("s", "a/**", False, True, 4)
    assert (told.position, told.behind) == (7, 0)
    assert (told.admitted, told.delivered, told.acknowledged, told.discarded) == (4, 3, 1, 1)
    assert (told.waiting, told.leased, told.retries, told.parked) == (2, 0, 1, 0)
    assert told.dropped == {"flowed_around": 1, "fifo": 0, "priority": 0, "deadline": 0, "parking_full": 0}
    assert (told.expired, told.evicted, told.damaged, told.restored, told.rejected) == (0, 0, 0, 0, 0)
    assert told.consumers == 1
    again = consumer.get_nowait(9)
    assert (station.statistics().redelivered, station.statistics().retries) == (1, 1)
    consumer.ack(again)
    assert (station.statistics().acknowledged, station.statistics().retries) == (3, 0)


def test_the_lag_has_all_unacknowledged_products_and_the_age_of_the_oldest(make_quick: Callable[..., Queue]) -> None:
    clock = MockClock(EPOCH_NS)
    queue = make_quick(clock=clock)
    station = queue.station("s", "**")
    assert (station.lag().products, station.lag().retries, station.lag().seconds) == (0, 0, 0)
    put(queue, "1")
    clock.advance(60)
    put(queue, "2", "3")
    clock.advance(5)
    consumer = station.attach()
    assert (station.lag().products, station.lag().retries, station.lag().seconds) == (3, 0, 65)
    consumer.nack(consumer.get_nowait(), failed=True)
    assert (station.lag().products, station.lag().retries, station.lag().seconds) == (3, 1, 65)
    consumer.ack(consumer.get_nowait())
    assert (station.lag().products, station.lag().retries, station.lag().seconds) == (2, 0, 5)
    consumer.get_nowait(2)
    assert (station.lag().products, station.lag().seconds) == (2, 5)


def test_the_lag_of_a_full_station_includes_products_that_are_not_scanned(
    make_quick: Callable[..., Queue],
) -> None:
    queue = make_quick(dedup="none", size="8MiB")
    station = queue.station("s", "**")
    for _ in range(6):
        queue.put_many([b"x"] * 1000, feed="a")
    told = station.statistics()
    assert told.waiting + told.behind == 6000
    assert told.behind > 0
    assert station.lag().products == 6000


def test_consumers_are_listed_with_what_they_hold(queue: Queue) -> None:
    station, other = queue.station("s", "**"), queue.station("t", "**")
    first, second, _third = station.attach(), station.attach(), other.attach()
    put(queue, *"123")
    first.get_nowait(2)
    second.ack(second.get_nowait(1))
    told = {consumer.place: consumer for consumer in station.consumers()}
    assert sorted((c.leased, c.delivered, c.acknowledged, c.pid, c.alive) for c in told.values()) == [
        (0, 1, 1, os.getpid(), True),
        (2, 2, 0, os.getpid(), True),
    ]


def test_stations_and_consumers_have_a_repr(queue: Queue) -> None:
    station = queue.station("s", "**")
    assert repr(station) == f"<Station 's' of {queue.path}>"
    assert repr(station.attach()) == "<Consumer 0 of 's'>"


# --- lost products, by cause -----------------------------------------------------------------------


def test_expired_products_are_counted_and_not_delivered(make_quick: Callable[..., Queue]) -> None:
    clock = MockClock(EPOCH_NS)
    queue = make_quick(clock=clock)
    station = queue.station("s", "**")
    put(queue, "1", "2", expiry="10s")
    put(queue, "3")
    consumer = station.attach()
    assert idents(consumer.get_nowait(1)) == ["1"]
    clock.advance(10)
    assert idents(consumer.get_nowait(9)) == ["3"]
    assert (station.statistics().expired, station.statistics().waiting) == (1, 0)


def _with_expired_products(make_quick: Callable[..., Queue], **terms: object) -> tuple[Queue, MockClock]:
    clock = MockClock(EPOCH_NS)
    return make_quick(clock=clock, dedup="none", size="8MiB", **terms), clock


def test_expired_products_are_counted_once_where_stations_of_a_chain_read_at_different_speeds(
    make_quick: Callable[..., Queue],
) -> None:
    queue, clock = _with_expired_products(make_quick)
    busy = queue.station("busy", Selection("a", ident="^x"))
    idle = queue.station("idle", Selection("b", ident="^x"), after="busy")
    for _ in range(3):
        queue.put_many([b"1"] * 1000, feed="a", ident="x")
        queue.put(b"2", feed="b", ident="x", expiry="10s")
    clock.advance(10)
    consumer = busy.attach()
    while batch := consumer.get_nowait(500):
        consumer.ack(batch)
    assert (busy.statistics().acknowledged, idle.statistics().expired) == (3000, 3)


def test_expired_products_are_counted_once_behind_products_that_a_full_station_does_not_take_yet(
    make_quick: Callable[..., Queue],
) -> None:
    queue, clock = _with_expired_products(make_quick)
    queue.put_many([b"1"] * 10, feed="a", ident="x")
    queue.put(b"2", feed="a", ident="x", expiry="10s")
    clock.advance(10)
    station = queue.station("s", Selection(ident="^x"), start="oldest", blocking=True, capacity=2)
    consumer = station.attach()
    for _ in range(10):
        consumer.ack(consumer.get_nowait())
    assert len(consumer.get_nowait()) == 0
    assert (station.statistics().acknowledged, station.statistics().expired) == (10, 1)


def test_products_after_the_stop_time_count_as_expired_also_where_idents_decide(
    make_quick: Callable[..., Queue],
) -> None:
    queue, clock = _with_expired_products(make_quick)
    stop_time = datetime.fromtimestamp(EPOCH_NS // 10**9 + 5, UTC)
    stations = [
        queue.station(name, selection, stop_time=stop_time)
        for name, selection in (("rows", Selection("a")), ("idents", Selection("a", ident="^x")))
    ]
    put(queue, "x1", feed="a")
    clock.advance(10)
    put(queue, "x2", "x3", feed="a")
    assert [(s.statistics().waiting, s.statistics().expired) for s in stations] == [(1, 2), (1, 2)]


def test_expired_products_are_counted_with_a_selection_by_ident(make_quick: Callable[..., Queue]) -> None:
    clock = MockClock(EPOCH_NS)
    queue = make_quick(clock=clock)
    station = queue.station("s", Selection(ident="^x"))
    put(queue, "x1", "y2", expiry="10s")
    clock.advance(10)
    assert station.statistics().waiting == 0
    assert station.statistics().expired == 1


def test_products_that_were_deleted_while_they_waited_are_counted(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "1", feed="a")
    put(queue, "2", feed="b")
    assert station.statistics().waiting == 2
    queue.delete("a")
    assert drain(station) == ["2"]
    assert station.statistics().evicted == 1


def test_products_that_were_deleted_before_the_scan_are_skipped(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "1", feed="a")
    put(queue, "2", feed="b")
    queue.delete("a")
    assert drain(station) == ["2"]
    assert station.statistics().evicted == 0


@pytest.mark.parametrize("looked", [True, False], ids=["while they waited", "before any scan"])
@pytest.mark.parametrize("selection", [Selection("a"), Selection(ident="^x")], ids=["by rows", "by reading"])
def test_every_evicted_product_is_counted(make_quick: Callable[..., Queue], looked: bool, selection: Selection) -> None:
    queue = make_quick(size="1MiB", dedup="none")
    station = queue.station("s", selection)
    for number in range(40):
        queue.put(bytes(50_000), feed="a", ident=f"x{number}")
        if looked:
            station.statistics()
    station.statistics()
    assert queue.oldest > 1
    got = drain(station)
    assert got == [f"x{number}" for number in range(queue.oldest - 1, 40)]
    told = station.statistics()
    assert (told.evicted, told.acknowledged) == (queue.oldest - 1, 41 - queue.oldest)


def test_a_get_skips_evicted_products_and_keeps_waiting(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="1MiB", dedup="none")
    station = queue.station("s", Selection("a"))
    put(queue, "1")
    assert station.statistics().waiting == 1
    for _ in range(40):
        queue.put(bytes(50_000), feed="b")
        assert station.statistics().behind == 0
    assert queue.oldest > 1
    consumer = station.attach()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.get, 1, 20)
        put(queue, "2")
        assert idents(waiting.result(240)) == ["2"]
    assert station.statistics().evicted == 1


def spoil(queue: Queue, payload: bytes) -> None:
    """Damage a stored payload; the fixture need not find the queue clean."""
    (queue.path / "spoilt").touch()
    flip_bit(queue.path, payload)


def test_a_damaged_product_is_counted_and_not_delivered(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "first", "to be spoilt", "last")
    spoil(queue, b"to be spoilt")
    assert drain(station) == ["first", "last"]
    told = station.statistics()
    assert (told.damaged, told.acknowledged, told.leased) == (1, 2, 0)


def test_a_damaged_product_is_counted_with_a_selection_by_ident(queue: Queue) -> None:
    station = queue.station("s", Selection(ident="."))
    put(queue, "first", "to be spoilt", "last")
    spoil(queue, b"to be spoilt")
    consumer = station.attach()
    assert station.statistics().waiting == 2
    assert work(consumer) == ["first", "last"]
    assert station.statistics().damaged == 1


@pytest.mark.parametrize("looked", [True, False], ids=["polled", "not polled"])
def test_a_station_that_loses_products_says_so_at_once(make_quick: Callable[..., Queue], looked: bool) -> None:
    queue = make_quick(size="1MiB")
    station = queue.station("s", "a")
    for number in range(120):
        queue.put(os.urandom(20_000), feed="ab"[number % 2], ident=str(number))
        if looked:
            station.statistics()
    held = len(list(queue.read("oldest", "a")))
    told, lag = station.statistics(), station.lag()
    assert held < 60
    assert (told.waiting + told.behind, lag.products) == (held, held)
    assert told.evicted_at_most is not looked
    assert told.evicted == (60 - held if looked else queue.oldest - 1)
    assert (lag.seconds > 0, lag.evicted, lag.evicted_ago_s is not None) == (True, told.evicted, True)
    assert len(drain(station)) == held
