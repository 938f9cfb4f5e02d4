"""Consumers attach, detach, fork and die: what becomes of their products."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from handling import FORK, drain, idents, in_child, put, vanish

from headrace import Queue
from headrace.errors import LeaseLostError, StationError
from headrace.station import Consumer, Station

# --- attach and detach ----------------------------------------------------------------------------


def test_detaching_gives_back_unacknowledged_products(queue: Queue, station: Station) -> None:
    put(queue, *"123")
    with station.attach() as consumer:
        consumer.ack(consumer.get_nowait(3)[1])
    assert drain(station) == ["1", "3"]


def test_detaching_wakes_a_consumer_that_waits(queue: Queue, station: Station) -> None:
    put(queue, "1")
    first, second = station.attach(), station.attach()
    first.get_nowait()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.get, 1, 20)
        first.detach()
        assert idents(waiting.result(240)) == ["1"]


def test_detaching_is_not_counted_as_a_death(queue: Queue, station: Station) -> None:
    put(queue, "1")
    with station.attach() as consumer:
        consumer.get_nowait()
    assert station.statistics().restored == 0


def test_the_products_of_a_dropped_consumer_are_delivered_again(queue: Queue, station: Station) -> None:
    put(queue, "1")
    station.attach().get_nowait()
    assert station.statistics().consumers == 0
    assert drain(station) == ["1"]


def test_a_consumer_that_fails_to_detach_keeps_no_lock(queue: Queue, station: Station) -> None:
    """Otherwise its products would stay leased for as long as the process lives."""

    def fail(*about: int) -> bool:
        raise MemoryError

    put(queue, "1")
    consumer = station.attach()
    consumer.get_nowait()
    consumer._kernel = SimpleNamespace(detach=fail, heartbeat=consumer._kernel.heartbeat)  # type: ignore[assignment]
    with pytest.raises(MemoryError):
        consumer.detach()
    assert drain(station) == ["1"]


def test_a_detached_consumer_raises_an_error(queue: Queue, station: Station) -> None:
    put(queue, "1", "2")
    consumer = station.attach()
    batch = consumer.get_nowait()
    consumer.detach()
    consumer.detach()
    for act in (consumer.get_nowait, lambda: consumer.ack(batch), lambda: consumer.discard(batch), consumer.statistics):
        with pytest.raises(StationError, match="has detached"):
            act()
    assert "detached" in repr(consumer)
    assert drain(station) == ["1", "2"]


def test_a_consumer_has_statistics(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, *"1234")
    consumer.ack(consumer.get_nowait(3)[0])
    told = consumer.statistics()
    assert (told.station, told.pid, told.alive) == ("s", os.getpid(), True)
    assert (told.delivered, told.acknowledged, told.leased) == (3, 1, 2)
    assert told.beat_age_s >= 0
    assert [other.place for other in station.consumers()] == [told.place]


def test_the_products_of_a_dead_consumer_are_delivered_first(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, *"1234")
    consumer.ack(consumer.get_nowait(3)[1])
    vanish(consumer)
    assert [told.alive for told in station.consumers()] == [False]
    other = station.attach()
    batch = other.get_nowait(9)
    assert (idents(batch), batch.deliveries.tolist()) == (["1", "3", "4"], [2, 2, 1])
    assert (station.statistics().restored, station.statistics().redelivered) == (2, 2)
    assert [told.alive for told in station.consumers()] == [True]


def test_a_waiting_consumer_detects_a_death_by_itself(queue: Queue, station: Station) -> None:
    put(queue, "1")
    dying, waiting = station.attach(), station.attach()
    dying.get_nowait()
    with ThreadPoolExecutor(1) as pool:
        getting = pool.submit(waiting.get, 1, 20)
        vanish(dying)
        assert idents(getting.result(240)) == ["1"]


def test_a_consumer_that_was_taken_for_dead_cannot_acknowledge(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, "1", "2")
    batch = consumer.get_nowait()
    vanish(consumer)
    consumer._detached = consumer._foreign = (
        False  # it is alive after all, and does not know that it was taken for dead
    )
    station.statistics()
    for act in (lambda: consumer.ack(batch), lambda: consumer.ack(batch, [b"new"]), consumer.get_nowait):
        with pytest.raises(LeaseLostError, match="declared dead"):
            act()
    consumer._detached = consumer._foreign = True
    assert drain(station) == ["1", "2"]


# --- processes and threads ------------------------------------------------------------------------


def test_a_forked_child_cannot_get_for_its_parent(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1", "2")
    assert in_child(consumer.get_nowait).startswith("StationError: this consumer of 's' belongs to process")
    assert (station.statistics().leased, station.statistics().consumers) == (0, 1)


def test_a_forked_child_cannot_get_for_a_parent_that_has_got_products(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, "1", "2")
    consumer.ack(consumer.get_nowait())
    assert "belongs to process" in in_child(consumer.get_nowait)
    assert station.statistics().leased == 0


@pytest.mark.parametrize("how", ["ack", "discard", "nack"])
def test_a_forked_child_cannot_settle_the_leases_of_its_parent(
    queue: Queue, station: Station, consumer: Consumer, how: str
) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    assert "belongs to process" in in_child(lambda: getattr(consumer, how)(batch))
    assert station.statistics().leased == 1
    consumer.ack(batch)


def test_a_forked_child_attaches_its_own_consumer_and_shares_the_products(
    queue: Queue, station: Station, consumer: Consumer
) -> None:
    put(queue, "1", "2", "3")
    mine = consumer.get_nowait()
    assert in_child(lambda: drain(station)) == "['2', '3']"
    consumer.ack(mine)
    assert (station.statistics().acknowledged, station.statistics().consumers) == (3, 1)


def test_a_child_that_ends_does_not_detach_its_parent(queue: Queue, station: Station, consumer: Consumer) -> None:
    put(queue, "1")
    batch = consumer.get_nowait()
    assert in_child(consumer.detach) == "None"
    assert station.statistics().leased == 1
    consumer.ack(batch)
    assert station.statistics().acknowledged == 1


def test_the_death_of_a_parent_is_detected_while_its_child_lives(queue: Queue, station: Station) -> None:
    """The child inherits the parent's lock and must not keep it."""
    put(queue, "1")
    ready, ending = FORK.Pipe(duplex=False), FORK.Pipe(duplex=False)

    def parent() -> None:
        consumer = station.attach()
        assert len(consumer.get_nowait()) == 1
        child = os.fork()
        if child == 0:
            ready[1].send("x")
            ending[0].poll(240)
            os._exit(0)
        signal.pause()

    process = FORK.Process(target=parent)
    process.start()
    assert ready[0].poll(240)
    process.kill()
    process.join()
    batch = station.attach().get(1, timeout=240)
    ending[1].send("x")
    assert (idents(batch), batch.deliveries.tolist()) == (["1"], [2])


