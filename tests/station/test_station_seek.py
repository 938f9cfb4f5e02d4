"""Stations are paused, and moved to another position."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from handling import drain, idents, put, vanish, work

from headrace import Queue
from headrace.errors import OptionError

# --- pause and seek -------------------------------------------------------------------------------


def test_a_paused_station_delivers_nothing_and_loses_nothing(queue: Queue) -> None:
    station = queue.station("s", "**")
    consumer = station.attach()
    put(queue, "1", "2")
    held = consumer.get_nowait()
    station.pause()
    put(queue, "3")
    assert work(consumer) == []
    consumer.ack(held)
    told = station.statistics()
    assert (told.paused, told.waiting, told.acknowledged) == (True, 2, 1)
    station.resume()
    assert work(consumer) == ["2", "3"]
    assert not station.statistics().paused


def test_resuming_wakes_a_consumer_that_waits(queue: Queue) -> None:
    station = queue.station("s", "**")
    station.pause()
    put(queue, "1")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(station.attach().get, 1, 20)
        station.resume()
        assert idents(waiting.result(240)) == ["1"]


def test_a_paused_station_stays_paused_after_a_reopening(queue: Queue) -> None:
    queue.station("s", "**").pause()
    queue.close()
    with Queue.open(queue.path) as again:
        assert again.station("s", "**").terms.paused


def test_a_seek_forward_skips_the_products_between(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"12345")
    assert station.seek(4) == 4
    assert drain(station) == ["4", "5"]
    put(queue, "6")
    assert station.seek("next") == 7
    assert drain(station) == []
    put(queue, "7")
    assert drain(station) == ["7"]


def test_a_seek_back_delivers_again(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"123")
    assert drain(station) == ["1", "2", "3"]
    station.seek("oldest")
    assert drain(station) == ["1", "2", "3"]
    station.seek(3)
    put(queue, "4")
    assert drain(station) == ["3", "4"]


def test_a_seek_forgets_waiting_products(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"123")
    assert station.statistics().waiting == 3
    station.seek("next")
    assert station.statistics().waiting == 0
    station.seek(2)
    assert drain(station) == ["2", "3"]


def test_a_seek_leaves_leases_with_their_consumers(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"123")
    consumer = station.attach()
    held = consumer.get_nowait(1)
    station.seek("next")
    assert station.statistics().leased == 1
    consumer.ack(held)
    assert (station.statistics().acknowledged, station.lag().products) == (1, 0)


def test_after_a_seek_back_leased_products_are_not_delivered_again(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"123")
    first, second = station.attach(), station.attach()
    held = first.get_nowait(2)
    station.seek("oldest")
    assert idents(second.get_nowait(9)) == ["3"]
    first.ack(held)


def test_a_seek_back_survives_a_reopening_while_something_is_held(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"123")
    consumer = station.attach()
    consumer.ack(consumer.get_nowait(2))
    consumer.get_nowait(1)
    station.seek(1)
    vanish(consumer)
    queue.close()
    with Queue.open(queue.path) as again:
        assert sorted(set(drain(again.station("s")))) == ["1", "2", "3"]


def test_a_seek_wakes_a_consumer_that_waits(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "1")
    assert drain(station) == ["1"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(station.attach().get, 1, 20)
        station.seek("oldest")
        assert idents(waiting.result(240)) == ["1"]


@pytest.mark.parametrize("start", ["yesterday", -1, None, 1.5])
def test_an_invalid_seek_is_refused(queue: Queue, start: Any) -> None:
    station = queue.station("s", "**")
    put(queue, "1")
    with pytest.raises(OptionError):
        station.seek(start)
    assert drain(station) == ["1"]
