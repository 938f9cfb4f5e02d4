"""Blocking stations: who waits for whom, for how long, and what nobody takes from them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from handling import EPOCH_NS, FORK, drain, idents, payloads, put, put_together, vanish, work

from headrace import Queue, Selection
from headrace.errors import BlockedError, HeadraceError
from headrace.testing import MockClock


def fill(queue: Queue, feed: str = "a", size: int = 50_000) -> int:
    """Put until a station forbids it; how many were put."""
    count = 0
    while True:
        try:
            queue.put(count.to_bytes(4, "big") + bytes(size), feed=feed, ident=str(count), timeout=0)
        except BlockedError:
            return count
        count += 1
        assert count < 1000, "nobody holds this queue back"


# --- a full capacity -----------------------------------------------------------------------------------


def test_a_put_waits_while_the_capacity_is_full(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=2)
    consumer = station.attach()
    put(queue, "1", "2")
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(put, queue, "3")
        with pytest.raises(TimeoutError):
            putting.result(0.5)
        assert queue.next == 3
        assert idents(consumer.get_nowait(1)) == ["1"]
        putting.result(20)
    assert idents(consumer.get_nowait(9)) == ["2", "3"]


def test_a_put_that_times_out_stores_nothing(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=2)
    put(queue, "1", "2")
    for timeout in (0, "50ms"):
        with pytest.raises(BlockedError, match=r"'s' was full \(2 products\).*nothing was stored") as told:
            put(queue, "3", timeout=timeout)
        assert "capacity" in told.value.hint
        with pytest.raises(BlockedError):
            put_together(queue, "3", "4", timeout=timeout)
    assert queue.next == 3
    assert idents(queue.read()) == ["1", "2"]
    assert drain(station) == ["1", "2"]
    put(queue, "3", timeout=0)  # and it was not remembered as a duplicate
    assert drain(station) == ["3"]


def test_leased_products_do_not_count_towards_the_capacity(queue: Queue) -> None:
    consumer = queue.station("s", "**", blocking=True, capacity=2).attach()
    put(queue, "1", "2")
    consumer.get_nowait(2)
    put(queue, "3", "4", timeout=0)
    with pytest.raises(BlockedError):
        put(queue, "5", timeout=0)


def test_a_batch_is_stored_whole_and_admitted_as_room_appears(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=2)
    put_together(queue, *"12345")
    assert (station.statistics().waiting, station.statistics().behind) == (2, 3)
    with pytest.raises(BlockedError):
        put(queue, "6", timeout=0)
    consumer = station.attach()
    assert [work(consumer, 2) for _ in range(3)] == [["1", "2"], ["3", "4"], ["5"]]
    put(queue, "6", timeout=0)
    assert work(consumer) == ["6"]


def test_producers_of_feeds_that_the_station_does_not_select_do_not_wait(queue: Queue) -> None:
    station = queue.station("s", "a/**", blocking=True, capacity=1)
    put(queue, "1", feed="a/x")
    for number in range(5):
        put(queue, f"other {number}", feed=f"b/{number}", timeout=0)  # each feed is a new one
    with pytest.raises(BlockedError):
        put(queue, "2", feed="a/new", timeout=0)
    with pytest.raises(BlockedError):
        queue.put_many([b"x", b"y"], feed=["b/0", "a/x"], timeout=0)
    assert drain(station) == ["1"]


def test_products_that_the_selection_rejects_do_not_count_towards_the_capacity(queue: Queue) -> None:
    station = queue.station("s", Selection("a", ident="^x"), blocking=True, capacity=2)
    for number in range(10):
        put(queue, f"y{number}", timeout=0)
    put(queue, "x1", timeout=0)
    put(queue, "x2", timeout=0)
    with pytest.raises(BlockedError):
        put(queue, "x3", timeout=0)
    assert station.statistics().waiting == 2


def test_a_full_station_does_not_delay_other_stations(queue: Queue) -> None:
    queue.station("slow", "a", blocking=True, capacity=1)
    fast = queue.station("fast", "**")
    put(queue, "1", feed="a")
    put(queue, "2", "3", feed="b")
    assert drain(fast) == ["1", "2", "3"]


def test_every_waiting_producer_is_woken(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=1)
    put(queue, "0")
    consumer = station.attach()
    got = []
    with ThreadPoolExecutor(4) as pool:
        putting = [pool.submit(put, queue, str(number), timeout=30) for number in range(1, 9)]
        while len(got) < 9:
            batch = consumer.get(1, timeout=20)
            assert len(batch) == 1
            consumer.ack(batch)
            got += idents(batch)
        for future in putting:
            future.result(20)
    assert sorted(got) == [str(number) for number in range(9)]


def test_a_producer_in_another_process_waits_too(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=1)
    put(queue, "0")

    def produce() -> None:
        with Queue.open(queue.path) as mine:
            for number in range(1, 20):
                put(mine, str(number))

    worker = FORK.Process(target=produce)
    worker.start()
    got = []
    with station.attach() as consumer:
        while len(got) < 20:
            batch = consumer.get(1, timeout=20)
            consumer.ack(batch)
            got += idents(batch)
            assert station.statistics().waiting <= 1
    worker.join(20)
    assert got == [str(number) for number in range(20)]


def test_products_given_back_count_towards_the_capacity_at_once(queue: Queue) -> None:
    """The producer has seen room for three more; what is given back takes it away again."""
    station = queue.station("s", "**", blocking=True, capacity=4)
    consumer = station.attach()
    put(queue, "1", "2", "3", "4")
    batch = consumer.get_nowait(4)
    put(queue, "5", timeout=0)
    consumer.nack(batch)
    with pytest.raises(BlockedError):
        put(queue, "6", timeout=0)


def test_a_seek_back_makes_producers_wait(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=4)
    consumer = station.attach()
    put(queue, "1", "2", "3", "4")
    assert work(consumer, 4) == ["1", "2", "3", "4"]
    put(queue, "5", timeout=0)
    assert work(consumer) == ["5"]
    station.seek("oldest")
    with pytest.raises(BlockedError):
        put(queue, "6", timeout=0)


def test_another_consumer_makes_room_after_a_death(queue: Queue) -> None:
    """The products of the dead one come to the other consumer, whose gets make room."""
    station = queue.station("s", "**", blocking=True, capacity=2)
    dying, other = station.attach(), station.attach()
    put(queue, "1", "2")
    dying.get_nowait(2)
    put(queue, "3", "4")
    vanish(dying)
    with pytest.raises(BlockedError):
        put(queue, "5", timeout=0)
    assert (station.lag().products, station.statistics().restored) == (4, 2)
    assert [work(other) for _ in range(2)] == [["1", "2"], ["3", "4"]]
    put(queue, "5", timeout=0)


def test_a_product_restored_to_the_output_does_not_count_towards_the_capacity(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=1, restore="output")
    dying = station.attach()
    put(queue, "1")
    dying.get_nowait()
    vanish(dying)
    put(queue, "2", timeout=0)
    with pytest.raises(BlockedError):
        put(queue, "3", timeout=0)
    assert station.statistics().restored == 1


def test_the_death_of_the_last_consumer_of_a_transient_station_frees_the_producers(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=1, durable=False)
    dying = station.attach()
    put(queue, "1")
    vanish(dying)
    put(queue, "2", timeout=1)


def test_removing_the_station_frees_the_producers(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=1)
    put(queue, "1")
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(put, queue, "2", timeout=30)
        with pytest.raises(TimeoutError):
            putting.result(0.5)
        station.remove()
        putting.result(20)
    assert queue.next == 3


@pytest.mark.parametrize("options", [{"capacity": 5}, {"blocking": False}, {"capacity": None}, {"selection": "b"}])
def test_a_change_of_terms_frees_the_producers(queue: Queue, options: dict[str, object]) -> None:
    station = queue.station("s", "a", blocking=True, capacity=1)
    put(queue, "1")
    assert station.statistics().waiting == 1
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(put, queue, "2", timeout=30)
        station.change(**options)
        putting.result(20)


def test_a_station_can_be_made_blocking_while_producers_work(queue: Queue) -> None:
    station = queue.station("s", "**", capacity=2)
    with Queue.open(queue.path) as other:
        put(other, "1", "2", "3")
        assert station.statistics().dropped["flowed_around"] == 1
        station.change(blocking=True)
        with pytest.raises(BlockedError):
            put(other, "4", timeout=0)
    assert drain(station) == ["1", "2"]


def test_a_paused_blocking_station_makes_producers_wait_and_loses_nothing(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=2)
    station.pause()
    put(queue, "1", "2")
    with pytest.raises(BlockedError):
        put(queue, "3", timeout=0)
    station.resume()
    assert drain(station) == ["1", "2"]
    put(queue, "3", timeout=0)
    assert drain(station) == ["3"]


def test_a_seek_frees_the_producers(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=1)
    put(queue, "1")
    station.seek("next")
    put(queue, "2", timeout=0)
    assert drain(station) == ["2"]


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
            batch = consumer.get(1, timeout=20)
            assert len(batch) == 1
            got += idents(batch)
            consumer.ack(batch)
        putting.result(20)
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
    """Whoever works makes room; so they may go beyond the size for a while."""
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
