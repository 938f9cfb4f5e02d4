"""Blocking stations: producers wait while a station is full, and continue when it has room."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from handling import FORK, drain, idents, put, put_together, vanish, work

from headrace import Queue, Selection
from headrace.errors import BlockedError

# --- a full station ------------------------------------------------------------------------------------


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
        putting.result(240)
    assert idents(consumer.get_nowait(9)) == ["2", "3"]


def test_a_put_that_times_out_stores_nothing(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=2)
    put(queue, "1", "2")
    for timeout in (0, "50ms"):
        with pytest.raises(
            BlockedError, match=r"'s' was full until the timeout \(2 of 2 waiting.*nothing was stored"
        ) as told:
            put(queue, "3", timeout=timeout)
        assert "capacity" in told.value.hint
        with pytest.raises(BlockedError):
            put_together(queue, "3", "4", timeout=timeout)
    assert queue.next == 3
    assert idents(queue.read_batch()) == ["1", "2"]
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
        putting = [pool.submit(put, queue, str(number), timeout=240) for number in range(1, 9)]
        while len(got) < 9:
            batch = consumer.get(1, timeout=240)
            assert len(batch) == 1
            consumer.ack(batch)
            got += idents(batch)
        for future in putting:
            future.result(240)
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
            batch = consumer.get(1, timeout=240)
            consumer.ack(batch)
            got += idents(batch)
            assert station.statistics().waiting <= 1
    worker.join(240)
    assert got == [str(number) for number in range(20)]


def test_products_given_back_count_towards_the_capacity_at_once(queue: Queue) -> None:
    """The producer has seen room for three more products; those given back take it."""
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
    """The products of the dead consumer go to the other one, whose gets make room."""
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
    put(queue, "2", timeout=60)


def test_removing_the_station_frees_the_producers(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=1)
    put(queue, "1")
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(put, queue, "2", timeout=30)
        with pytest.raises(TimeoutError):
            putting.result(0.5)
        station.remove()
        putting.result(240)
    assert queue.next == 3


@pytest.mark.parametrize("options", [{"capacity": 5}, {"blocking": False}, {"capacity": None}, {"selection": "b"}])
def test_a_change_of_terms_frees_the_producers(queue: Queue, options: dict[str, object]) -> None:
    station = queue.station("s", "a", blocking=True, capacity=1)
    put(queue, "1")
    assert station.statistics().waiting == 1
    with ThreadPoolExecutor(1) as pool:
        putting = pool.submit(put, queue, "2", timeout=30)
        station.change(**options)
        putting.result(240)


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


def test_a_capacity_is_exceeded_by_less_than_one_batch_however_many_programs_put(queue: Queue) -> None:
    station = queue.station("s", "**", blocking=True, capacity=5)
    consumer = station.attach()

    def put_batches(name: int) -> None:
        for number in range(20):
            queue.put_many([b"x"] * 10, feed="a", ident=[f"{name}.{number}.{each}" for each in range(10)])

    with ThreadPoolExecutor(4) as pool:
        putting = [pool.submit(put_batches, name) for name in range(4)]
        got = 0
        while got < 800:
            waiting = queue.next - 1 - got  # all that was stored and not got yet
            assert waiting <= 4 + 10
            batch = consumer.get(1, timeout=240)
            got += len(batch)
            consumer.ack(batch)
        for each in putting:
            each.result(240)
    assert station.statistics().acknowledged == 800
