"""Stations: how they are made, opened, moved, counted and removed."""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from handling import EPOCH_NS, drain, idents, put, vanish, work

from headrace import Queue, Selection
from headrace.errors import (
    OptionError,
    QueueClosedError,
    QueueDamagedError,
    QueueVersionError,
    StationError,
    StationExistsError,
    StationMissingError,
    StationNameError,
)
from headrace.testing import MockClock


@pytest.fixture
def queue(make_quick: Callable[..., Queue]) -> Queue:
    return make_quick()


# --- make and open --------------------------------------------------------------------------------


def test_every_station_sees_all_that_it_selects(queue: Queue) -> None:
    everything, only_b = queue.station("all", "**"), queue.station("b", "b/**")
    put(queue, "1", feed="a")
    put(queue, "2", feed="b")
    put(queue, "3", feed="b/c")
    assert drain(everything) == ["1", "2", "3"]
    assert drain(only_b) == ["2", "3"]


def test_a_station_begins_with_what_is_put_after_it_was_made(queue: Queue) -> None:
    put(queue, "before")
    station = queue.station("s", "**")
    put(queue, "after")
    assert drain(station) == ["after"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [("oldest", ["1", "2", "3"]), (2, ["2", "3"]), ("next", []), ("90s", ["2", "3"]), (99, [])],
)
def test_a_station_may_begin_elsewhere(make_quick: Callable[..., Queue], start: Any, expected: list[str]) -> None:
    clock = MockClock(EPOCH_NS)
    queue = make_quick(clock=clock)
    for ident in ("1", "2", "3"):
        put(queue, ident)
        clock.advance(40)
    assert drain(queue.station("s", "**", start=start)) == expected


def test_a_station_without_terms_must_exist(queue: Queue) -> None:
    with pytest.raises(StationMissingError, match="has no station 's'") as told:
        queue.station("s")
    assert "selection=" in told.value.hint
    assert queue.stations() == []


def test_an_existing_station_is_opened_without_terms_or_on_the_same_terms(queue: Queue) -> None:
    made = queue.station("s", "a/**", capacity=5, order="fifo", hung_after="10s")
    put(queue, "1", feed="a/b")
    for opened in (
        queue.station("s"),
        queue.station("s", "a/**"),
        queue.station("s", Selection("a/**"), capacity=5),
        queue.station("s", {"feed": "a/**"}, hung_after=10, order="fifo", capacity=5, blocking=False),
    ):
        assert opened.terms == made.terms
    assert drain(queue.station("s")) == ["1"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"selection": "b"}, "selection 'a', not 'b'"),
        ({"selection": lambda product: True}, "local"),
        ({"capacity": 6}, "capacity 5, not 6"),
        ({"blocking": True}, "blocking False, not True"),
        ({"order": "fifo"}, "order 'priority', not 'fifo'"),
        ({"durable": False}, "durable"),
        ({"prescale": 2}, "prescale 1, not 2"),
        ({"group": "g"}, "group"),
        ({"timeout": "5s"}, "timeout"),
    ],
)
def test_a_station_that_exists_on_other_terms_is_not_opened(queue: Queue, options: dict[str, Any], named: str) -> None:
    terms = queue.station("s", "a", capacity=5).terms
    with pytest.raises(StationExistsError, match="station 's' exists") as told:
        queue.station("s", **options)
    if callable(options.get("selection")):
        assert "selection" in str(told.value) or "local" in str(told.value)
    else:
        assert named in str(told.value)
    assert queue.station("s").terms == terms


def test_a_station_that_stands_elsewhere_is_not_opened(queue: Queue) -> None:
    queue.station("first", "**")
    queue.station("s", "**")
    with pytest.raises(StationExistsError, match="after"):
        queue.station("s", "**", after="first")


def test_everything_that_differs_is_named(queue: Queue) -> None:
    queue.station("s", "a", capacity=5)
    with pytest.raises(StationExistsError) as told:
        queue.station("s", "b", capacity=6, order="fifo")
    assert all(word in str(told.value) for word in ("selection", "capacity", "order"))


@pytest.mark.parametrize(
    "name", ["", "x" * 121, "é" * 61, "a/b", "two\nlines", "tab\t", " a", "a ", "\x00", "\ud800", None, 7, b"a"]
)
def test_a_name_that_will_not_do_is_refused(queue: Queue, name: Any) -> None:
    with pytest.raises(StationNameError, match="is invalid"):
        queue.station(name, "**")
    assert queue.stations() == []


