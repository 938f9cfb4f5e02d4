"""A consumer that is stopped counts as dead after `hung_after`; when it continues, its calls are refused."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from arena_stations import Actor, Arena, Ledger, checked_queue, consume, is_idle, produce, sequences_of

from headrace import Queue
from headrace.errors import LeaseLostError
from support.seeds import random_seed
from support.waiting import until


@pytest.fixture
def path(shared_memory: Path) -> Iterator[Path]:
    with checked_queue(shared_memory / "q") as path:
        yield path


def hold(folder: Path, path: Path, ledger: Ledger, seed: int, count: int, revise: bool = False) -> None:
    """Get products, acknowledge them when the test says so, and note the outcome; then attach again and work."""
    with Queue.open(path) as queue:
        station = queue.station("s")
        with station.attach() as consumer:
            batch = consumer.get(count, 10.0)
            ledger.note("trying", batch.sequences.tolist())
            until((folder / "go").exists, "the file that tells it to continue")
            for _ in range(2):
                try:
                    consumer.ack(batch, [b"late"] * len(batch) if revise else None)
                    ledger.note("accepted")
                except LeaseLostError:
                    ledger.note("refused")
            try:
                consumer.get(1, 0.1)
            except LeaseLostError:
                ledger.note("refused")
        with station.attach() as consumer:
            ledger.note("attached-again")
            while not (folder / "leave").exists():
                for batch in consumer.batches(10, timeout=0.4):
                    ledger.note("later", batch.sequences.tolist())


def stop(actor: Actor) -> float:
    os.kill(actor.pid, signal.SIGSTOP)
    return time.monotonic()


def go_on(arena: Arena, actor: Actor) -> None:
    os.kill(actor.pid, signal.SIGCONT)
    (arena.folder / "go").touch()
    until(lambda: actor.notes("attached-again"), "it is attached again")


@pytest.mark.parametrize("revise", [False, True])
def test_a_late_ack_of_a_hung_consumer_is_refused_and_nothing_is_acknowledged_twice(path: Path, revise: bool) -> None:
    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", random_seed()) as arena:
        station = queue.station("s", "**", hung_after="1s", deliveries_max=0)
        behind = queue.station("behind", "**", after="s")
        queue.put_many([b"%d" % n for n in range(10)], feed="a")
        hung = arena.start(hold, 10, revise)
        until(lambda: len(hung.held()) == 10, "it holds them")
        stopped_s = stop(hung)
        other = arena.start(consume, "s", 10)
        until(lambda: station.statistics().acknowledged == 10, "the other has acknowledged them")
        wait_s = other.notes("trying")[0].at_s - stopped_s
        print(f"taken for dead after {wait_s:.2f} s")

        go_on(arena, hung)
        assert len(hung.notes("refused")) == 3
        assert hung.notes("accepted") == []
        assert station.statistics().acknowledged == 10
        assert station.statistics().restored == 10
        with behind.attach() as last:
            batch = last.get(100, 5.0)
            assert sorted(batch.sequences.tolist()) == sorted(other.sequences("done"))
            assert batch.revisions.tolist() == [0] * 10
            last.ack(batch)
            assert len(last.get_nowait(100)) == 0
        arena.end("end", consume)

        queue.put_many([b"more"] * 5, feed="a")  # it works again like any other consumer
        until(lambda: len(hung.sequences("later")) == 5, "it gets more")
        (arena.folder / "leave").touch()
        hung.process.join(240)
        assert hung.process.exitcode == 0
        assert station.statistics().acknowledged == 15


def test_a_producer_at_a_full_station_does_not_wait_for_a_hung_consumer(path: Path) -> None:
    """The products of the hung consumer go to another, which makes room."""
    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", random_seed()) as arena:
        station = queue.station("s", "**", hung_after="0.5s", blocking=True, capacity=10, deliveries_max=0)
        queue.put_many([b""] * 10, feed="a")
        hung = arena.start(hold, 10)
        until(lambda: len(hung.held()) == 10, "it holds them")
        queue.put_many([b""] * 10, feed="a")
        stop(hung)
        arena.start(consume, "s", 3)
        for _ in range(50):
            queue.put(b"", feed="a", timeout=60)
        until(lambda: station.statistics().acknowledged == 70, "all are acknowledged")
        assert station.statistics().restored == 10
        go_on(arena, hung)
        assert station.statistics().acknowledged == 70


def test_a_consumer_that_is_stopped_for_less_than_hung_after_keeps_its_products(path: Path) -> None:
    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", random_seed()) as arena:
        station = queue.station("s", "**", hung_after="30s", deliveries_max=0)
        queue.put_many([b""] * 3, feed="a")
        holder = arena.start(hold, 3)
        until(lambda: len(holder.held()) == 3, "it holds them")
        stop(holder)
        with station.attach() as other:
            assert len(other.get(10, 0.8)) == 0
        os.kill(holder.pid, signal.SIGCONT)
        (arena.folder / "go").touch()
        until(lambda: holder.notes("accepted"), "its acknowledgement is accepted")
        until(lambda: station.statistics().acknowledged == 3, "and counts")


def test_slow_work_is_not_taken_for_a_hang(path: Path) -> None:
    with Queue.open(path) as queue:
        station = queue.station("s", "**", hung_after="2s")
        queue.put(b"", feed="a")
        with station.attach() as slow, station.attach() as other:
            batch = slow.get(1, 5.0)
            assert len(other.get(1, 2.5)) == 0
            slow.ack(batch)
        assert station.statistics().acknowledged == 1


def work_on(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
    """As `consume`; a consumer that was taken for dead attaches again."""
    with Queue.open(path) as queue:
        station = queue.station("s")
        while not (folder / "end").exists():
            with station.attach() as consumer:
                try:
                    while not (folder / "end").exists():
                        batch = consumer.get(5, 0.5)
                        time.sleep(0.002)
                        if len(batch):
                            consumer.ack(batch)
                            ledger.note("done", batch.sequences.tolist())
                except LeaseLostError:
                    ledger.note("refused")


def stops(path: Path, seed: int, rounds: int) -> str:
    """Stop consumers for shorter and longer than hung_after."""
    with Queue.open(path) as queue:
        station = queue.station("s", "f/**", hung_after="0.4s", deliveries_max=0)
        with Arena(path, path.parent / "ledgers", seed) as arena:
            for _ in range(3):
                arena.start(work_on)
            arena.start(produce, ("f/1", "other"), 0.3)
            for _ in range(rounds):
                actor = arena.chance.choice(arena.living(work_on))
                stop(actor)
                time.sleep(arena.chance.uniform(0.05, 1.0))
                os.kill(actor.pid, signal.SIGCONT)
            arena.end("stop", produce)
            until(lambda: is_idle(station.statistics()), "caught up")
            arena.end("end", work_on)
            done = [sequence for actor in arena.actors for sequence in actor.sequences("done")]
            assert len(done) == len(set(done)), "acknowledged twice"
            assert set(done) == sequences_of(queue, "f/**")
            assert station.statistics().acknowledged == len(done)
            refused = sum(len(actor.notes("refused")) for actor in arena.actors)
        return f"{rounds} stops, {refused} refused, {len(done)} products"


def test_random_stops_acknowledge_nothing_twice(path: Path) -> None:
    print(stops(path, random_seed(), rounds=3))


@pytest.mark.soak
def test_hundreds_of_random_stops_acknowledge_nothing_twice(path: Path) -> None:
    print(stops(path, random_seed(), rounds=200))
