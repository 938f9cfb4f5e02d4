"""The processes of a demonstration: a feeder at the first site, watchers and workers at the second.

Each runs in a fresh interpreter and talks to the run (run.py) through a pipe: reports go out, commands come in. A
process records each product that it sent or received, with a signature of its content, and saves the records in a file
for the oracle. It ends at its next report if the run is gone.

Workers are consumers that share the products of a station. A worker records a product when it has *acknowledged* it,
with its sequence, because that is what the station guarantees: each product is acknowledged exactly once, by one of
them. The records of all workers are merged by sequence in the end.

One worker receives the command to stall: it saves its records, takes one more full batch, reports how many products it
holds, and never acknowledges them. So the run can kill it at a moment when it certainly holds products.
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

from headrace.demo.plan import STATION, Plan, Watcher
from headrace.errors import HeadraceError
from headrace.product import Batch
from headrace.queue import Queue
from headrace.station import Consumer
from headrace.testing.pacing import due_batches, put_drafts
from headrace.testing.verdict import SIGNATURE_BYTES, Sighting

STALL, STOP = "stall", "stop"  # commands to workers; STOP also to the pipeline
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # blocked until a process runs
REPORT_S = 0.2
_WATCHER_WAIT_S = 0.1  # how long a watcher waits for products before it looks for a command
_WORKER_WAIT_S = 0.25
_WORK_S = 0.004  # simulates the work on a batch
_BATCH = 20
_STALL_BATCH_S = 3.0  # how long a stalling worker waits for a full batch
_STALL_S = 60.0

Acknowledged = tuple[int, Sighting]  # sequence and product


class ReadUntil(msgspec.Struct, frozen=True):
    """Command to a watcher: where to stop, and the time range in which the cut delayed products."""

    position: int
    delayed_ns: tuple[int, int]


class Report(msgspec.Struct, frozen=True):
    """What a process has done so far.

    Latencies are those since its last report; in the final report those of all products that the cut did not delay.
    """

    products: int = 0
    bytes: int = 0
    lost: int = 0  # of a watcher: evicted before it read them; of a site: left out by the other site
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    done: bool = False
    next: int = 0  # of the feeder when it is done: the end of the queue
    held: int = 0  # of a stalling worker: products that it holds
    redelivered: int = 0  # of a worker: products that another worker held before
    endpoint: str = ""  # of a site and of the link: where to connect
    state: str = ""  # of a site: the state of its request; of the pipeline: rows by rule
    base: int = 0  # of a site: everything below this sequence of the other site has arrived
    problem: str = ""  # why it stopped
    hint: str = ""


@contextmanager
def child_process(pipe: Connection) -> Iterator[None]:
    """Set the signals of a child, and send its error to the run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
    try:
        yield
    except HeadraceError as error:
        pipe.send(Report(problem=error.problem, hint=error.hint))
    except BrokenPipeError:
        pass  # the run is gone


# --- the feeder -----------------------------------------------------------------------------------


def run_feeder(plan: Plan, pipe: Connection) -> None:
    """Put the whole stream at its pace, at the first site."""
    with child_process(pipe), Queue.open(plan.first) as queue:
        sent: list[Sighting] = []
        size, reported_s = 0, 0.0
        for batch in due_batches(plan.drafts(), fast=False):
            put_drafts(queue, batch)
            sent += [sighting_of(draft.feed, draft.ident, draft.payload) for draft in batch]
            size += sum(len(draft.payload) for draft in batch)
            if time.monotonic() - reported_s >= REPORT_S:
                pipe.send(Report(len(sent), size))
                reported_s = time.monotonic()
        save_records(plan.records_of("feeder"), sent)
        pipe.send(Report(len(sent), size, done=True, next=queue.next))


# --- watchers -------------------------------------------------------------------------------------


def run_watcher(plan: Plan, watcher: Watcher, pipe: Connection) -> None:
    """Follow the queue of the second site up to the position that comes through the pipe."""
    with child_process(pipe), Queue.open(plan.second) as queue:
        received = _Received(pipe)
        follower = queue.follow("oldest", watcher.select, timeout=_WATCHER_WAIT_S)
        end: ReadUntil | None = None
        pipe.send(Report())
        while end is None or follower.position < end.position:
            for batch in follower:
                received.add(batch)
            received.report_if_due()
            if end is None and pipe.poll():
                end = pipe.recv()
        save_records(plan.records_of(watcher.name), received.sightings)
        np.save(plan.times_of(watcher.name), received.times_and_latencies())
        pipe.send(received.report(received.latencies_without(*end.delayed_ns), done=True))


