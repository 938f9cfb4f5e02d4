"""Consumers of stations are killed at random: every product is acknowledged exactly once, and no process hangs."""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from arena_stations import UNLIMITED, Arena, Ledger, consume, produce, recoveries, sequences_of

from headrace import Queue
from headrace.selection import Selection
from support.seeds import random_seed
from support.waiting import until

# --- scenes ---------------------------------------------------------------------------------------


def one_by_one(queue: Queue) -> None:
    queue.station("s", "f/**", **UNLIMITED)


def by_ident(queue: Queue) -> None:
    queue.station("s", Selection("f/**", ident="[02468]$"), **UNLIMITED)


def blocking(queue: Queue) -> None:
    queue.station("s", "f/**", blocking=True, capacity=60, **UNLIMITED)


def short_of_room(queue: Queue) -> None:
    queue.station("s", "f/**", blocking=True, order="fifo", **UNLIMITED)


def series(queue: Queue) -> None:
    queue.station("decode", "f/**", **UNLIMITED)
    queue.station("archive", "**", after="decode", **UNLIMITED)
    queue.station("show", "f/1", after="archive", **UNLIMITED)


def group(queue: Queue) -> None:
    for name in ("w1", "w2", "w3"):
        queue.station(name, "f/**", group="workers", restore="group", **UNLIMITED)


@dataclass(frozen=True)
class Scene:
    """Stations, and for each: how many consumers, products per get, part in the series."""

    make: Callable[[Queue], None]
    cast: tuple[tuple[str, int, int, str], ...]
    size: str = "256MiB"
    payload_max: int = 200


SCENES = {
    "one by one": Scene(one_by_one, (("s", 4, 1, ""),)),
    "by the hundred": Scene(one_by_one, (("s", 4, 100, ""),)),
    "by ident": Scene(by_ident, (("s", 3, 30, ""),)),
    "blocking, one by one": Scene(blocking, (("s", 4, 1, ""),)),
    "blocking, by the hundred": Scene(blocking, (("s", 4, 100, ""),)),
    "a queue of little room": Scene(short_of_room, (("s", 4, 100, ""),), "1MiB", 4000),
    "series with revisions": Scene(
        series, (("decode", 2, 20, "revises"), ("archive", 2, 100, "behind"), ("show", 1, 1, "behind")), "1GiB"
    ),
    "group": Scene(group, (("w1", 2, 10, ""), ("w2", 1, 10, ""), ("w3", 1, 100, ""))),
}
SHORT = [scene for scene in SCENES if scene not in ("one by one", "blocking, by the hundred")]
FEEDS = ("f/1", "f/2", "other")


def battle(folder: Path, seed: int, scene: Scene, kills: int) -> str:
    """Kill consumers one after the other while two producers put; then compare."""
    path = folder / "q"
    with Queue.create(path, size=scene.size, durability="memory", dedup="none", origin="here") as queue:
        scene.make(queue)
    chance = random.Random(seed)
    with Arena(path, folder / "ledgers", seed) as arena:
        for station, consumers, n, part in scene.cast:
            for _ in range(consumers):
                arena.start(consume, station, n, 0.002, part)
        for _ in range(2):
            arena.start(produce, FEEDS, 0.01, scene.payload_max)
        for _ in range(kills):
            time.sleep(chance.uniform(0.005, 0.08))
            arena.kill_one(consume)
            assert arena.complaints() == []
        arena.finish(*(station for station, *_ in scene.cast))
        with Queue.open(path) as queue:
            assert queue.check() == []
            judge(arena, queue, scene)
            inside = recoveries(queue, queue.station(scene.cast[0][0]).terms.chain)
    waits = sorted(arena.recovery_s()) or [0.0]
    return (
        f"{arena.kills()} kills, {inside} inside the lock, {len(arena.acknowledged(*FEEDS))} products, "
        f"back after {waits[len(waits) // 2]:.2f} s (median), {waits[-1]:.2f} s (longest)"
    )


