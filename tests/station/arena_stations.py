"""Producers and consumers of stations in real processes that are killed at any moment, and checks of what they did.

Each process writes a ledger, one write per line. A producer notes each put that has returned. A consumer notes its batches
before it acknowledges them ("trying") and after ("done"). A batch of a killed consumer that was tried and is not noted as
done may or may not have been acknowledged; the queue knows, and delivers again what was not. `Arena.judge` compares the
ledgers with the products in the queue and with the stations' own counts.

The end is signalled by a file, since a lock or a semaphore could die with the process that holds it.
"""

import ctypes
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from headrace import Queue
from headrace.product import Batch
from headrace.station import StationStatistics
from support.waiting import until

FORK = get_context("fork")
_PR_SET_PDEATHSIG = 1
REVISED = b"+decoded"
UNLIMITED: dict[str, Any] = {"deliveries_max": 0}  # no product is parked, since none is at fault


@contextmanager
def checked_queue(path: Path, size: str = "64MiB", **station: Any) -> Iterator[Path]:
    """Create a queue, with a station "s" if that has terms, and close it; it must check clean in the end."""
    with Queue.create(path, size=size, durability="memory", dedup="none", origin="here") as queue:
        if station:
            queue.station("s", **station)
    yield path
    with Queue.open(path) as queue:
        assert queue.check() == []


# --- what runs in the processes -------------------------------------------------------------------


@dataclass(frozen=True)
class Note:
    """One line of a ledger."""

    what: str
    at_s: float  # time.monotonic, the same for all processes of a machine
    sequences: tuple[int, ...]


