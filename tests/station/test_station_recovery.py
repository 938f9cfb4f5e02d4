"""Recovery: products of a dead consumer go to others, at most as often as `deliveries_max` allows."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from arena_stations import UNLIMITED, Actor, Arena, Ledger, checked_queue, consume, is_idle, produce, read_ledger

from headrace import Queue
from headrace.selection import Selection
from headrace.testing import faults
from support.seeds import random_seed
from support.waiting import until


def hold(folder: Path, path: Path, ledger: Ledger, seed: int, station: str, n: int) -> None:
    """Get products and keep them."""
    with Queue.open(path) as queue, queue.station(station).attach() as consumer:
        ledger.note("trying", consumer.get(n, 10.0).sequences.tolist())
        signal.pause()


def hold_products(arena: Arena, station: str, n: int) -> Actor:
    """Start a consumer, and wait until it holds `n` products."""
    holder = arena.start(hold, station, n)
    until(lambda: holder.notes("trying"), "the holder has products")
    assert len(holder.held()) == n
    return holder


def seen_again_s(arena: Arena, dead: Actor) -> float:
    """How long after its death other consumers had got all its products."""
    assert dead.killed_s is not None
    killed_s, held = dead.killed_s, dead.held()

    def seen() -> dict[int, float]:
        notes = [note for a in arena.actors if a.role is consume for note in a.notes("trying") if note.at_s > killed_s]
        return {sequence: note.at_s - killed_s for note in notes for sequence in note.sequences if sequence in held}

    until(lambda: set(seen()) == held, "they were delivered again")
    return max(seen().values())


@pytest.fixture
def path(shared_memory: Path) -> Iterator[Path]:
    with checked_queue(shared_memory / "q", selection="f/**", **UNLIMITED) as path:
        yield path


def put(path: Path, count: int, **more: Any) -> list[int]:
    with Queue.open(path) as queue:
        first = queue.put_many([b"%d" % n for n in range(count)], feed="f/1", **more).first
        return list(range(first, first + count))


@pytest.mark.parametrize("n", [1, 100])
def test_a_waiting_consumer_gets_the_products_of_a_dead_one(path: Path, n: int) -> None:
    waits = []
    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", random_seed()) as arena:
        for _ in range(2):
            put(path, n)
            holder = hold_products(arena, "s", n)
            waiting = arena.start(consume, "s", n)
            until(lambda waiting=waiting: waiting.notes("attached"), "the other consumer is attached")
            time.sleep(arena.chance.uniform(0, 0.5))  # it looks for dead consumers at intervals: meet any of them
            arena.kill(holder)
            waits.append(seen_again_s(arena, holder))
            until(lambda: is_idle(queue.station("s").statistics()), "they are acknowledged")
            arena.kill(waiting)
    print(f"{n} products were back after {', '.join(f'{wait:.3f}' for wait in waits)} s")


def test_a_busy_consumer_gets_the_products_of_a_dead_one(path: Path) -> None:
    """Products come so fast that the other consumer never has to wait."""
    put(path, 5)
    with Arena(path, path.parent / "ledgers", random_seed()) as arena:
        holder = hold_products(arena, "s", 5)
        busy = arena.start(consume, "s", 10)
        arena.start(produce, ("f/1",), 0.02)
        until(lambda: len(busy.notes("done")) > 10, "the other consumer is busy")
        arena.kill(holder)
        print(f"back after {seen_again_s(arena, holder):.3f} s")


def test_a_consumer_that_polls_gets_the_products_of_a_dead_one(path: Path) -> None:
    put(path, 3)
    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", random_seed()) as arena:
        holder = hold_products(arena, "s", 3)
        with queue.station("s").attach() as consumer:
            arena.kill(holder)
            end_s = time.monotonic() + 60.0
            while not len(batch := consumer.get(3, 0.1)):
                assert time.monotonic() < end_s, "the products did not come back"
            consumer.ack(batch)


def test_a_child_of_a_dead_consumer_does_not_keep_it_alive(path: Path) -> None:
    def hold_and_fork(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
        with Queue.open(path) as queue, queue.station("s").attach() as consumer:
            sequences = consumer.get(3, 10.0).sequences.tolist()
            child = os.fork()
            if child == 0:
                signal.alarm(120)  # which ends it, should the test not do so
                signal.pause()
            ledger.note(f"child-{child}")
            ledger.note("trying", sequences)
            signal.pause()

    put(path, 3)
    with Arena(path, path.parent / "ledgers", random_seed()) as arena:
        holder = arena.start(hold_and_fork)
        until(lambda: holder.notes("trying"), "the consumer holds them")
        arena.start(consume, "s", 3)
        arena.kill(holder)
        try:
            seen_again_s(arena, holder)
        finally:
            (child,) = (note.what for note in read_ledger(holder.ledger) if note.what.startswith("child-"))
            os.kill(int(child.removeprefix("child-")), signal.SIGKILL)


def test_products_that_a_dead_process_had_half_admitted_are_not_admitted_twice(shared_memory: Path) -> None:
    """A selection by record admits products in batches; the kill falls inside one."""
    path = shared_memory / "q"

    def take_up_and_die(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
        with Queue.open(path) as queue, queue.station("s").attach() as consumer:
            faults.arm("chain:admitted", 4)
            consumer.get(10, 1.0)

    with Queue.create(path, size="16MiB", durability="memory", dedup="none", origin="here") as queue:
        queue.station("s", Selection("f/**", ident="[02468]$"), **UNLIMITED)
        with queue.station("s").attach() as consumer, Arena(path, shared_memory / "ledgers", random_seed()) as arena:
            assert len(consumer.get(10, 0.3)) == 0  # it has read the terms
            expected = set(put(path, 10, ident=["0"] * 10))
            arena.run(take_up_and_die)
            found: list[int] = []
            while len(found) < len(expected):
                batch = consumer.get(10, 60.0)
                assert len(batch), f"never delivered: {sorted(expected - set(found))}"
                found += batch.sequences.tolist()
                consumer.ack(batch)
            assert len(consumer.get(10, 0.3)) == 0
        assert sorted(found) == sorted(expected)
        assert queue.station("s").statistics().acknowledged == 10
        assert queue.check() == []


# --- a product that kills -------------------------------------------------------------------------


def test_a_product_that_kills_its_consumers_is_parked_and_the_others_are_delivered(shared_memory: Path) -> None:
    def fall(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
        with Queue.open(path) as queue, queue.station("s").attach() as consumer:
            for batch in consumer.batches(1):
                ledger.note("trying", batch.sequences.tolist())
                if batch[0].ident == "poison":
                    os.kill(os.getpid(), signal.SIGKILL)

    path = shared_memory / "q"
    with Queue.create(path, size="16MiB", durability="memory", dedup="none", origin="here") as queue:
        station = queue.station("s", "**", deliveries_max=3)
        idents = ["good", "poison", "good", "good"]
        queue.put_many([b""] * 4, feed="f/1", ident=idents)
        with Arena(path, shared_memory / "ledgers", random_seed()) as arena:
            for _ in range(3):
                assert arena.run(fall).process.exitcode == -signal.SIGKILL
            arena.start(fall)
            until(lambda: station.statistics().acknowledged == 3, "the others are acknowledged")
            (parked,) = station.parked()
            assert (parked.ident, parked.deliveries) == ("poison", 3)
            assert station.retry() == 1
            until(lambda: not arena.living(), "the product kills again")
        assert queue.check() == []
