"""Suppliers, a site and consumers as processes: over full links, a link that is cut, and through kills.

The oracle is outside of Headrace: the ledgers of the processes. Each product that was pushed is stored once, and each
that was stored is received, or counted as expired, at each station.
"""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.testing import MockClock, NarrowLink
from support.daemon import Daemon
from support.seeds import random_seed
from support.waiting import until

PROGRAM = Path(__file__).parent / "supplying.py"
SIZE = 20_000


class Party:
    """A site, programs around it, and their ledgers."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.path = folder / "array.queue"
        self.queue = stack.enter_context(Queue.create(self.path, size="64MiB", origin="array", durability="memory"))
        site = folder / "site.toml"
        site.write_text(f'[site]\nname = "array"\nqueue = "{self.path}"\nlisten = ["tcp/127.0.0.1:0"]\n')
        self.endpoint = stack.enter_context(Daemon(site)).wait_until_ready()
        self.suppliers: list[subprocess.Popen[str]] = []
        self.consumers: list[subprocess.Popen[str]] = []

    def link(self, bytes_per_s: float | None = None) -> NarrowLink:
        return self._stack.enter_context(NarrowLink(self.endpoint, bytes_per_s))

    def channel(self, stations: int, **terms: Any) -> None:
        channel = self.queue.channel("monitor", "array/monitor", **terms)
        for number in range(stations):
            channel.station(f"s{number}")

    def supply(
        self, count: int, products: int, timeout_s: float = 0, endpoint: str = "", size: int = SIZE
    ) -> None:  # fmt: skip
        """Start suppliers; they begin together, at `begin`."""
        for number in range(count):
            more = (f"n{number}", str(products), str(size), str(timeout_s))
            self.suppliers.append(self._start(f"supplier{number}", "supply", endpoint, "monitor", *more))

    def consume(self, station: str, name: str = "", endpoint: str = "", most: int = 10) -> None:
        self.consumers.append(self._start(f"{name or 'consumer'}-{station}", "consume", endpoint, station, str(most)))

    def _start(self, ledger: str, role: str, endpoint: str, about: str, *more: str) -> "subprocess.Popen[str]":
        words = [sys.executable, str(PROGRAM), role, endpoint or self.endpoint, about, str(self._folder / ledger)]
        process = subprocess.Popen([*words, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._stack.callback(_end, process)
        return process

    def begin(self) -> None:
        """All are ready; the suppliers push now, not staggered."""
        for process in (*self.suppliers, *self.consumers):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in self.suppliers:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def finish(self) -> None:
        """Wait for the suppliers; then let the consumers take what waits, and end."""
        for process in self.suppliers:
            assert process.wait(240) in (0, -9)
        until(lambda: not any(self.queue.station(name).lag().products for name in self.queue.stations()), "all ended")
        for process in self.consumers:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.consumers:
            assert process.wait(240) in (0, -9)

    def ledger(self, pattern: str) -> Iterator[list[Any]]:
        for file in sorted(self._folder.glob(pattern)):
            yield from (json.loads(line) for line in file.read_text().splitlines(keepends=True) if line[-1] == "\n")

    def stored(self) -> dict[int, str]:
        """What the queue has stored, by sequence, expired products included."""
        with Queue.open(self.path, clock=MockClock(1)) as queue:
            return {product.sequence: product.ident for product in queue.read("oldest")}

    def check_suppliers(self, *, died: bool = False) -> dict[int, str]:
        """Each product that was pushed is stored once. Of a supplier that died, the last one may be stored or not."""
        stored = self.stored()
        told = list(self.ledger("supplier*"))
        begun = {ident for what, ident, *_ in told if what == "begins"}
        known = {ident: at for what, ident, *more in told if what == "stored" for at in more}
        assert {ident: stored[at] for ident, at in known.items()} == {ident: ident for ident in known}
        assert max(Counter(stored.values()).values()) == 1
        assert set(known) <= set(stored.values()) <= begun
        assert len(begun - set(known)) <= died
        assert self.queue.channel("monitor").statistics().pushed == len(stored)
        return stored

    def check_station(self, name: str, stored: dict[int, str], *, died: bool = False) -> int:
        """Each product that was stored was received once, or has expired; returns how many expired."""
        received = [(at, ident) for what, ident, at in self.ledger(f"*-{name}") if what == "received"]
        told = self.queue.station(name).statistics()
        assert set(received) <= set(stored.items())
        assert died or len(received) == len(set(received))
        assert (told.acknowledged, told.waiting, told.leased, told.parked) == (len(set(received)), 0, 0, 0)
        assert told.acknowledged + told.expired == len(stored)
        assert not any(told.dropped.values())
        assert (told.evicted, told.discarded, told.damaged) == (0, 0, 0)
        return told.expired


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait(240)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


@pytest.fixture
def party(shared_memory: Path) -> Iterator[Party]:
    with ExitStack() as stack:
        yield Party(shared_memory, stack)


@pytest.fixture
def seed() -> int:
    return random_seed()


def test_pushes_over_a_full_link_are_repeated_and_stored_once(party: Party) -> None:
    """Each attempt has less time than the link needs, so that replies are lost while products arrive."""
    party.channel(2)
    party.supply(4, 2, timeout_s=0.05, endpoint=party.link(bytes_per_s=300_000).endpoint, size=60_000)
    for station in ("s0", "s1"):
        party.consume(station)
    party.begin()
    party.finish()
    stored = party.check_suppliers()
    assert len(stored) == 8
    assert [what for what, *_ in party.ledger("supplier*")].count("repeats") > 0
    assert [party.check_station(name, stored) for name in ("s0", "s1")] == [0, 0]


def test_products_that_a_full_link_cannot_carry_in_time_expire_and_are_counted(party: Party) -> None:
    party.channel(2, order="fifo", timeout="1s")
    link = party.link(bytes_per_s=100_000)
    party.supply(4, 10)
    party.consume("s0", endpoint=link.endpoint)
    party.consume("s1")
    party.begin()
    party.finish()
    stored = party.check_suppliers()
    assert len(stored) == 40
    assert party.check_station("s0", stored) > 0
    party.check_station("s1", stored)


def test_a_link_that_is_cut_half_way_costs_nothing(party: Party) -> None:
    party.channel(2)
    link = party.link(bytes_per_s=1_000_000)
    party.supply(4, 12, endpoint=link.endpoint)
    for station in ("s0", "s1"):
        party.consume(station, endpoint=link.endpoint)
    party.begin()
    until(lambda: party.queue.next > 24, "half of the products are stored")
    link.cut()
    link.restore()
    party.finish()
    stored = party.check_suppliers()
    assert len(stored) == 48
    assert [party.check_station(name, stored, died=True) for name in ("s0", "s1")] == [0, 0]


def test_a_killed_supplier_and_a_killed_consumer_lose_nothing(party: Party, seed: int) -> None:
    chance = random.Random(seed)
    party.channel(2)
    link = party.link(bytes_per_s=1_000_000)
    party.supply(4, 15, endpoint=link.endpoint)
    for station in ("s0", "s1"):
        party.consume(station)
    party.begin()
    first, second = sorted(chance.sample(range(5, 40), 2))
    until(lambda: party.queue.next > first, "some are stored")
    chance.choice(party.suppliers).kill()
    until(lambda: party.queue.next > second, "more are stored")
    killed = chance.choice((0, 1))
    party.consumers.pop(killed).kill()
    party.consume(f"s{killed}", name="successor")
    party.finish()
    stored = party.check_suppliers(died=True)
    assert len(stored) >= 45
    assert [party.check_station(name, stored, died=True) for name in ("s0", "s1")] == [0, 0]
