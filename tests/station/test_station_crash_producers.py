"""Producers at a blocking station wait for live consumers and never for dead ones, and are killed while they wait."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from arena_stations import UNLIMITED, Arena, Ledger, checked_queue, consume, produce, recoveries, sequences_of

from headrace import Queue
from headrace.errors import BlockedError
from support.seeds import random_seed
from support.waiting import until

CAPACITY = 20
FEEDS = ("f/1",)


@pytest.fixture
def path(shared_memory: Path) -> Iterator[Path]:
    with checked_queue(shared_memory / "q", selection="f/**", blocking=True, capacity=CAPACITY, **UNLIMITED) as path:
        yield path


def put_singly(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
    """Put one product after another, until the end."""
    with Queue.open(path) as queue:
        number = 0
        while not (folder / "stop").exists():
            ledger.note("try")
            first = queue.put_many([b"%d" % number], feed="f/1").first
            ledger.note("f/1", [first])
            number += 1


def next_of(path: Path) -> int:
    with Queue.open(path) as queue:
        return queue.next


def wait_until_full(path: Path) -> int:
    """Wait until as many products wait at the station as it may have; return the next sequence of the queue."""
    with Queue.open(path) as queue:
        until(lambda: queue.station("s").statistics().waiting >= CAPACITY, "the station is full")
        return queue.next


def test_producers_continue_when_a_new_consumer_replaces_dead_ones(path: Path) -> None:
    with Arena(path, path.parent / "ledgers", random_seed()) as arena:
        consumers = [arena.start(consume, "s", 5) for _ in range(2)]
        for _ in range(2):
            arena.start(produce, FEEDS, 0.001)
        until(lambda: next_of(path) > 5 * CAPACITY, "products flow")
        for consumer in consumers:
            arena.kill(consumer)
        stuck_at = wait_until_full(path)
        arena.start(consume, "s", 5)
        took_s = until(lambda: next_of(path) > stuck_at + 5 * CAPACITY, "products flow again")
        print(f"products flowed again after {took_s:.2f} s")
        arena.finish("s")
        with Queue.open(path) as queue:
            arena.judge(queue, sequences_of(queue), "s")


def test_a_put_that_times_out_after_a_death_stores_nothing(path: Path) -> None:
    def take_some_and_die(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
        with Queue.open(path) as queue, queue.station("s").attach() as consumer:
            consumer.get(5, 10.0)
            os.kill(os.getpid(), signal.SIGKILL)

    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", random_seed()) as arena:
        queue.put_many([b""] * CAPACITY, feed="f/1")
        arena.run(take_some_and_die)
        queue.put_many([b""] * 5, feed="f/1", timeout=0)  # the dead consumer had made room for these
        before = queue.next
        for timeout in (0, 0.3, "1s"):
            with pytest.raises(BlockedError, match="nothing was stored"):
                queue.put(b"one more", feed="f/1", timeout=timeout)
            with pytest.raises(BlockedError, match="nothing was stored"):
                queue.put_many([b"one more"] * 3, feed="f/1", timeout=0)
        assert queue.next == before
        assert queue.put(b"for others", feed="g", timeout=0) == before  # the station does not select feed g
        told = queue.station("s").statistics()
        assert (told.restored, told.leased, told.waiting) == (
            5,
            0,
            CAPACITY,
        )  # the leases of the dead consumer are restored


def test_producers_killed_while_they_wait_leave_nothing_behind(path: Path) -> None:
    with Arena(path, path.parent / "ledgers", random_seed()) as arena:
        producers = [arena.start(put_singly) for _ in range(4)]
        stuck_at = wait_until_full(path)
        for producer in producers[:3]:
            arena.kill(producer)
        assert next_of(path) == stuck_at
        arena.start(consume, "s", 3)
        until(lambda: next_of(path) > stuck_at + 2 * CAPACITY, "the live producer continues")
        arena.end("stop", put_singly)
        arena.finish("s")
        with Queue.open(path) as queue:
            put = {sequence for producer in producers for sequence in producer.sequences("f/1")}
            assert put == sequences_of(queue)
            arena.judge(queue, put, "s")


def test_a_transient_station_blocks_no_producer_after_its_last_consumer_was_killed(path: Path) -> None:
    def attach_and_die(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
        with Queue.open(path) as queue, queue.station("passing").attach():
            os.kill(os.getpid(), signal.SIGKILL)

    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", random_seed()) as arena:
        queue.station("passing", "g", blocking=True, capacity=1, durable=False)
        arena.run(attach_and_die)
        for _ in range(3):
            queue.put(b"", feed="g", timeout=60)
        assert queue.stations() == ["s"]


def siege(path: Path, seed: int, kills: int) -> str:
    """Kill producers and consumers at random while the station is mostly full."""
    with Arena(path, path.parent / "ledgers", seed) as arena:
        for n in (1, 7):
            arena.start(consume, "s", n, 0.01)
        for _ in range(4):
            arena.start(put_singly)
        for _ in range(kills):
            time.sleep(arena.chance.uniform(0.005, 0.1))
            arena.kill_one(arena.chance.choice([consume, put_singly]))
        before = next_of(path)
        until(lambda: next_of(path) > before + CAPACITY, "the survivors continue")
        arena.end("stop", put_singly)
        arena.finish("s")
        with Queue.open(path) as queue:
            put = {sequence for actor in arena.actors for sequence in actor.sequences("f/1")}
            assert put <= sequences_of(queue)
            arena.judge(queue, sequences_of(queue), "s")
            inside, admitted = recoveries(queue, 1), queue.station("s").statistics().admitted
            assert queue.statistics().evicted_products == 0
    return f"{arena.kills()} kills, {inside} inside the lock, {admitted} products"


def test_no_process_hangs_when_both_sides_of_a_full_station_are_killed(path: Path) -> None:
    print(siege(path, random_seed(), kills=15))


@pytest.mark.soak
def test_no_process_hangs_when_both_sides_of_a_full_station_are_killed_hundreds_of_times(path: Path) -> None:
    print(siege(path, random_seed(), kills=600))