class _Received:
    """What a watcher has received so far."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.sightings: list[Sighting] = []
        self._bytes = self._lost = 0
        self._latencies: list[npt.NDArray[np.float64]] = []
        self._created: list[npt.NDArray[np.int64]] = []
        self._reported = 0  # batches
        self._reported_s = time.monotonic()

    def add(self, batch: Batch) -> None:
        created = batch.columns["created_ns"].astype(np.int64)
        self._created.append(created)
        self._latencies.append((time.time_ns() - created) / 1e9)
        self.sightings += [sighting_of(product.feed, product.ident, product.payload) for product in batch]
        self._bytes += batch.payload_bytes
        self._lost += batch.lost.products if batch.lost else 0
        self.report_if_due()

    def report_if_due(self) -> None:
        if time.monotonic() - self._reported_s >= REPORT_S:
            self._pipe.send(self.report(self._latencies[self._reported :]))
            self._reported, self._reported_s = len(self._latencies), time.monotonic()

    def latencies_without(self, since_ns: int, until_ns: int) -> list[npt.NDArray[np.float64]]:
        """Latencies of products that arrived before that time or were created after it; of all if that leaves none."""
        kept = [
            latencies[(created + latencies * 1e9 < since_ns) | (created > until_ns)]
            for latencies, created in zip(self._latencies, self._created, strict=True)
        ]
        return kept if any(map(len, kept)) else self._latencies

    def times_and_latencies(self) -> npt.NDArray[np.float64]:
        """For each product, its time of creation in seconds since 1970, and its latency."""
        created = [each / 1e9 for each in self._created]
        return np.stack([np.concatenate([np.empty(0), *each]) for each in (created, self._latencies)])

    def report(self, latencies: list[npt.NDArray[np.float64]], done: bool = False) -> Report:
        p50 = p99 = None
        if latencies:
            p50, p99 = np.percentile(np.concatenate(latencies), [50, 99]).tolist()
        return Report(len(self.sightings), self._bytes, self._lost, p50, p99, done)


# --- workers --------------------------------------------------------------------------------------


def run_worker(plan: Plan, name: str, pipe: Connection) -> None:
    """Get, work and acknowledge, until the command STOP."""
    with (
        child_process(pipe),
        Queue.open(plan.second) as queue,
        queue.station(STATION, create=False).attach() as consumer,
    ):
        worker = _Worker(consumer, pipe)
        pipe.send(Report())
        command = ""
        while command != STOP:
            worker.work()
            if pipe.poll():
                command = pipe.recv()
            if command == STALL:
                worker.save(plan, name)
                worker.stall()
        worker.save(plan, name)
        pipe.send(worker.report(done=True))


class _Worker:
    """What one worker has done so far."""

    def __init__(self, consumer: Consumer, pipe: Connection) -> None:
        self._consumer, self._pipe = consumer, pipe
        self._acknowledged: list[Acknowledged] = []
        self._times_s: list[tuple[float, int]] = []  # since 1970, and how many products were acknowledged then
        self._bytes = self._redelivered = 0
        self._reported_s = time.monotonic()

    def work(self) -> None:
        batch = self._consumer.get(_BATCH, _WORKER_WAIT_S)
        redelivered = 0
        if len(batch):
            redelivered = int(np.count_nonzero(batch.deliveries > 1))
            records = [(each.sequence, sighting_of(each.feed, each.ident, each.payload)) for each in batch]
            time.sleep(_WORK_S)
            self._consumer.ack(batch)
            self._acknowledged += records
            self._times_s.append((time.time(), len(records)))
            self._bytes += batch.payload_bytes
            self._redelivered += redelivered
        if redelivered or time.monotonic() - self._reported_s >= REPORT_S:
            self._pipe.send(self.report())
            self._reported_s = time.monotonic()

    def stall(self) -> None:
        """Take a batch of products and never acknowledge them."""
        held = 0
        until_s = time.monotonic() + _STALL_BATCH_S
        while held < _BATCH and time.monotonic() < until_s:
            held += len(self._consumer.get(_BATCH - held, _WORKER_WAIT_S))
        self._pipe.send(self.report(held=held))
        time.sleep(_STALL_S)

    def save(self, plan: Plan, name: str) -> None:
        save_records(plan.records_of(name), self._acknowledged)
        np.save(plan.times_of(name), np.array(self._times_s, dtype=np.float64).reshape(-1, 2).T)

    def report(self, held: int = 0, done: bool = False) -> Report:
        return Report(len(self._acknowledged), self._bytes, held=held, redelivered=self._redelivered, done=done)


# --- records --------------------------------------------------------------------------------------


def sighting_of(feed: str, ident: str, payload: bytes | memoryview) -> Sighting:
    return Sighting(feed, ident, len(payload), blake3(payload).digest(length=SIGNATURE_BYTES))


def save_records(path: Path, records: list[Any]) -> None:
    path.write_bytes(msgspec.msgpack.encode(records))


def load_sightings(path: Path) -> list[Sighting]:
    """What the feeder sent, or a watcher received."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Sighting])


def load_acknowledged(path: Path) -> list[Acknowledged]:
    """What a worker acknowledged."""
    return msgspec.msgpack.decode(path.read_bytes(), type=list[Acknowledged])
