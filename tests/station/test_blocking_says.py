"""A put that waits for a station says for whom."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from headrace import Queue
from headrace.errors import BlockedError
from station.handling import put, work
from support.waiting import until

ALL = {"blocking": True, "capacity": 2}


def put_in_thread(queue: Queue, ident: str) -> threading.Thread:
    thread = threading.Thread(target=put, args=(queue, ident), daemon=True)
    thread.start()
    return thread


def test_it_names_the_station_its_backlog_and_its_consumers(
    make_quick: Callable[..., Queue], caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_quick()
    station = queue.station("decode", "**", **ALL)
    put(queue, "1", "2")
    waiting = put_in_thread(queue, "3")
    until(lambda: caplog.messages, "the message")
    assert caplog.messages[0] == "waiting for station decode: 2 of 2 waiting, no consumer attached"
    assert caplog.records[0].levelno == logging.WARNING
    assert caplog.records[0].name.startswith("headrace")
    with station.attach() as consumer:
        assert work(consumer) == ["1", "2"]
        waiting.join(60)
        assert work(consumer) == ["3"]


def test_attached_consumers_and_a_pause_are_part_of_it(
    make_quick: Callable[..., Queue], caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_quick()
    station = queue.station("decode", "**", **ALL)
    with station.attach() as consumer:
        station.pause()
        put(queue, "1", "2")
        waiting = put_in_thread(queue, "3")
        until(lambda: caplog.messages, "the message")
        assert caplog.messages[0] == "waiting for station decode: 2 of 2 waiting, 1 consumer attached, paused"
        station.resume()
        work(consumer)
        waiting.join(60)


def test_every_full_station_is_named(make_quick: Callable[..., Queue], caplog: pytest.LogCaptureFixture) -> None:
    queue = make_quick()
    for name in ("one", "two"):
        queue.station(name, "**", **ALL)
    queue.station("three", "none", **ALL)
    put(queue, "1", "2")
    waiting = put_in_thread(queue, "3")
    until(lambda: caplog.messages, "the message")
    for name in ("one", "two"):
        assert f"station {name}: 2 of 2 waiting, no consumer attached" in caplog.messages[0]
    assert "three" not in caplog.messages[0]
    for name in ("one", "two"):
        queue.station(name).remove()
    waiting.join(60)


def test_a_queue_that_is_full_of_unacknowledged_products_names_the_station(
    make_quick: Callable[..., Queue], caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_quick(size="1MiB", dedup="none")
    queue.station("keep", "**", blocking=True)

    def fill() -> None:
        while not caplog.messages:
            queue.put(b"x" * 10_000, feed="a")

    waiting = threading.Thread(target=fill, daemon=True)
    waiting.start()
    until(lambda: caplog.messages, "the message")
    assert caplog.messages[0].startswith("waiting for station keep: ")
    assert caplog.messages[0].endswith("no consumer attached; their products fill the queue")
    queue.station("keep").remove()
    waiting.join(60)


@pytest.mark.parametrize("timeout", [0.05, 0.3])
def test_many_short_attempts_are_one_wait(
    make_quick: Callable[..., Queue], caplog: pytest.LogCaptureFixture, timeout: float
) -> None:
    queue = make_quick()
    queue.station("decode", "**", **ALL)
    put(queue, "1", "2")

    def attempt() -> list[str]:
        with suppress(BlockedError):
            put(queue, "3", timeout=timeout)
        return caplog.messages

    until(attempt, "the message")


def test_the_error_after_the_timeout_says_it_too(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick()
    queue.station("decode", "**", **ALL)
    put(queue, "1", "2")
    with pytest.raises(BlockedError, match=r"'decode' was full .*2 of 2 waiting, no consumer attached") as told:
        put(queue, "3", timeout=0)
    assert told.value.waits_for == "station decode: 2 of 2 waiting, no consumer attached"


def test_a_station_that_keeps_up_is_not_complained_of(
    make_quick: Callable[..., Queue], caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_quick()
    done: list[Any] = []
    with queue.station("decode", "**", **ALL).attach() as consumer:

        def consume() -> None:
            for batch in consumer.batches(1, timeout=60):
                done.append(batch)
                if len(done) == 500:
                    consumer.ack(batch)
                    return

        worker = threading.Thread(target=consume, daemon=True)
        worker.start()
        put(queue, *(str(number) for number in range(500)))
        worker.join(60)
    assert caplog.messages == []


def test_a_consumer_of_a_paused_station_says_what_it_waits_for(
    make_quick: Callable[..., Queue], caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_quick()
    station = queue.station("decode", "**")
    put(queue, "1")
    station.pause()
    with station.attach() as consumer:
        waiting = threading.Thread(target=consumer.get, daemon=True)
        waiting.start()
        until(lambda: caplog.messages, "the message")
        assert caplog.messages[0].startswith("waiting at station decode, which is paused")
        station.resume()
        waiting.join(60)
        assert not waiting.is_alive()