def judge(arena: Arena, queue: Queue, scene: Scene) -> None:
    stations = [station for station, *_ in scene.cast]
    if scene.make is short_of_room:  # only the producers know which products have left the queue
        assert queue.oldest > 1
        assert queue.station("s").statistics().evicted == 0
        arena.judge(queue, arena.acknowledged("f/1", "f/2"), "s")
        return
    assert arena.acknowledged(*FEEDS) == sequences_of(queue)
    for shared in [stations] if scene.make is group else [[station] for station in stations]:
        arena.judge(queue, sequences_of(queue, queue.station(shared[0]).terms.selection), *shared)


@pytest.mark.parametrize("scene", SHORT)
def test_every_product_is_acknowledged_once_while_consumers_are_killed(shared_memory: Path, scene: str) -> None:
    print(battle(shared_memory, random_seed(), SCENES[scene], kills=10))


@pytest.mark.soak
@pytest.mark.parametrize("scene", SCENES)
def test_every_product_is_acknowledged_once_through_hundreds_of_kills(shared_memory: Path, scene: str) -> None:
    seed = random_seed()
    for number in range(3):
        folder = shared_memory / str(number)
        folder.mkdir()
        print(battle(folder, seed + number, SCENES[scene], kills=200))


# --- all processes at once ------------------------------------------------------------------------


def change_for_ever(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
    chance = random.Random(seed)
    with Queue.open(path) as queue:
        station = queue.station("s")
        while True:
            station.change(
                capacity=chance.choice([None, 100_000]), prescale=1, order=chance.choice(["fifo", "priority"])
            )
            time.sleep(0.005)


def massacre(folder: Path, seed: int, rounds: int) -> str:
    """Kill producers, consumers and a process that changes terms at once, again and again."""
    path = folder / "q"
    with Queue.create(path, size="256MiB", durability="memory", dedup="none", origin="here") as queue:
        queue.station("s", "f/**", **UNLIMITED)
    with Arena(path, folder / "ledgers", seed) as arena:
        for _ in range(rounds):
            for _ in range(2):
                arena.start(consume, "s", arena.chance.choice([1, 100]))
                arena.start(produce, FEEDS, 0.004)
            arena.start(change_for_ever)
            time.sleep(arena.chance.uniform(0.05, 0.5))
            arena.kill_all()
        for _ in range(2):
            arena.start(consume, "s", 100)
        arena.finish("s")
        with Queue.open(path) as queue:
            assert queue.check() == []
            assert arena.acknowledged(*FEEDS) <= sequences_of(queue)
            arena.judge(queue, sequences_of(queue, "f/**"), "s")
            return f"{arena.kills()} kills in {rounds} rounds, {recoveries(queue, 1)} inside the lock, {queue.next} products"


def test_stations_work_after_all_processes_were_killed_at_once(shared_memory: Path) -> None:
    print(massacre(shared_memory, random_seed(), rounds=3))


@pytest.mark.soak
def test_stations_work_after_all_processes_were_killed_at_once_a_hundred_times(shared_memory: Path) -> None:
    print(massacre(shared_memory, random_seed(), rounds=100))


def test_waiting_consumers_continue_after_the_creator_of_the_queue_was_killed(shared_memory: Path) -> None:
    path = shared_memory / "q"

    def make(folder: Path, path: Path, ledger: Ledger, seed: int) -> None:
        queue = Queue.create(path, size="16MiB", durability="memory", dedup="none", origin="here")
        queue.station("s", "f/**", **UNLIMITED)
        ledger.note("made")
        signal.pause()

    with Arena(path, shared_memory / "ledgers", random_seed()) as arena:
        maker = arena.start(make)
        until(lambda: maker.notes("made"), "the queue is created")
        waiting = [arena.start(consume, "s", 10) for _ in range(2)]
        until(lambda: all(actor.notes("attached") for actor in waiting), "the consumers are attached")
        arena.kill(maker)
        with Queue.open(path) as queue:
            expected = {queue.put(b"", feed="f/1") for _ in range(50)}
        arena.finish("s")
        with Queue.open(path) as queue:
            assert queue.check() == []
            arena.judge(queue, expected, "s")
