"""A kill between any two instructions while a chain's lock is held: nothing is lost, acknowledged twice or changed."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stepping import FOR_EVER, can_trace, die_inside

from headrace import Batch, Consumer, Queue
from headrace.kernel import _kernel as kernel
from headrace.product.batch import rows_behind
from support.seeds import random_seed

PRODUCTS = [1, 2, 3, 4, 5, 6]
REVISED = b"revised"
Held = tuple[Consumer, Batch | None, Any]


@pytest.fixture
def make(shared_memory: Path) -> Iterator[Callable[[], Queue]]:
    """Six products before two stations in series, in a fresh queue each time."""
    if not can_trace():
        pytest.skip("processes may not be traced here")
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})  # tracer and traced take turns, which is faster on one
    path = shared_memory / "q"

    def make() -> Queue:
        shutil.rmtree(path, ignore_errors=True)
        queue = Queue.create(path, size="1MiB", durability="memory", dedup="none", origin="here")
        queue.station("first", "**", deliveries_max=0)
        queue.station("second", "**", after="first", deliveries_max=0)
        for number in PRODUCTS:
            queue.put(b"%d" % number, feed="a", priority=number % 3)
        queue.station("first").statistics()  # the chain has room for them now
        queue.station("first").seek("oldest")
        return queue

    yield make
    os.sched_setaffinity(0, cpus)


# --- what the dying process does ------------------------------------------------------------------
#
# `act` goes straight to the kernel: what Python does before it takes the lock need not be stepped through.


def prepare_idle(path: Path) -> Held:
    """A consumer that has read the terms; the log is not scanned yet."""
    consumer = Queue.open(path).station("first").attach()
    consumer._prepare(kernel.CODES["terms"])
    return consumer, None, None


def prepare_held(path: Path) -> Held:
    consumer = Queue.open(path).station("first").attach()
    return consumer, consumer.get(3, 1.0), None


def prepare_revised(path: Path) -> Held:
    consumer, batch, _ = prepare_held(path)
    assert batch is not None
    sequences = consumer._append_revisions(batch, np.arange(3, dtype=np.uint32), [REVISED] * 3)
    return consumer, batch, np.array(sequences, np.uint64)


def settle(how: str) -> Callable[[Held], None]:
    def act(held: Held) -> None:
        consumer, batch, revisions = held
        assert batch is not None
        places = None if revisions is None else np.arange(3, dtype=np.uint32)
        consumer._kernel.settle(
            consumer._place, consumer._epoch, rows_behind(batch), places, kernel.SETTLE[how], revisions
        )

    return act


def get(held: Held) -> None:
    for _ in range(50):  # now and then it asks to look for dead consumers instead
        if held[0]._kernel.get(held[0]._place, held[0]._epoch, 4, 0.0, 0, 0, held[0]._terms_seen)[0] > 0:
            return


def detach(held: Held) -> None:
    held[0]._kernel.detach(held[0]._place, held[0]._epoch, False)


def recover(held: Held) -> None:
    held[0]._kernel.recover(held[0]._place, held[0]._epoch)


def seek(held: Held) -> None:
    held[0]._kernel.seek(4)


ACTS: dict[str, tuple[Callable[[Path], Held], Callable[[Held], None]]] = {
    "get": (prepare_idle, get),
    "acknowledge": (prepare_held, settle("ack")),
    "acknowledge with revisions": (prepare_revised, settle("ack")),
    "give back": (prepare_held, settle("failed")),
    "detach": (prepare_held, detach),
    "recover": (prepare_held, recover),
    "seek": (prepare_held, seek),
}


# --- what the next process finds ------------------------------------------------------------------


def drain(queue: Queue, station: str, revised: bool) -> dict[int, bytes]:
    """Get and acknowledge everything; each product must come once."""
    found: dict[int, bytes] = {}
    with queue.station(station).attach() as consumer:
        queue.station(station).statistics()  # finds the dead consumer
        while len(batch := consumer.get(2, 0.0)):
            for product, revisions in zip(batch, batch.revisions.tolist(), strict=True):
                assert product.sequence not in found, f"{product.sequence} came twice"
                assert revisions == (bytes(product.payload) == REVISED)
                assert revised or not revisions, f"{product.sequence} came back revised, though it was not acknowledged"
                found[product.sequence] = bytes(product.payload)
            consumer.ack(batch)
    return found


def judge(queue: Queue, name: str) -> None:
    assert queue.check() == []
    first = drain(queue, "first", revised=False)
    second = drain(queue, "second", revised=True)
    if name == "seek":  # products before the new position may be dropped
        assert set(second) >= {4, 5, 6}
        assert set(second) == set(first)
    else:
        assert sorted(second) == PRODUCTS
        assert name.startswith("acknowledge") or sorted(first) == PRODUCTS
        assert len(PRODUCTS) <= queue.station("first").statistics().acknowledged <= len(PRODUCTS) + 1
    for sequence in first:
        assert second.get(sequence) == first[sequence]
    assert queue.check() == []


def kill_at(make: Callable[[], Queue], name: str, instruction: int) -> int:
    prepare, act = ACTS[name]
    with make() as queue:
        count = die_inside(queue.path / "stations" / "1.chain", lambda: prepare(queue.path), act, instruction)
        judge(queue, name)
    return count


@pytest.mark.parametrize("name", [name for name in ACTS if name != "seek"])  # which has 28,000 instructions
def test_a_kill_inside_the_lock_loses_nothing(make: Callable[[], Queue], name: str) -> None:
    chance = random.Random(random_seed())
    count = kill_at(make, name, FOR_EVER)
    instructions = sorted(chance.randrange(1, count + 1) for _ in range(2))
    print(f"killed at {instructions} of {count} instructions")
    for instruction in instructions:
        kill_at(make, name, instruction)


@pytest.mark.soak
@pytest.mark.parametrize("name", ACTS)
def test_kills_at_hundreds_of_instructions_inside_the_lock_lose_nothing(make: Callable[[], Queue], name: str) -> None:
    chance = random.Random(random_seed())
    count = kill_at(make, name, FOR_EVER)
    instructions = sorted(chance.sample(range(1, count + 1), 400 if count < 10_000 else 100))
    for instruction in instructions:
        try:
            kill_at(make, name, instruction)
        except AssertionError as error:
            raise AssertionError(f"at instruction {instruction} of {count}: {error}") from error
    print(f"{name}: {len(instructions)} of {count} instructions")