@pytest.mark.parametrize("name", ["x", "x" * 120, "é" * 60, "decode level 2", "日本", "..", "1"])
def test_other_names_will_do(queue: Queue, name: str) -> None:
    station = queue.station(name, "**")
    put(queue, "1")
    assert drain(station) == ["1"]
    assert queue.stations() == [name]


def test_the_stations_of_a_queue_are_told_in_order(queue: Queue) -> None:
    for name in ("m", "z", "a"):
        queue.station(name, "**")
    assert queue.stations() == ["a", "m", "z"]
    with Queue.open(queue.path) as again:
        assert again.stations() == ["a", "m", "z"]


def test_two_openings_share_a_station(queue: Queue) -> None:
    station = queue.station("s", "**")
    with Queue.open(queue.path) as again:
        here, there = station.attach(), again.station("s").attach()
        put(queue, *"1234")
        assert idents(there.get_nowait(1)) == ["1"]
        assert idents(here.get_nowait(2)) == ["2", "3"]
        assert idents(there.get_nowait(9)) == ["4"]
        assert station.statistics().leased == again.station("s").statistics().leased == 4
        there.detach()
    assert station.statistics().leased == 2


def test_a_closed_queue_opens_no_station(queue: Queue) -> None:
    station = queue.station("s", "**")
    queue.close()
    for act in (lambda: queue.station("s"), queue.stations, station.attach):
        with pytest.raises(QueueClosedError):
            act()


def test_there_are_limits_of_a_line(queue: Queue) -> None:
    queue.station("0", "**")
    for number in range(1, 64):
        queue.station(str(number), "**", after=str(number - 1))
    with pytest.raises(StationError, match="64 stations"):
        queue.station("64", "**", after="63")
    consumers = [queue.station(str(number % 64)).attach() for number in range(256)]
    with pytest.raises(StationError, match="has 256 consumers, the maximum"):
        queue.station("0").attach()
    consumers.pop().detach()
    put(queue, "1")
    last = queue.station("0").attach()
    assert idents(last.get_nowait()) == ["1"]


def test_a_registry_that_cannot_be_read_is_told_in_words(queue: Queue) -> None:
    queue.station("s", "**")
    queue.close()
    file = queue.path / "stations.json"
    text = file.read_text()
    file.write_text("{")
    (queue.path / "spoilt").touch()
    with pytest.raises(QueueDamagedError, match=r"stations\.json"):
        Queue.open(queue.path)
    file.write_text(json.dumps({**json.loads(text), "format": 99}))
    with pytest.raises(QueueVersionError, match="format 99"):
        Queue.open(queue.path)
    file.write_text(text)
    (queue.path / "spoilt").unlink()
    with Queue.open(queue.path) as again:
        assert again.stations() == ["s"]


# --- durable and not ------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["memory", "process", "disk"])
def test_a_durable_station_keeps_its_place_and_what_it_holds(make_quick: Callable[..., Queue], durability: str) -> None:
    queue = make_quick(durability=durability)
    station = queue.station("s", "**", capacity=100)
    put(queue, *"12345")
    consumer = station.attach()
    consumer.ack(consumer.get_nowait(2))
    consumer.get_nowait(1)
    put(queue, "6")
    consumer.detach()
    terms = station.terms
    queue.close()
    with Queue.open(queue.path) as again:
        station = again.station("s")
        assert station.terms == terms
        told = station.statistics()
        assert (told.waiting, told.leased, told.acknowledged, told.consumers) == (4, 0, 2, 0)
        batch = station.attach().get_nowait(9)
        assert (idents(batch), batch.deliveries.tolist()) == (["3", "4", "5", "6"], [2, 1, 1, 1])


def test_what_was_leased_when_everybody_died_is_handed_out_again(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"123")
    consumer = station.attach()
    consumer.ack(consumer.get_nowait(2)[0])
    vanish(consumer)
    queue.close()
    with Queue.open(queue.path) as again:
        batch = again.station("s").attach().get_nowait(9)
        assert (idents(batch), batch.deliveries.tolist()) == (["2", "3"], [2, 1])


def test_what_was_put_while_nobody_was_there_waits(queue: Queue) -> None:
    queue.station("s", "**")
    queue.close()
    with Queue.open(queue.path) as again:
        put(again, "1")
    with Queue.open(queue.path) as again:
        assert drain(again.station("s")) == ["1"]