class Ledger:
    """A file with one line per note; a line that a kill cut short does not count."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, sequences: Iterable[int] = ()) -> None:
        line = f"{what} {time.monotonic():.6f} {' '.join(map(str, sequences))}\n"
        os.write(self._descriptor, line.encode())


def read_ledger(file: Path) -> Iterator[Note]:
    text = file.read_text() if file.exists() else ""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            what, at_s, *sequences = line.split()
            yield Note(what, float(at_s), tuple(map(int, sequences)))


def produce(
    folder: Path, path: Path, ledger: Ledger, seed: int, feeds: tuple[str, ...], pause_s: float, size_max: int = 200
) -> None:
    """Put single products and batches, at random priorities, until the end; note each by its feed."""
    chance = random.Random(seed)
    number = 0
    with Queue.open(path) as queue:
        while not (folder / "stop").exists():
            count, feed = chance.choice([1, 1, 2, 10, 40]), chance.choice(feeds)
            numbers = range(number, number + count)
            first = queue.put_many(
                [b"%d:%d:" % (seed, n) + b"x" * (n * 37 % size_max) for n in numbers],
                feed=feed,
                ident=[str(n) for n in numbers],
                priority=[chance.randrange(8) for _ in numbers],
            ).first
            ledger.note(feed, range(first, first + count))
            number += count
            time.sleep(pause_s * chance.random())


def consume(
    folder: Path, path: Path, ledger: Ledger, seed: int, station: str, n: int, pause_s: float = 0.0, part: str = ""
) -> None:
    """Get and acknowledge batches of up to `n`, until the end. `part` in a series: "revises", or "behind" one that does."""
    chance = random.Random(seed)
    with Queue.open(path) as queue, queue.station(station).attach() as consumer:
        ledger.note("attached")
        while not (folder / "end").exists():
            batch = consumer.get(n, 0.3)
            if not len(batch):
                continue
            sequences = batch.sequences.tolist()
            ledger.note("trying", sequences)
            _check_revisions(batch, part)
            if pause_s:
                time.sleep(pause_s * chance.random())
            revised = [bytes(product.payload) + REVISED for product in batch] if part == "revises" else None
            consumer.ack(batch, revised)
            ledger.note("done", sequences)


def _check_revisions(batch: Batch, part: str) -> None:
    """A station that revises gets the original; one behind it gets feeds `f/…` revised once."""
    for product, revisions in zip(batch, batch.revisions.tolist(), strict=True):
        expected = int(part == "behind" and product.feed.startswith("f/"))
        data = bytes(product.payload)
        assert (revisions, data.count(REVISED)) == (expected, expected), f"{product.sequence}: {data[-40:]!r}"


def _run(
    role: Callable[..., None], folder: Path, path: Path, file: Path, seed: int, arguments: tuple[Any, ...]
) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # no process outlives the test, not even a stopped one
    try:
        role(folder, path, Ledger(file), seed, *arguments)
    except BaseException as error:
        file.with_suffix(".complaint").write_text(f"{type(error).__name__}: {error}")
        raise


# --- starting and killing them -------------------------------------------------------------------


@dataclass
class Actor:
    """A process, what it does, and when it was killed."""

    process: BaseProcess
    ledger: Path
    role: Callable[..., None]
    arguments: tuple[Any, ...]
    killed_s: float | None = None

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def notes(self, what: str) -> list[Note]:
        return [note for note in read_ledger(self.ledger) if note.what == what]

    def sequences(self, what: str) -> list[int]:
        return [sequence for note in self.notes(what) for sequence in note.sequences]

    def held(self) -> set[int]:
        """Sequences that were tried and not noted as done."""
        return set(self.sequences("trying")) - set(self.sequences("done"))


@dataclass
class Arena:
    """Any number of processes on one queue. A `with` block ends all of them."""

    path: Path
    folder: Path
    seed: int
    actors: list[Actor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.chance = random.Random(self.seed)

    def __enter__(self) -> "Arena":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()

    def start(self, role: Callable[..., None], *arguments: Any) -> Actor:
        file = self.folder / f"{len(self.actors)}-{role.__name__}.ledger"
        seed = self.seed + len(self.actors)
        process = FORK.Process(target=_run, args=(role, self.folder, self.path, file, seed, arguments), daemon=True)
        process.start()
        actor = Actor(process, file, role, arguments)
        self.actors.append(actor)
        return actor

    def run(self, role: Callable[..., None], *arguments: Any) -> Actor:
        """Start a process that ends or kills itself, and wait for it."""
        actor = self.start(role, *arguments)
        actor.process.join(240)
        assert actor.process.exitcode is not None, f"{actor.ledger.name} hangs"
        return actor

    def living(self, role: Callable[..., None] | None = None) -> list[Actor]:
        return [a for a in self.actors if a.killed_s is None and a.process.is_alive() and role in (None, a.role)]

    def kill(self, actor: Actor) -> None:
        actor.killed_s = time.monotonic()
        os.kill(actor.pid, signal.SIGKILL)
        actor.process.join()

    def kill_one(self, role: Callable[..., None]) -> None:
        """Kill a process of this role, and start another in its place."""
        actor = self.chance.choice(self.living(role))
        self.kill(actor)
        self.start(actor.role, *actor.arguments)

    def kill_all(self) -> None:
        living = self.living()
        for actor in living:  # all at once: no process has time to notice
            actor.killed_s = time.monotonic()
            os.kill(actor.pid, signal.SIGKILL)
        for actor in living:
            actor.process.join()

    def end(self, file: str, role: Callable[..., None], seconds_max: float = 240.0) -> None:
        """Tell all processes of this role to end, and wait for them."""
        (self.folder / file).touch()
        for actor in self.living(role):
            actor.process.join(seconds_max)
            assert actor.process.exitcode is not None, f"{actor.ledger.name} hangs"
        assert self.complaints() == []

    def complaints(self) -> list[str]:
        return [f"{file.name}: {file.read_text()}" for file in sorted(self.folder.glob("*.complaint"))]

    # --- judging ----------------------------------------------------------------------------------

    def finish(self, *stations: str) -> None:
        """End the producers, wait until the consumers have caught up, and end them."""
        self.end("stop", produce)
        with Queue.open(self.path) as queue:
            until(lambda: all(is_idle(queue.station(name).statistics()) for name in stations), "caught up")
        self.end("end", consume)

    def acknowledged(self, *feeds: str) -> set[int]:
        """Every product of these feeds whose put has returned."""
        producers = [actor for actor in self.actors if actor.role is produce]
        return {sequence for actor in producers for feed in feeds for sequence in actor.sequences(feed)}

    def consumers(self, *stations: str) -> list[Actor]:
        return [actor for actor in self.actors if actor.role is consume and actor.arguments[0] in stations]

    def judge(self, queue: Queue, expected: set[int], *stations: str) -> None:
        """Each expected product was acknowledged exactly once by these stations (several: a group), and no other was."""
        tries: dict[int, list[tuple[float, Actor]]] = {}
        done: set[int] = set()
        for actor in self.consumers(*stations):
            for note in actor.notes("trying"):
                for sequence in note.sequences:
                    tries.setdefault(sequence, []).append((note.at_s, actor))
            own = actor.sequences("done")
            assert len(own) == len(set(own)), f"{actor.ledger.name} acknowledged a product twice"
            assert not done & set(own), f"acknowledged by two consumers: {sorted(done & set(own))[:10]}"
            done |= set(own)
        assert set(tries) == expected, (
            f"never delivered: {sorted(expected - set(tries))[:10]}, not selected: {sorted(set(tries) - expected)[:10]}"
        )
        held = {id(actor): actor.held() for actor in self.consumers(*stations)}
        for sequence, times in tries.items():
            *before, last = (actor for _, actor in sorted(times, key=lambda found: found[0]))
            for actor in before:
                assert actor.killed_s is not None, f"{sequence} was taken from a living consumer"
                assert sequence in held[id(actor)], f"{sequence} was delivered again after it was acknowledged"
            assert sequence in done or last.killed_s is not None, f"{sequence} was never acknowledged"
        told = [queue.station(name).statistics() for name in stations]
        assert all(map(is_idle, told)), told
        slack = recoveries(
            queue, told[0].chain
        )  # a consumer that died in the lock may have counted without acknowledging
        assert len(expected) <= sum(s.acknowledged for s in told) <= len(expected) + slack, told

    def recovery_s(self) -> list[float]:
        """For each kill of a consumer with leases: how long until the last of them was delivered again."""
        tried: dict[int, list[float]] = {}
        for note in sorted((note for a in self.actors for note in a.notes("trying")), key=lambda note: note.at_s):
            for sequence in note.sequences:
                tried.setdefault(sequence, []).append(note.at_s)
        waits = []
        for actor in self.actors:
            if actor.killed_s is not None and actor.role is consume:
                end_s = actor.killed_s
                again = [[at_s - end_s for at_s in tried[sequence] if at_s > end_s][:1] for sequence in actor.held()]
                waits.append(max((wait for first in again for wait in first), default=0.0))
        return [wait for wait in waits if wait]

    def kills(self) -> int:
        return sum(actor.killed_s is not None for actor in self.actors)


def is_idle(told: StationStatistics) -> bool:
    return told.waiting == told.leased == told.behind == 0


def recoveries(queue: Queue, chain: int) -> int:
    """How often a process died inside the chain's lock."""
    return int(queue._stations.chain(chain).kernel.state["recoveries"])


def sequences_of(queue: Queue, selection: Any = None) -> set[int]:
    """All sequences that the queue holds and the selection selects."""
    found: set[int] = set()
    position = queue.oldest
    while position < queue.next:
        batch = queue.read_batch(position, selection, limit=50_000)
        assert batch.lost is None
        found |= set(batch.sequences.tolist())
        position = batch.next
    return found
