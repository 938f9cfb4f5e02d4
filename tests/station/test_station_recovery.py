"""What a dead consumer held goes to others: soon, whoever looks, and no more often than it may."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from arena_stations import Actor, Arena, Ledger, consume, is_idle, produce, read_ledger, seed_of, wait_until

from headrace import Queue
from headrace.selection import Selection
from headrace.testing import faults

PLAIN: dict[str, Any] = {"deliveries_max": 0}  # the product is never at fault here


def hold(folder: Path, path: Path, ledger: Ledger, seed: int, station: str, n: int) -> None:
    """Take products and keep them."""
    with Queue.open(path) as queue, queue.station(station).attach() as consumer:
        ledger.note("trying", consumer.get(n, 10.0).sequences.tolist())
        signal.pause()


def hold_products(arena: Arena, station: str, n: int) -> Actor:
    """A consumer that has some."""
    holder = arena.start(hold, station, n)
    wait_until(lambda: holder.notes("trying"), "the holder has something")
    assert len(holder.held()) == n
    return holder


def seen_again_s(arena: Arena, dead: Actor) -> float:
    """How long after its death other consumers had got all that it held."""
    assert dead.killed_s is not None
    killed_s, held = dead.killed_s, dead.held()

    def seen() -> dict[int, float]:
        notes = [note for a in arena.actors if a.role is consume for note in a.notes("trying") if note.at_s > killed_s]
        return {sequence: note.at_s - killed_s for note in notes for sequence in note.sequences if sequence in held}

    wait_until(lambda: set(seen()) == held, "they were delivered again")
    return max(seen().values())


@pytest.fixture
def path(shared_memory: Path) -> Iterator[Path]:
    """A queue with station "s", closed; it must check clean in the end."""
    path = shared_memory / "q"
    with Queue.create(path, size="16MiB", durability="memory", dedup="none", origin="here") as queue:
        queue.station("s", "f/**", **PLAIN)
    yield path
    with Queue.open(path) as queue:
        assert queue.check() == []


def put(path: Path, count: int, **more: Any) -> list[int]:
    with Queue.open(path) as queue:
        first = queue.put_many([b"%d" % n for n in range(count)], feed="f/1", **more).first
        return list(range(first, first + count))


@pytest.mark.parametrize("n", [1, 100])
def test_a_waiting_consumer_gets_the_products_of_a_dead_one(path: Path, n: int) -> None:
    waits = []
    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", seed_of()) as arena:
        for _ in range(2):
            put(path, n)
            holder = hold_products(arena, "s", n)
            waiting = arena.start(consume, "s", n)
            wait_until(lambda waiting=waiting: waiting.notes("attached"), "it waits")
            time.sleep(arena.chance.uniform(0.25, 0.5))
            arena.kill(holder)
            waits.append(seen_again_s(arena, holder))
            wait_until(lambda: is_idle(queue.station("s").statistics()), "they are put")
            arena.kill(waiting)
    print(f"{n} products were back after {', '.join(f'{wait:.3f}' for wait in waits)} s")


def test_a_busy_consumer_gets_the_products_of_a_dead_one(path: Path) -> None:
    """Products come so fast that its consumers never have to wait."""
    put(path, 5)
    with Arena(path, path.parent / "ledgers", seed_of()) as arena:
        holder = hold_products(arena, "s", 5)
        arena.start(consume, "s", 10)
        arena.start(produce, ("f/1",), 0.02)
        time.sleep(0.5)
        arena.kill(holder)
        print(f"back after {seen_again_s(arena, holder):.3f} s")


def test_a_consumer_that_polls_gets_the_products_of_a_dead_one(path: Path) -> None:
    put(path, 3)
    with Queue.open(path) as queue, Arena(path, path.parent / "ledgers", seed_of()) as arena:
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
                time.sleep(8)  # by itself it ends
                os._exit(0)
            ledger.note(f"child-{child}")
            ledger.note("trying", sequences)
            signal.pause()

    put(path, 3)
    with Arena(path, path.parent / "ledgers", seed_of()) as arena:
        holder = arena.start(hold_and_fork)
        wait_until(lambda: holder.notes("trying"), "it holds them")
        arena.start(consume, "s", 3)
        arena.kill(holder)
        try:
            seen_again_s(arena, holder)
        finally:
            (child,) = (note.what for note in read_ledger(holder.ledger) if note.what.startswith("child-"))
            os.kill(int(child.removeprefix("child-")), signal.SIGKILL)


def test_products_that_a_dead_process_had_half_admitted_are_not_admitted_twice(shared_memory: Path) -> None:
    """Where index rows do not decide, products are handed to the line in batches; death falls inside one."""
    path = shared_memory / "q"

    def take_up_and_die(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
        with Queue.open(path) as queue, queue.station("s").attach() as consumer:
            faults.arm("chain:admitted", 4)
            consumer.get(10, 1.0)

    with Queue.create(path, size="16MiB", durability="memory", dedup="none", origin="here") as queue:
        queue.station("s", Selection("f/**", ident="[02468]$"), **PLAIN)
        with queue.station("s").attach() as consumer, Arena(path, shared_memory / "ledgers", seed_of()) as arena:
            assert len(consumer.get(10, 0.3)) == 0  # it knows the terms now
            expected = set(put(path, 10, ident=["0"] * 10))
            arena.start(take_up_and_die).process.join(10)
            found: list[int] = []
            while len(batch := consumer.get(10, 0.5)):
                found += batch.sequences.tolist()
                consumer.ack(batch)
        assert sorted(found) == sorted(expected)
        assert queue.station("s").statistics().acknowledged == 10
        assert queue.check() == []


# --- what kills its consumers ---------------------------------------------------------------------


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
        with Arena(path, shared_memory / "ledgers", seed_of()) as arena:
            for _ in range(3):
                victim = arena.start(fall)
                victim.process.join(10)
                assert victim.process.exitcode == -signal.SIGKILL
            arena.start(fall)
            wait_until(lambda: station.statistics().acknowledged == 3, "the others are put")
            (parked,) = station.parked()
            assert (parked.ident, parked.deliveries) == ("poison", 3)
            assert station.retry() == 1
            wait_until(lambda: not arena.living(), "it kills again")
        assert queue.check() == []
