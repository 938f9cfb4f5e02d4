"""The clock in a thousand simulated networks: the truth is always within the bound, and time never goes back."""

import random

import pytest

from headrace.testing.ntp import SimulatedServer
from headrace.testing.ntp_world import SECOND, Link, World
from headrace.timing.clock.association import Association
from headrace.timing.clock.ntp import Ntp

SEEDS = 1000
MS = 1_000_000


def honest(chance: random.Random) -> SimulatedServer:
    stated_ns = chance.choice((100_000, MS, 20 * MS))
    return SimulatedServer(
        chance.randint(-stated_ns, stated_ns), stated_ns=stated_ns, stratum=chance.randint(1, 4),
        root_delay_ns=chance.choice((0, 10 * MS)),
    )  # fmt: skip


def bad(chance: random.Random) -> SimulatedServer | None:
    off_ns = chance.choice((-1, 1)) * chance.choice((2 * MS, 30 * MS, 300 * MS, 100 * SECOND))
    return chance.choice(
        (
            None,
            SimulatedServer(off_ns, stated_ns=100_000),
            SimulatedServer(off_ns, stated_ns=abs(off_ns) - 200_000),  # reaches the others, but not the truth
            SimulatedServer(0, drift_ppb=chance.randint(-10_000_000, 10_000_000)),
            SimulatedServer(20 * MS, stated_ns=10_000, hides_ns=30 * MS),
        )
    )


def link(chance: random.Random, loss: float) -> Link:
    one_ns, other_ns = (chance.choice((50_000, 5 * MS, 80 * MS)) for _ in range(2))
    return Link(one_ns, other_ns, chance.choice((10_000, MS, 20 * MS)), chance.choice((0.0, loss)))


def make(seed: int) -> tuple[World, Ntp, list[tuple[SimulatedServer | None, Link]]]:
    chance = random.Random(seed)
    count = chance.randint(1, 6)
    liars = chance.randint(0, (count - 1) // 2)
    loss = 0.0 if liars else 0.3  # of the servers that reply, fewer than half lie
    servers = [(bad(chance) if place < liars else honest(chance), link(chance, loss)) for place in range(count)]
    chance.shuffle(servers)
    ntp = Ntp([Association(f"server{place}", 64.0) for place in range(count)])
    off_ns = chance.choice((0, 50 * MS, -50 * MS, 3 * SECOND, -3 * SECOND))
    return World(chance, chance.randint(-100_000, 100_000), off_ns, wander_s=chance.uniform(600, 6000)), ntp, servers


@pytest.mark.parametrize("part", range(4))
def test_truth_is_within_the_bound_and_time_never_goes_back(part: int) -> None:
    for seed in range(part * SEEDS // 4 + 1, (part + 1) * SEEDS // 4 + 1):
        world, ntp, servers = make(seed)
        try:
            for number in range(world.chance.randint(4, 16)):
                world.poll(ntp, servers)
                world.run(2.0 if number < 8 else world.chance.choice((16.0, 64.0, 1000.0)))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_with_honest_servers_near_by_the_clock_is_within_a_millisecond_and_knows_its_frequency() -> None:
    world = World(random.Random(7), off_ppb=37_000, system_off_ns=-19_235 * MS)
    ntp = Ntp([Association(str(place), 16.0) for place in range(4)])
    near = [(SimulatedServer(stated_ns=50_000), Link(60_000, 60_000, 20_000)) for _ in range(4)]
    for _ in range(8):
        world.poll(ntp, near)
        world.run(2.0)
    for _ in range(30):
        world.poll(ntp, near)
        world.run(16.0)
        assert abs(world.error_ns) < MS
    assert abs(ntp.frequency.rate.ppb - world.off_ppb) < 3 * 4_000  # it wanders by 4,000
    assert ntp.frequency.rate.drift_ppb < 25_000
    assert world.words.bound_at(world.boot_ns) < MS
    assert world.steps == 1  # it trailed by 19 s at first, as the machine in Cardiff did