def test_the_products_of_a_killed_process_are_delivered_again(queue: Queue, station: Station) -> None:
    put(queue, "1", "2")
    ready = FORK.Pipe(duplex=False)

    def take_and_wait() -> None:
        consumer = station.attach()
        ready[1].send(idents(consumer.get_nowait(2)))
        signal.pause()

    process = FORK.Process(target=take_and_wait)
    process.start()
    assert ready[0].poll(240)
    process.kill()
    process.join()
    assert drain(station) == ["1", "2"]


def consume(station: Station, ended: Any) -> list[int]:
    """All sequences that one consumer gets until the last has been put."""
    got: list[int] = []
    with station.attach() as consumer:
        while True:
            last = ended.is_set()
            batch = consumer.get(7, timeout="50ms")
            consumer.ack(batch)
            got += batch.sequences.tolist()
            if last and not len(batch):
                return got


def test_threads_share_all_products_exactly_once(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none", size="8MiB")
    station = queue.station("s", "**")
    ended = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(consume, station, ended) for _ in range(4)]
        for number in range(1000):
            queue.put(b"x", feed=f"a/{number % 5}")
        ended.set()
        shares = [worker.result(240) for worker in workers]
    assert sorted(sequence for share in shares for sequence in share) == list(range(1, 1001))
    told = station.statistics()
    assert (told.acknowledged, told.delivered, told.redelivered, told.consumers) == (1000, 1000, 0, 0)


def test_processes_share_all_products_exactly_once(make_quick: Callable[..., Queue]) -> None:
    queue = make_quick(dedup="none", size="8MiB")
    station = queue.station("s", "**")
    ended = FORK.Event()

    def run(send: Any) -> None:
        with Queue.open(queue.path) as mine:
            send.send(consume(mine.station("s"), ended))

    results = []
    for _ in range(3):
        receive, send = FORK.Pipe(duplex=False)
        worker = FORK.Process(target=run, args=(send,))
        worker.start()
        results.append((worker, receive))
    for _ in range(500):
        queue.put(b"x", feed="a")
    ended.set()
    shares = [receive.recv() for _, receive in results]
    for worker, _ in results:
        worker.join()
    assert sorted(sequence for share in shares for sequence in share) == list(range(1, 501))
    assert (station.statistics().acknowledged, station.statistics().redelivered) == (500, 0)
