"""Blocking stations and a full queue: unacknowledged products are not evicted, and puts wait for room."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from handling import EPOCH_NS, drain, idents, payloads, put, vanish, work

from headrace import Queue
from headrace.errors import BlockedError, HeadraceError
from headrace.testing import MockClock


def fill(queue: Queue, feed: str = "a", size: int = 50_000) -> int:
    """Put until a station blocks; return how many products were put."""
    count = 0
    while True:
        try:
            queue.put(count.to_bytes(4, "big") + bytes(size), feed=feed, ident=str(count), timeout=0)
        except BlockedError:
            return count
        count += 1
        assert count < 1000, "no station blocks this queue"


# --- eviction -------------------------------------------------------------------------------------


def test_products_that_a_blocking_station_has_not_acknowledged_are_not_evicted(
    make_quick: Callable[..., Queue],
) -> None:
    queue = make_quick(size="1MiB")
    station = queue.station("s", "a", blocking=True)
    put(queue, "1")
    count = fill(queue)
    assert (queue.oldest, queue.next) == (1, count + 2)
    with pytest.raises(BlockedError, match="full of products that station 's' has not acknowledged") as told:
        queue.put(bytes(50_000), feed="b", timeout="50ms")
    assert "enlarge" in told.value.hint
    assert queue.next == count + 2
    assert drain(station) == ["1", *(str(number) for number in range(count))]
    queue.put(bytes(50_000), feed="b", timeout=0)


def test_a_put_continues_once_the_products_that_fill_the_queue_are_acknowledged(
    make_quick: Callable[..., Queue],
) -> None:
    queue = make_quick(size="1MiB")
    station = queue.station("s", "**", blocking=True)
    count = fill(queue)
    consumer = station.attach()
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(queue.put, bytes(60_000), feed="b", ident="last", timeout=30)
        got = []
        while len(got) <= count:
            batch = consumer.get(1, timeout=240)
            assert len(batch) == 1
            got += idents(batch)
            consumer.ack(batch)
        putting.result(240)
    assert got == [*(str(number) for number in range(count)), "last"]
    assert station.statistics().evicted == 0


def test_leased_products_are_not_evicted(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="1MiB")
    station = queue.station("s", "a", blocking=True)
    put(queue, "1")
    consumer = station.attach()
    held = consumer.get_nowait()
    fill(queue, feed="b")
    assert queue.oldest == 1
    consumer.ack(held)
    for _ in range(20):
        queue.put(bytes(60_000), feed="b", timeout=0)
        station.statistics()
    assert queue.oldest > 1


def test_products_that_a_blocking_station_does_not_select_are_evicted(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="1MiB", dedup="none")
    queue.station("s", "a", blocking=True)
    for _ in range(50):
        queue.put(bytes(50_000), feed="b", timeout=0)
    assert queue.oldest > 1


def test_the_age_limit_waits_for_a_blocking_station(make_quick: Callable[..., Queue]) -> None:
    clock = MockClock(EPOCH_NS)
    queue = make_quick(size="1MiB", age="10min", clock=clock, dedup="none")
    station = queue.station("s", "a", blocking=True)
    put(queue, "1")
    for _ in range(8):  # so that there are several segments
        queue.put(bytes(50_000), feed="b")
    clock.advance(3600)
    for _ in range(3):
        queue.put(bytes(50_000), feed="b")
        clock.advance(3600)
    assert queue.oldest == 1
    assert drain(station) == ["1"]
    queue.put(bytes(50_000), feed="b")
    assert queue.oldest > 1


def test_a_smaller_queue_keeps_unacknowledged_products(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="4MiB")
    station = queue.station("s", "a", blocking=True)
    count = fill(queue)
    queue.resize(size="1MiB")
    assert (queue.oldest, queue.next) == (1, count + 1)
    assert drain(station) == [str(number) for number in range(count)]
    queue.put(bytes(60_000), feed="b", timeout=0)
    queue.put(bytes(70_000), feed="b", timeout=0)
    assert queue.oldest > 1


def test_a_waiting_producer_detects_the_death_of_a_consumer(make_quick: Callable[..., Queue]) -> None:
    """No other process uses the queue: the waiting put restores the lease to the output, and evicts the product."""
    queue = make_quick(size="1MiB", dedup="none")
    station = queue.station("s", "a", blocking=True, restore="output")
    put(queue, "1")
    dying = station.attach()
    dying.get_nowait()
    fill(queue, feed="b")
    vanish(dying)
    queue.put(bytes(60_000), feed="b", timeout=60)
    assert queue.oldest > 1


def test_a_station_that_does_not_block_prevents_no_eviction(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="1MiB", dedup="none")
    queue.station("s", "a", capacity=1000)
    for _ in range(50):
        queue.put(bytes(50_000), feed="a", timeout=0)
    assert queue.oldest > 1


def test_parked_products_do_not_prevent_eviction(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="1MiB", dedup="none")
    station = queue.station("s", "a", blocking=True, deliveries_max=1)
    put(queue, "1")
    with station.attach() as consumer:
        consumer.nack(consumer.get_nowait(), failed=True)
        assert work(consumer) == []
    assert [parked.ident for parked in station.parked()] == ["1"]
    for _ in range(50):
        queue.put(bytes(50_000), feed="b", timeout=0)
    assert queue.oldest > 1
    assert [(parked.sequence, parked.held) for parked in station.parked()] == [(1, False)]


def test_removing_the_station_unblocks_a_full_queue(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="1MiB")
    station = queue.station("s", "**", blocking=True)
    fill(queue)
    station.remove()
    queue.put(bytes(60_000), feed="b", timeout=0)


def test_unacknowledged_products_are_kept_after_a_reopening(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(size="1MiB")
    queue.station("s", "**", blocking=True)
    count = fill(queue)
    queue.close()
    with Queue.open(queue.path) as again:
        with pytest.raises(BlockedError):
            again.put(bytes(50_000), feed="b", timeout=0)
        assert drain(again.station("s")) == [str(number) for number in range(count)]
        again.put(bytes(50_000), feed="b", timeout=0)


# --- revisions in a full queue --------------------------------------------------------------------


def test_revisions_are_stored_in_a_full_queue(make_quick: Callable[..., Queue]) -> None:
    """Acknowledging makes room, so revisions may exceed the size for a while."""
    queue = make_quick(size="1MiB")
    first = queue.station("first", "**", blocking=True)
    second = queue.station("second", "**", after="first", blocking=True)
    count = fill(queue)
    got: list[bytes] = []
    with first.attach() as consumer, second.attach() as behind:
        while len(batch := consumer.get_nowait()):
            consumer.ack(batch, payloads=[b"new" + bytes(batch[0].payload)])
            found = behind.get_nowait()
            got += [payload[:7] for payload in payloads(found)]
            behind.ack(found)
    assert got == [b"new" + number.to_bytes(4, "big") for number in range(count)]
    for number in range(20):
        queue.put(b"more" + bytes(50_000 + number), feed="b", timeout=0)
        drain(first)
        drain(second)
    assert queue.oldest > 1


def test_all_products_of_a_full_queue_can_be_revised_before_the_next_station_gets_one(
    make_quick: Callable[..., Queue],
) -> None:
    queue = make_quick(size="1MiB")
    first = queue.station("first", "**", blocking=True)
    second = queue.station("second", "**", after="first", blocking=True)
    count = fill(queue)
    with first.attach() as consumer:
        batch = consumer.get_nowait(1000)
        consumer.ack(batch, payloads=[bytes(product.payload) for product in batch])
    assert drain(second) == [str(number) for number in range(count)]
    queue.put(bytes(60_000), feed="b", timeout=0)


def test_revisions_without_room_are_refused(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(size="1MiB")
    first = queue.station("first", "**", blocking=True)
    second = queue.station("second", "**", after="first", blocking=True)
    count = fill(queue)
    done = 0
    with first.attach() as consumer:
        for batch in iter(lambda: consumer.get_nowait(1), None):
            try:
                consumer.ack(batch, payloads=[bytes(200_000)])
            except HeadraceError as error:
                assert isinstance(error, BlockedError)
                break
            done += 1
            assert done <= count
    assert len(drain(second)) == done
    assert len(drain(first)) == count - done