def test_a_transient_station_goes_with_its_last_consumer(queue: Queue) -> None:
    station = queue.station("s", "**", durable=False)
    first, second = station.attach(), station.attach()
    first.detach()
    assert queue.stations() == ["s"]
    second.detach()
    assert queue.stations() == []
    with pytest.raises(StationMissingError, match="was removed"):
        station.attach()
    assert list((queue.path / "stations").iterdir()) == []


def test_a_transient_station_goes_with_its_last_consumer_also_if_that_died(queue: Queue) -> None:
    station = queue.station("s", "**", durable=False)
    vanish(station.attach())
    put(queue, "1")
    with pytest.raises(StationMissingError):
        station.statistics()
    assert queue.stations() == []


def test_a_transient_station_does_not_survive_a_reopening(queue: Queue) -> None:
    queue.station("kept", "**")
    queue.station("s", "**", durable=False)
    queue.close()
    with Queue.open(queue.path) as again:
        assert again.stations() == ["kept"]
        assert len(list((queue.path / "stations").iterdir())) == 1


def test_a_transient_station_stays_while_somebody_has_the_queue_open(queue: Queue) -> None:
    queue.station("s", "**", durable=False)
    with Queue.open(queue.path) as again:
        assert again.stations() == ["s"]
    assert queue.stations() == ["s"]


# --- pause and seek -------------------------------------------------------------------------------


def test_a_paused_station_hands_nothing_out_and_loses_nothing(queue: Queue) -> None:
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
        assert idents(waiting.result(20)) == ["1"]


def test_a_station_stays_paused_over_a_reopening_and_is_opened_on_its_terms(queue: Queue) -> None:
    queue.station("s", "**").pause()
    queue.close()
    with Queue.open(queue.path) as again:
        assert again.station("s", "**").terms.paused


def test_a_seek_forward_passes_over_what_lies_between(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"12345")
    assert station.seek(4) == 4
    assert drain(station) == ["4", "5"]
    put(queue, "6")
    assert station.seek("next") == 7
    assert drain(station) == []
    put(queue, "7")
    assert drain(station) == ["7"]


def test_a_seek_back_hands_out_again(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"123")
    assert drain(station) == ["1", "2", "3"]
    station.seek("oldest")
    assert drain(station) == ["1", "2", "3"]
    station.seek(3)
    put(queue, "4")
    assert drain(station) == ["3", "4"]


def test_a_seek_forgets_what_waits(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"123")
    assert station.statistics().waiting == 3
    station.seek("next")
    assert station.statistics().waiting == 0
    station.seek(2)
    assert drain(station) == ["2", "3"]


def test_a_seek_leaves_consumers_what_they_hold(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"123")
    consumer = station.attach()
    held = consumer.get_nowait(1)
    station.seek("next")
    assert station.statistics().leased == 1
    consumer.ack(held)
    assert (station.statistics().acknowledged, station.lag().products) == (1, 0)


def test_after_a_seek_back_nobody_gets_what_somebody_holds(queue: Queue) -> None:
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
        assert idents(waiting.result(20)) == ["1"]


@pytest.mark.parametrize("start", ["yesterday", -1, None, 1.5])
def test_a_seek_to_nowhere_is_refused(queue: Queue, start: Any) -> None:
    station = queue.station("s", "**")
    put(queue, "1")
    with pytest.raises(OptionError):
        station.seek(start)
    assert drain(station) == ["1"]


# --- remove ---------------------------------------------------------------------------------------


def test_a_removed_station_is_missing(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "1")
    station.remove()
    assert queue.stations() == []
    for act in (station.remove, station.attach, station.statistics, lambda: queue.station("s"), lambda: station.terms):
        with pytest.raises(StationMissingError):
            act()
    fresh = queue.station("s", "**")
    put(queue, "2")
    assert drain(fresh) == ["2"]


def test_consumers_of_a_removed_station_are_told(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "1", "2")
    consumer = station.attach()
    held = consumer.get_nowait()
    station.remove()
    with pytest.raises(StationMissingError, match="was removed"):
        consumer.get(timeout=5)
    with pytest.raises(StationError):
        consumer.ack(held)
    consumer.detach()


def test_a_consumer_that_waits_at_a_station_is_told_of_its_removal(queue: Queue) -> None:
    station = queue.station("s", "**")
    consumer = station.attach()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.get, 1, 20)
        station.remove()
        with pytest.raises(StationMissingError):
            waiting.result(20)


