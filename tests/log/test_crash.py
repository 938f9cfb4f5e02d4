"""Processes are killed at random: acknowledged products stay, in order, and no process hangs."""

import math
import random
import time
from pathlib import Path

import pytest
from arena import Arena, judge

from headrace import Queue
from support.seeds import random_seed
from support.waiting import until


def battle(folder: Path, seed: int, kills: int, size: str, hash: str, wait_ms_max: float = math.inf) -> str:
    """Kill `kills` processes one after the other, reopen, and judge; only the soak test limits the longest put."""
    path, ledgers = folder / "q", folder / "ledgers"
    ledgers.mkdir()
    Queue.create(path, size=size, durability="memory", hash=hash, origin="here").close()
    chance = random.Random(seed)
    arena = Arena(path, ledgers, seed)
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.01, 0.12))
            arena.kill_one()
            assert arena.complaints() == []
        with Queue.open(path) as queue:  # while they run: no process hangs, new products arrive
            before = queue.next
            until(lambda: queue.next > before, "a survivor puts a product")
    finally:
        arena.kill_all()
    assert arena.complaints() == []
    with Queue.open(path) as queue:
        assert queue.check() == []
        acknowledged = judge(queue, arena)
        recoveries = queue.statistics().recoveries
        assert isinstance(queue.put(b"after the battle", feed="a"), int)
    assert arena.longest_wait_ms() < wait_ms_max
    return f"{kills} kills, {acknowledged} acknowledged, {recoveries} inside the lock, longest put {arena.longest_wait_ms():.0f} ms"


def test_acknowledged_products_survive_random_kills(shared_memory: Path) -> None:
    print(battle(shared_memory, random_seed(), kills=30, size="256MiB", hash="blake3"))


def test_acknowledged_products_survive_kills_while_segments_are_evicted_and_reused(shared_memory: Path) -> None:
    print(battle(shared_memory, random_seed(), kills=30, size="2MiB", hash="xxh3"))


@pytest.mark.soak
@pytest.mark.parametrize("size", ["1GiB", "2MiB"])
def test_acknowledged_products_survive_hundreds_of_kills(shared_memory: Path, size: str) -> None:
    seed = random_seed()
    for round_number in range(4):
        folder = shared_memory / str(round_number)
        folder.mkdir()
        print(battle(folder, seed + round_number, kills=150, size=size, hash="xxh3", wait_ms_max=1000))
