"""Two sites for the benchmarks of the fabric, each in a process of its own, on terms that say how far they trust.

    plain ──► with certificates ──► with rules ──► with signatures

Their queues are in memory and in this process, too, which puts at the first and reads at the second.
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from headrace.bench.processes import processes
from headrace.link.credentials import TlsTerms
from headrace.link.fair import take_short_turns
from headrace.link.rights import Rule
from headrace.link.session import SessionTerms, locators, open_session
from headrace.queue import Queue
from headrace.relay.receive.receiver import Request
from headrace.relay.signing.terms import SigningTerms
from headrace.selection import Selection
from headrace.site.logs import begin_logs
from headrace.site.site import Site

FEED = "wx/text"


@dataclass(frozen=True, slots=True)
class Trust:
    """How two sites link. With `certs`, a folder with certificates for both: over mutual TLS."""

    certs: Path | None = None
    rules: tuple[Rule, ...] = ()
    signing: Mapping[str, SigningTerms] = field(default_factory=dict)  # by site
    shared_memory: bool = False

    def session_terms(self, name: str, near: list[str]) -> SessionTerms:
        protocol = "tcp" if self.certs is None else "tls"
        return SessionTerms(
            "router", listen=(f"{protocol}/127.0.0.1:0",), connect=tuple(near), shared_memory=self.shared_memory,
            tls=self.tls(name), rules=self.rules,
        )  # fmt: skip

    def tls(self, name: str) -> TlsTerms | None:
        if self.certs is None:
            return None
        return TlsTerms(self.certs / "authority.crt", self.certs / f"{name}.crt", self.certs / f"{name}.key")


PLAIN = Trust()


def serve_site(parent: Connection, path: Path, near: list[str], begin_at: str, trust: Trust) -> None:
    """Run a site until the parent sends a message; it requests everything if it has a neighbour."""
    begin_logs("error", None, 5)
    take_short_turns()
    requests = [Request("all", Selection("**"), begin_at)] if near else []
    with Queue.open(path) as queue:
        name = queue.config.origin
        with open_session(trust.session_terms(name, near)) as session:
            site = Site(
                session, queue, requests, rules=trust.rules, principal=name if trust.certs else None,
                signing=trust.signing.get(name),
            )  # fmt: skip
            parent.send("ready")
            parent.send(locators(session))
            parent.recv()
            site.close()


@contextmanager
def site_at(path: Path, near: list[str], begin_at: str = "next", trust: Trust = PLAIN) -> Iterator[list[str]]:
    """Run a site in a process; yields the endpoints that it listens on."""
    with processes(serve_site, [(path, near, begin_at, trust)]) as (pipe,):
        yield pipe.recv()
        pipe.send("stop")


@contextmanager
def two_queues(place: Path, *sizes_mib: int) -> Iterator[tuple[Queue, Queue]]:
    made = [
        Queue.create(place / name, size=f"{size}MiB", durability="memory", origin=name)
        for name, size in zip(("one", "two"), (sizes_mib * 2)[:2], strict=True)
    ]
    try:
        yield made[0], made[1]
    finally:
        for queue in made:
            queue.close()
            shutil.rmtree(queue.path)


def fill(queue: Queue, size: int, count: int) -> None:
    """Put `count` products, all different."""
    filling, array = os.urandom(size), max(1, min(1000, 4_000_000 // size))
    for begin in range(0, count, array):
        numbers = range(begin, min(begin + array, count))
        queue.put_many([number.to_bytes(8, "little") + filling[8:] for number in numbers], feed=FEED)


def until_held(queue: Queue, count: int, seconds: float = 120) -> float:
    """Wait until `count` products were put into the queue; returns the time."""
    end = time.perf_counter() + seconds
    while queue.next <= count:
        if time.perf_counter() > end:
            raise RuntimeError(f"only {queue.next - 1} of {count} products arrived in {seconds} s")
        time.sleep(0.001)
    return time.perf_counter()


def settle(first: Queue, second: Queue) -> None:
    """Put a product now and then until one arrives: the second site is then subscribed."""
    while second.next == 1:
        first.put(os.urandom(16), feed="bench/settle")
        time.sleep(0.1)
    time.sleep(1.0)


def put_at(queue: Queue, per_second: float, count: int) -> None:
    due = time.perf_counter()
    for number in range(count):
        due += 1 / per_second
        time.sleep(max(0.0, due - time.perf_counter()))
        queue.put(time.time_ns().to_bytes(8, "little") + number.to_bytes(8, "little") + bytes(134), feed=FEED)


def note_latency(parent: Connection, path: Path, count: int) -> None:
    taken: list[int] = []
    with Queue.open(path) as queue:
        parent.send("ready")
        for batch in queue.follow("next", FEED, timeout=60):
            now = time.time_ns()
            taken += [now - int.from_bytes(batch.payload(place)[:8], "little") for place in range(len(batch))]
            if len(taken) >= count:
                break
    parent.send(taken)