def test_a_consumer_in_another_opening_is_told_of_the_removal(queue: Queue) -> None:
    station = queue.station("s", "**")
    with Queue.open(queue.path) as again:
        consumer = again.station("s").attach()
        station.remove()
        with pytest.raises(StationMissingError):
            consumer.get_nowait()
        assert again.stations() == []
        consumer.detach()


def test_consumers_of_a_removed_station_do_not_serve_its_successor(queue: Queue) -> None:
    first = queue.station("first", "**")
    old = queue.station("old", "**", after="first")
    consumer = old.attach()
    old.remove()
    new = queue.station("new", "**", after="first")
    put(queue, "1")
    assert drain(first) == ["1"]
    assert new.statistics().consumers == 0
    with pytest.raises(StationError):
        consumer.get_nowait()
    assert drain(new) == ["1"]


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


def test_the_lag_has_everything_not_done_and_the_age_of_the_oldest(make_quick: Callable[..., Queue]) -> None:
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


def test_the_lag_of_a_station_with_a_full_window_has_what_was_not_looked_at(
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


def test_a_position_beyond_the_end_is_not_behind(queue: Queue) -> None:
    station = queue.station("s", "**", start=10)
    put(queue, *"123")
    assert (station.lag().products, station.statistics().behind) == (0, 0)


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


def test_handles_and_consumers_say_what_they_are(queue: Queue) -> None:
    station = queue.station("s", "**")
    assert repr(station) == f"<Station 's' of {queue.path}>"
    assert repr(station.attach()) == "<Consumer 0 of 's'>"


# --- what is lost, by cause -----------------------------------------------------------------------


def test_expired_products_are_not_handed_out_and_counted(make_quick: Callable[..., Queue]) -> None:
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


def test_expired_products_are_counted_also_where_idents_decide(make_quick: Callable[..., Queue]) -> None:
    clock = MockClock(EPOCH_NS)
    queue = make_quick(clock=clock)
    station = queue.station("s", Selection(ident="^x"))
    put(queue, "x1", "y2", expiry="10s")
    clock.advance(10)
    assert station.statistics().waiting == 0
    assert station.statistics().expired == 1


def test_products_that_were_deleted_while_they_waited_are_counted_as_gone(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "1", feed="a")
    put(queue, "2", feed="b")
    assert station.statistics().waiting == 2
    queue.delete("a")
    assert drain(station) == ["2"]
    assert station.statistics().evicted == 1


def test_products_that_were_deleted_before_anybody_looked_are_passed_over(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "1", feed="a")
    put(queue, "2", feed="b")
    queue.delete("a")
    assert drain(station) == ["2"]
    assert station.statistics().evicted == 0


@pytest.mark.parametrize("looked", [True, False], ids=["while they waited", "before anybody looked"])
@pytest.mark.parametrize("selection", [Selection("a"), Selection(ident="^x")], ids=["by rows", "by reading"])
def test_evicted_products_are_counted_to_the_last(
    make_quick: Callable[..., Queue], looked: bool, selection: Selection
) -> None:
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


def test_a_get_passes_over_what_was_evicted_and_goes_on_waiting(make_quick: Callable[..., Queue]) -> None:
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
        assert idents(waiting.result(20)) == ["2"]
    assert station.statistics().evicted == 1


def spoil(queue: Queue, payload: bytes) -> None:
    """Alter one byte of a payload behind the queue's back."""
    (queue.path / "spoilt").touch()
    for segment in (queue.path / "segments").glob("*.segment"):
        data = segment.read_bytes()
        if (place := data.find(payload)) >= 0:
            with segment.open("r+b") as handle:
                handle.seek(place)
                handle.write(bytes([payload[0] ^ 1]))


def test_a_damaged_product_is_not_handed_out_and_counted(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "first", "to be spoilt", "last")
    spoil(queue, b"to be spoilt")
    assert drain(station) == ["first", "last"]
    told = station.statistics()
    assert (told.damaged, told.acknowledged, told.leased) == (1, 2, 0)


def test_a_damaged_product_is_counted_also_where_idents_decide(queue: Queue) -> None:
    station = queue.station("s", Selection(ident="."))
    put(queue, "first", "to be spoilt", "last")
    spoil(queue, b"to be spoilt")
    consumer = station.attach()
    assert station.statistics().waiting == 2
    assert work(consumer) == ["first", "last"]
    assert station.statistics().damaged == 1
