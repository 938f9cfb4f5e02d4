"""Stations: the same tests on a local and on a remote queue."""

import threading
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from headrace import Selection
from headrace.errors import (
    ConsumersFullError,
    OptionError,
    StationExistsError,
    StationMissingError,
)
from headrace.queue import AnyQueue, AnyStation
from support.serving import idents, put, work


def test_a_station_is_created_and_opened_with_its_terms(queue: AnyQueue) -> None:
    made = queue.station(
        "s", Selection("wx/**", ident="^S", every=2), blocking=True, capacity=10, hung_after=timedelta(minutes=1),
        timeout="10s", start_time=datetime(2026, 1, 1, tzinfo=UTC), batch_max=5, pacing=0.25, consumers_max=None,
    )  # fmt: skip
    terms = made.terms
    assert (terms.selection, terms.prescale, terms.capacity, terms.blocking) == (
        str(Selection("wx/**", ident="^S")),
        2,
        10,
        True,
    )
    assert (terms.hung_after_s, terms.timeout_s, terms.start_ns) == (60.0, 10.0, 1767225600 * 10**9)
    assert (queue.stations(), queue.station("s").name) == (["s"], "s")
    with pytest.raises(StationExistsError, match="capacity 10, not 11"):
        queue.station("s", capacity=11)


def test_a_station_without_a_selection_receives_everything(queue: AnyQueue) -> None:
    put(queue, "1", feed="a")
    put(queue, "2", feed="b/c")
    assert queue.station("s", start="oldest").terms == msgspec.structs.replace(
        queue.station("same", None, start="oldest").terms, name="s", chain=queue.station("s").terms.chain
    )
    assert work(queue.station("s")) == ["1", "2"]


def test_a_station_is_created_only_if_it_may_be(queue: AnyQueue) -> None:
    with pytest.raises(StationMissingError, match="has no station 'typo'"):
        queue.station("typo", create=False)
    assert queue.stations() == []
    queue.station("s", "a/**")
    assert queue.station("s").terms.selection == queue.station("s", create=False).terms.selection == "a/**"


def test_a_station_starts_at_its_start(queue: AnyQueue) -> None:
    put(queue, *"123")
    assert work(queue.station("old", "**", start="oldest")) == ["1", "2", "3"]
    assert work(queue.station("third", "**", start=3)) == ["3"]
    assert work(queue.station("new", "**")) == []


def test_terms_change_while_consumers_work(queue: AnyQueue, station: AnyStation) -> None:
    station.change(selection="b", capacity=7, timeout=None)
    assert (station.terms.selection, station.terms.capacity) == ("b", 7)
    put(queue, "1", feed="a")
    put(queue, "2", feed="b")
    assert work(station) == ["2"]
    with pytest.raises(OptionError, match="cannot change"):
        station.change(group="g")


def test_a_station_is_paused_moved_and_removed(queue: AnyQueue, station: AnyStation) -> None:
    put(queue, *"12")
    station.pause()
    assert (station.terms.paused, work(station)) == (True, [])
    station.resume()
    assert work(station) == ["1", "2"]
    assert station.seek("oldest") == 1
    assert work(station) == ["1", "2"]
    station.remove()
    assert queue.stations() == []
    with pytest.raises(StationMissingError, match="was removed"):
        station.terms


def test_statistics_of_a_station_and_its_consumers(queue: AnyQueue, station: AnyStation) -> None:
    put(queue, *"123")
    with station.attach() as consumer:
        consumer.get(2)
        told, lag = station.statistics(), station.lag()
        assert (told.waiting, told.leased, told.delivered, told.consumers) == (1, 2, 2, 1)
        assert (lag.products, lag.retries) == (3, 0)
        assert [(each.station, each.leased, each.alive) for each in station.consumers()] == [("s", 2, True)]
        mine = consumer.statistics()
        assert (mine.leased, mine.delivered, mine.acknowledged, mine.alive) == (2, 2, 0, True)


def test_a_transient_station_ends_with_its_last_consumer(queue: AnyQueue) -> None:
    with queue.station("t", "**", durable=False).attach():
        assert queue.stations() == ["t"]
    assert queue.stations() == []


def test_pacing_fills_batches(queue: AnyQueue) -> None:
    station = queue.station("s", "**", batch_max=4, pacing="1min")
    with station.attach() as consumer:
        put(queue, "1")
        timer = threading.Timer(0.1, put, (queue, "2", "3", "4"))
        timer.start()
        assert idents(consumer.get(9, timeout=60)) == ["1", "2", "3", "4"]
        timer.join()


def test_consumers_beyond_consumers_max_are_refused(queue: AnyQueue) -> None:
    station = queue.station("s", "**", consumers_max=1)
    with station.attach(), pytest.raises(ConsumersFullError, match="1 consumer, its consumers_max"):
        station.attach()
