"""The processes of a demonstration: one feeds the first site, others watch the second (workers.py has the station's).

Each runs in a fresh interpreter and talks to the stage through a pipe: reports go out, the end comes in. What an actor
sent or saw it notes product by product, content included by its signature, and leaves in a file for the oracle. An
actor whose stage is gone ends at the next report.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from headrace.cli.pacing import due_batches, put_drafts
from headrace.demo.plan import Plan, Watcher
from headrace.errors import HeadraceError
from headrace.product import Batch
from headrace.queue import Queue
from headrace.testing.verdict import SIGNATURE_BYTES, Sighting

ENDINGS = (signal.SIGINT, signal.SIGTERM)  # held back until an actor runs
REPORT_S = 0.2
_LOOK_UP_S = 0.1  # how long a watcher waits for products before it looks for the end


class End(msgspec.Struct, frozen=True):
    """Word for a watcher: where to stop, and from when to when products were held up on purpose."""

    position: int
    held_up_ns: tuple[int, int]


class Report(msgspec.Struct, frozen=True):
    """What an actor has done so far; latencies are those since its last report, in the final one those of all.

    What was held up by the cut is not in the latter.
    """

    products: int = 0
    bytes: int = 0
    lost: int = 0
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    done: bool = False
    next: int = 0  # of the feeder when it is done: where the queue ends
    held: int = 0  # of a worker that takes its time: products in its hands
    again: int = 0  # of a worker: products that another had in its hands before
    endpoint: str = ""  # of a site and of the link: where to connect to
    state: str = ""  # of a site: of its request; of the pipeline: rows by rule
    base: int = 0  # of a site: everything has come up to here, in the numbers of the other
    repairs: int = 0  # of a site
    problem: str = ""  # why it could not go on
    hint: str = ""


def run_feeder(plan: Plan, pipe: Connection) -> None:
    """Put the whole stream at its pace, at the first site."""
    with acting(pipe), Queue.open(plan.first) as queue:
        sent: list[Sighting] = []
        size, told_s = 0, 0.0
        for batch in due_batches(plan.drafts(), fast=False):
            put_drafts(queue, batch)
            sent += [sighting_of(draft.feed, draft.ident, draft.payload) for draft in batch]
            size += sum(len(draft.payload) for draft in batch)
            if time.monotonic() - told_s >= REPORT_S:
                pipe.send(Report(len(sent), size))
                told_s = time.monotonic()
        save_notes(plan.notes_of("feeder"), sent)
        pipe.send(Report(len(sent), size, done=True, next=queue.next))


def run_watcher(plan: Plan, watcher: Watcher, pipe: Connection) -> None:
    """Follow the second site's queue until the position that comes through the pipe."""
    with acting(pipe), Queue.open(plan.second) as queue:
        seen = _Seen(pipe)
        follower = queue.follow("oldest", watcher.select, timeout=_LOOK_UP_S)
        end: End | None = None
        pipe.send(Report())
        while end is None or follower.position < end.position:
            for batch in follower:
                seen.add(batch)
            seen.report_if_due()
            if end is None and pipe.poll():
                end = pipe.recv()
        save_notes(plan.notes_of(watcher.name), seen.sightings)
        np.save(plan.latencies_of(watcher.name), seen.moments())
        pipe.send(seen.report(seen.latencies_but(*end.held_up_ns), done=True))


class _Seen:
    """What a watcher has got so far."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.sightings: list[Sighting] = []
        self._bytes = self._lost = 0
        self._latencies: list[npt.NDArray[np.float64]] = []
        self._created: list[npt.NDArray[np.int64]] = []
        self._told = 0  # of these
        self._told_s = time.monotonic()

    def add(self, batch: Batch) -> None:
        created = batch.columns["created_ns"].astype(np.int64)
        self._created.append(created)
        self._latencies.append((time.time_ns() - created) / 1e9)
        self.sightings += [sighting_of(product.feed, product.ident, product.payload) for product in batch]
        self._bytes += batch.payload_bytes
        self._lost += batch.lost.products if batch.lost else 0
        self.report_if_due()

    def report_if_due(self) -> None:
        if time.monotonic() - self._told_s >= REPORT_S:
            self._pipe.send(self.report(self._latencies[self._told :]))
            self._told, self._told_s = len(self._latencies), time.monotonic()

    def latencies_but(self, since_ns: int, until_ns: int) -> list[npt.NDArray[np.float64]]:
        """Of all products that were not created in between; of all, if there are no others."""
        kept = [
            latencies[(created < since_ns) | (created > until_ns)]
            for latencies, created in zip(self._latencies, self._created, strict=True)
        ]
        return kept if any(map(len, kept)) else self._latencies

    def moments(self) -> npt.NDArray[np.float64]:
        """Of each product when it was created, in seconds since 1970, and its latency."""
        created = [each / 1e9 for each in self._created]
        return np.stack([np.concatenate([np.empty(0), *each]) for each in (created, self._latencies)])

    def report(self, latencies: list[npt.NDArray[np.float64]], done: bool = False) -> Report:
        p50 = p99 = None
        if latencies:
            p50, p99 = np.percentile(np.concatenate(latencies), [50, 99]).tolist()
        return Report(len(self.sightings), self._bytes, self._lost, p50, p99, done)


@contextmanager
def acting(pipe: Connection) -> Iterator[None]:
    """Signals as an actor wants them, and problems told to the stage."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    try:
        yield
    except HeadraceError as error:
        pipe.send(Report(problem=error.problem, hint=error.hint))
    except BrokenPipeError:
        pass  # the stage is gone, and nobody is left to tell


def sighting_of(feed: str, ident: str, payload: bytes | memoryview) -> Sighting:
    return Sighting(feed, ident, len(payload), blake3(payload).digest(length=SIGNATURE_BYTES))


def save_notes(path: Path, notes: list[Any]) -> None:
    path.write_bytes(msgspec.msgpack.encode(notes))


def load_sightings(path: Path) -> list[Sighting]:
    """What an actor noted."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Sighting])
