"""Soak test: every scene with a chain and a ring of sites; each adds a row to a table, which is printed at the end.

    make soak, or pytest -m soak -s tests/relay/faults/test_scenes.py

HEADRACE_SEED repeats a run, -k selects scenes. Scenes that this machine does not support are skipped with the reason.
Only this test, which `make soak` runs, judges how soon a fleet recovers.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from clocks import COMPILER, WrongClock
from harness import Fleet, chain, ring
from network import Namespaces, missing
from scenes import (
    HEADER,
    HOUR_S,
    Row,
    Scene,
    cut,
    delay,
    during,
    fill_disk,
    flap,
    freeze,
    jump,
    kill,
    lose,
    pause_consumer,
    play,
    slow,
    stall,
)

from headrace import Queue
from support.seeds import random_seed
from support.waiting import until

pytestmark = pytest.mark.soak

LEVEL_S_MAX = 20.0  # afterwards, on a machine that is busy with other things
MBIT = 125_000  # bytes a second
SMALL = {"size": "2MiB"}  # some three seconds of the stream
DISK_MIB = 48

MIDDLE = ("b", "c")


@dataclass(frozen=True, slots=True)
class Shape:
    """A fleet, and where it is fed: so that b lies on the only shortest way."""

    name: str
    build: Callable[..., Fleet]
    sites: str
    feed: str


SHAPES = (Shape("chain", chain, "abcd", "ad"), Shape("ring", ring, "abcde", "ac"))


@dataclass(frozen=True, slots=True)
class Play:
    """A scene, and for how long the fleet is fed: until some seconds after it is over."""

    told: str
    scene: Scene
    seconds: float


PLAYS = (
    Play("link b-c cut for 3 s", cut(MIDDLE, 3), 6),
    Play("link b-c stalled for 3 s, which is shorter than a lease", stall(MIDDLE, 3), 6),
    Play("link b-c stalled for 8 s, which is longer", stall(MIDDLE, 8), 10.5),
    Play("link b-c flaps 6 times, for up to 0.6 s", flap(MIDDLE, 6), 6.5),
    Play("100 ms delay on every link for 3 s", delay(3, 0.1), 5.5),
    Play("link b-c slowed to 1 Mbit/s for 3 s", slow(MIDDLE, 3, MBIT), 6),
    Play("b killed (-9), restarted after 2 s", kill("b", seconds=2), 7),
    Play("b and c killed (-9) at once, restarted after 2 s", kill("b", "c", seconds=2), 7.5),
    Play("a, which puts, killed (-9), restarted after 2 s", kill("a", seconds=2), 7),
    Play("b stopped by SIGSTOP for 10 s, longer than a lease", freeze("b", 10), 12.5),
    Play("consumer of a blocking station at b paused for 3 s", pause_consumer("b", 3), 6.5),
)
IN_NAMESPACES = (
    Play("5 % of all packets lost on every link for 4 s, kernel's TCP", lose(4, 5), 6.5),
    Play("link b-c down for 8 s, kernel's TCP", cut(MIDDLE, 8), 10.5),
    Play("link b-c slowed to 1 Mbit/s for 3 s, kernel's TCP", slow(MIDDLE, 3, MBIT), 6),
)


@pytest.fixture(scope="module")
def seed() -> int:
    return random_seed()


@pytest.fixture(scope="module")
def table(seed: int) -> Iterator[list[Row]]:
    rows: list[Row] = []
    yield rows
    print(f"\n\n{HEADER}")
    for row in sorted(rows, key=lambda row: row.fleet):
        print(row)
    print(f"seed {seed}; lost 0, duplicated 0, order kept in every row but those that say what was lost")


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.name)
def shape(request: pytest.FixtureRequest) -> Shape:
    found: Shape = request.param
    return found


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small one."""
    place = tmp_path / "disk"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no disk to fill: there is no mount")
    if done.returncode:
        pytest.skip(f"no disk to fill: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def put_down(table: list[Row], row: Row) -> None:
    table.append(row)
    assert row.recovered_s < LEVEL_S_MAX


@pytest.mark.parametrize("what", PLAYS, ids=lambda what: what.told)
def test_nothing_is_lost(what: Play, shape: Shape, tmp_path: Path, seed: int, table: list[Row]) -> None:
    with shape.build(tmp_path, seed, shape.sites) as fleet:
        row = play(fleet, shape.name, what.told, what.scene, feed=shape.feed, seconds=what.seconds)
    put_down(table, row)


@pytest.mark.parametrize("what", IN_NAMESPACES, ids=lambda what: what.told)
def test_nothing_is_lost_over_links_of_the_kernel(
    what: Play, shape: Shape, tmp_path: Path, seed: int, table: list[Row]
) -> None:
    if missing():
        pytest.skip(f"no network namespaces: {missing()}")
    with shape.build(tmp_path, seed, shape.sites, network=Namespaces()) as fleet:
        row = play(fleet, shape.name, what.told, what.scene, feed=shape.feed, seconds=what.seconds)
    put_down(table, row)


def test_nothing_is_lost_by_a_full_disk(shape: Shape, tmp_path: Path, disk: Path, seed: int, table: list[Row]) -> None:
    scene, told = fill_disk("b", disk, 3), "disk of b full for 3 s"
    with shape.build(tmp_path, seed, shape.sites, queues={"b": {"size": "32MiB"}}, folders={"b": disk}) as fleet:
        row = play(fleet, shape.name, told, scene, feed=shape.feed, seconds=6)
    put_down(table, row)


@pytest.mark.skipif(not COMPILER, reason="no C compiler for clocks that are wrong")
def test_nothing_is_lost_by_wrong_clocks(shape: Shape, tmp_path: Path, seed: int, table: list[Row]) -> None:
    told = "clock of a 5 h ahead, of c 3 h behind; a killed (-9) for 2 s"
    with shape.build(tmp_path, seed, shape.sites) as fleet:
        fleet.environ("a", **WrongClock(tmp_path, "a", 5 * HOUR_S).environment)
        fleet.environ("c", **WrongClock(tmp_path, "c", -3 * HOUR_S).environment)
        row = play(fleet, shape.name, told, kill("a", seconds=2), feed=shape.feed, seconds=7)
    put_down(table, row)


@pytest.mark.skipif(not COMPILER, reason="no C compiler for clocks that jump")
def test_nothing_is_lost_by_clocks_that_jump(shape: Shape, tmp_path: Path, seed: int, table: list[Row]) -> None:
    told = "clock of each site set twice while running, by up to 12 h"
    with shape.build(tmp_path, seed, shape.sites) as fleet:
        clocks = [WrongClock(tmp_path, site, 0) for site in fleet.sites]
        for site, clock in zip(fleet.sites, clocks, strict=True):
            fleet.environ(site, **clock.environment)
        row = play(fleet, shape.name, told, jump(clocks, 2 * len(clocks)), feed=shape.feed, seconds=7)
        with Queue.open(fleet.path("b")) as queue:
            created = queue.read_batch("oldest", limit=100_000).columns["created_ns"]
        assert int(created.max()) - int(created.min()) > HOUR_S * 10**9, "the clocks did not jump"
    put_down(table, row)


def test_products_that_the_origin_has_evicted_come_from_others(
    shape: Shape, tmp_path: Path, seed: int, table: list[Row]
) -> None:
    """The queues of a and b are too small to be judged."""
    told = "d killed (-9) for longer than the retention of a and b; c has it"

    def return_late(fleet: Fleet) -> None:
        until(lambda: _oldest(fleet, "a") > fleet.timeline.count("d", "a") + 1, "what d has missed is evicted")
        fleet.start("d")

    scene = during(3, lambda fleet: fleet.kill("d"), return_late, "d")
    with shape.build(tmp_path, seed, shape.sites, queues={"a": SMALL, "b": SMALL}) as fleet:
        row = play(fleet, shape.name, told, scene, feed="a", seconds=9, judged=shape.sites[2:])
        assert fleet.lost("d", "a") == []
    put_down(table, row)


def _oldest(fleet: Fleet, site: str) -> int:
    with Queue.open(fleet.path(site)) as queue:
        return queue.oldest


def test_products_that_no_site_holds_are_named_exactly(
    shape: Shape, tmp_path: Path, seed: int, table: list[Row]
) -> None:
    queues = {site: SMALL for site in shape.sites if site != "d"}
    with shape.build(tmp_path, seed, shape.sites, queues=queues) as fleet:
        fleet.start()
        fleet.feed("a", 5, 800, copies=False)
        until(lambda: fleet.timeline.count("d", "a") > 500, "products come")
        fleet.kill("d")
        fleet.wait_fed()
        with Queue.open(fleet.path("a")) as queue:
            oldest, end = queue.oldest, queue.next
        fleet.start("d")
        ready = time.monotonic()
        until(lambda: set(range(oldest, end)) <= set(fleet.held("d", "a")), "d has what there is")
        level_s = time.monotonic() - ready
        gone = set(range(1, end)).difference(fleet.held("d", "a"))
        assert gone, "nothing was evicted"
        assert fleet.lost("d", "a") == [(min(gone), max(gone))]
        judged = fleet.judge("d", len(gone))
    told = f"d killed (-9) for longer than any retention: {min(gone)}-{max(gone)} lost and named"
    put_down(table, Row(shape.name, told, None, level_s, judged))
