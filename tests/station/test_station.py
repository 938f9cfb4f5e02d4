"""Stations are created, opened, kept after a reopening, and removed."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from handling import EPOCH_NS, drain, idents, put, vanish

from headrace import Queue, Selection
from headrace.errors import (
    QueueClosedError,
    QueueDamagedError,
    QueueVersionError,
    StationError,
    StationExistsError,
    StationMissingError,
    StationNameError,
)
from headrace.testing import MockClock

# --- create and open --------------------------------------------------------------------------------


def test_every_station_gets_all_products_that_it_selects(queue: Queue) -> None:
    everything, only_b = queue.station("all", "**"), queue.station("b", "b/**")
    put(queue, "1", feed="a")
    put(queue, "2", feed="b")
    put(queue, "3", feed="b/c")
    assert drain(everything) == ["1", "2", "3"]
    assert drain(only_b) == ["2", "3"]


def test_a_new_station_gets_only_later_products(queue: Queue) -> None:
    put(queue, "before")
    station = queue.station("s", "**")
    put(queue, "after")
    assert drain(station) == ["after"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [("oldest", ["1", "2", "3"]), (2, ["2", "3"]), ("next", []), ("90s", ["2", "3"])],
)
def test_a_station_may_start_elsewhere(make_quick: Callable[..., Queue], start: Any, expected: list[str]) -> None:
    clock = MockClock(EPOCH_NS)
    queue = make_quick(clock=clock)
    for ident in ("1", "2", "3"):
        put(queue, ident)
        clock.advance(40)
    assert drain(queue.station("s", "**", start=start)) == expected


def test_a_station_that_must_not_be_created_must_exist(queue: Queue) -> None:
    with pytest.raises(StationMissingError, match=r"has no station 's'; create it: queue\.station"):
        queue.station("s", create=False)
    assert queue.stations() == []
    queue.station("s", "a/**")
    assert queue.station("s", create=False).terms.selection == "a/**"


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
def test_an_invalid_name_is_refused(queue: Queue, name: Any) -> None:
    with pytest.raises(StationNameError, match="is invalid"):
        queue.station(name, "**")
    assert queue.stations() == []


@pytest.mark.parametrize("name", ["x", "x" * 120, "é" * 60, "decode level 2", "日本", "..", "1"])
def test_other_names_are_valid(queue: Queue, name: str) -> None:
    station = queue.station(name, "**")
    put(queue, "1")
    assert drain(station) == ["1"]
    assert queue.stations() == [name]


def test_the_stations_of_a_queue_are_listed_in_order(queue: Queue) -> None:
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


def test_a_chain_has_limits(queue: Queue) -> None:
    queue.station("0", "**")
    for number in range(1, 64):
        queue.station(str(number), "**", after=str(number - 1))
    with pytest.raises(StationError, match="64 stations"):
        queue.station("64", "**", after="63")
    consumers = [queue.station(str(number % 64)).attach() for number in range(1024)]
    with pytest.raises(StationError, match="has 1,024 consumers, the maximum"):
        queue.station("0").attach()
    consumers.pop().detach()
    put(queue, "1")
    last = queue.station("0").attach()
    assert idents(last.get_nowait()) == ["1"]


def test_a_damaged_stations_json_is_an_error_that_names_it(queue: Queue) -> None:
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
def test_a_durable_station_keeps_its_position_and_its_products(
    make_quick: Callable[..., Queue], durability: str
) -> None:
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
        assert (idents(batch), batch.deliveries.tolist()) == (["3", "4", "5", "6"], [1, 1, 1, 1])


def test_products_that_were_leased_when_all_processes_died_are_delivered_again(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, *"123")
    consumer = station.attach()
    consumer.ack(consumer.get_nowait(2)[0])
    vanish(consumer)
    queue.close()
    with Queue.open(queue.path) as again:
        batch = again.station("s").attach().get_nowait(9)
        assert (idents(batch), batch.deliveries.tolist()) == (["2", "3"], [2, 1])


def test_products_that_were_put_without_a_consumer_wait(queue: Queue) -> None:
    queue.station("s", "**")
    queue.close()
    with Queue.open(queue.path) as again:
        put(again, "1")
    with Queue.open(queue.path) as again:
        assert drain(again.station("s")) == ["1"]


def test_a_transient_station_ends_with_its_last_consumer(queue: Queue) -> None:
    station = queue.station("s", "**", durable=False)
    first, second = station.attach(), station.attach()
    first.detach()
    assert queue.stations() == ["s"]
    second.detach()
    assert queue.stations() == []
    with pytest.raises(StationMissingError, match="was removed"):
        station.attach()
    assert list((queue.path / "stations").iterdir()) == []


def test_a_transient_station_ends_with_its_last_consumer_even_if_it_died(queue: Queue) -> None:
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


def test_a_transient_station_stays_while_the_queue_is_open(queue: Queue) -> None:
    queue.station("s", "**", durable=False)
    with Queue.open(queue.path) as again:
        assert again.stations() == ["s"]
    assert queue.stations() == ["s"]


# --- remove ---------------------------------------------------------------------------------------


def test_a_removed_station_is_missing(queue: Queue) -> None:
    station = queue.station("s", "**")
    put(queue, "1")
    station.remove()
    assert queue.stations() == []
    for act in (
        station.remove,
        station.attach,
        station.statistics,
        lambda: queue.station("s", create=False),
        lambda: station.terms,
    ):
        with pytest.raises(StationMissingError):
            act()
    fresh = queue.station("s", "**")
    put(queue, "2")
    assert drain(fresh) == ["2"]


def test_consumers_of_a_removed_station_get_an_error(queue: Queue) -> None:
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


def test_a_waiting_consumer_gets_an_error_when_its_station_is_removed(queue: Queue) -> None:
    station = queue.station("s", "**")
    consumer = station.attach()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.get, 1, 20)
        station.remove()
        with pytest.raises(StationMissingError):
            waiting.result(240)


def test_a_consumer_in_another_opening_gets_an_error_after_the_removal(queue: Queue) -> None:
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


def test_a_new_station_is_written_without_encoding_the_others_again(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the 500th costs about as much as the first."""
    lines, encoded = queue._stations._lines, list[object]()
    encode = lines._encode
    monkeypatch.setattr(lines, "_encode", lambda thing: (encoded.append(thing), encode(thing))[1])
    for number in range(3):
        queue.station(f"s{number}", "**")
    assert [getattr(thing, "name", "head") for thing in encoded] == ["s0", "head", "s1", "head", "s2", "head"]
    queue.station("s1").change(capacity=5)
    queue.station("s0").remove()
    with Queue.open(queue.path) as again:
        assert {name: again.station(name).terms.capacity for name in again.stations()} == {"s1": 5, "s2": None}
