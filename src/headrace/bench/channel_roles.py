"""Suppliers, consumers, a site and a narrow link, each in a process of its own, and what each of them has noted.

A supplier pushes a product at each tick and notes what became of it: stored at a sequence, refused, or unknown, because
no reply came in time. A consumer notes each product that it received. These notes are the ledgers: they come from the
processes themselves, not from counters of Headrace, which are compared with them (channel_accounts.py).

A worker process performs one part after the other, so that starting dozens of processes is paid for once.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import msgspec

import headrace
from headrace.bench.processes import processes
from headrace.errors import BlockedError, FabricError, HeadraceError, RejectedError
from headrace.link.session import SessionTerms, locators, open_session
from headrace.queue import Duplicate, Queue
from headrace.site.site import Site
from headrace.testing.narrow_link import NarrowLink

PATIENCE_S = 60.0
_WAVE = 10  # processes that are started at the same time
_READY_S = 240.0
_TURN_S = 0.2  # how long a consumer waits for products before it looks whether it should end

Fate = Literal["stored", "rejected", "unknown"]


class Pushed(msgspec.Struct, frozen=True):
    """One product of a supplier."""

    ident: str
    fate: Fate
    sequence: int = 0  # if it was stored


class SupplierLedger(msgspec.Struct, frozen=True):
    """What a supplier did with its ticks."""

    pushed: list[Pushed]
    skipped: int  # ticks that passed while an earlier push waited
    processor_s: float


class Received(msgspec.Struct, frozen=True):
    """One product at a consumer."""

    sequence: int
    ident: str
    latency_ns: int  # since its supplier began to push it
    late_ns: int  # since its expiry; negative: before it


class ConsumerLedger(msgspec.Struct, frozen=True):
    """What a consumer received."""

    received: list[Received]
    processor_s: float


# --- parts ----------------------------------------------------------------------------------------


class Supply(msgspec.Struct, frozen=True):
    """Push a product of `size` bytes at each of `ticks`."""

    endpoint: str
    channel: str
    feed: str
    name: str
    size: int
    ticks: int
    period_s: float
    offset_s: float  # after the tick
    timeout_s: float | None

    def perform(self, parent: Connection) -> None:
        with (
            headrace.connect(self.endpoint, patience=PATIENCE_S) as queue,
            queue.channel(self.channel).supplier() as supplier,
        ):
            parent.send("ready")
            begin_s: float = parent.recv()
            body, pushed, skipped, before_s = bytes(self.size - 8), list[Pushed](), 0, time.process_time()
            for tick in range(self.ticks):
                due_s = begin_s + self.offset_s + tick * self.period_s
                if time.monotonic() >= due_s + self.period_s:
                    skipped += 1
                    continue
                time.sleep(max(0.0, due_s - time.monotonic()))
                ident, payload = f"{self.name}/{tick}", time.time_ns().to_bytes(8, "little") + body
                try:
                    outcome = supplier.push(payload, feed=self.feed, ident=ident, timeout=self.timeout_s)
                    at = outcome.of if isinstance(outcome, Duplicate) else outcome
                    pushed.append(Pushed(ident, "stored", at))
                except (RejectedError, BlockedError):
                    pushed.append(Pushed(ident, "rejected"))
                except FabricError:  # no reply in time
                    pushed.append(Pushed(ident, "unknown"))
            spent_s = time.process_time() - before_s
        parent.send(SupplierLedger(pushed, skipped, spent_s))


class Consume(msgspec.Struct, frozen=True):
    """Receive from a station, up to `most` products at once, until the parent sends something."""

    endpoint: str
    channel: str
    station: str
    most: int

    def perform(self, parent: Connection) -> None:
        with headrace.connect(self.endpoint, patience=PATIENCE_S) as queue:
            station = queue.channel(self.channel).station(self.station, create=False)
            with station.attach() as consumer:
                parent.send("ready")
                received, before_s = list[Received](), time.process_time()
                while not parent.poll():
                    for batch in consumer.batches(self.most, timeout=_TURN_S):
                        now_ns = time.time_ns()
                        received += [
                            Received(each.sequence, each.ident, now_ns - int.from_bytes(each.payload[:8], "little"),
                                     now_ns - (each.expiry_ns or now_ns))
                            for each in batch
                        ]  # fmt: skip
                parent.recv()
                spent_s = time.process_time() - before_s
        parent.send(ConsumerLedger(received, spent_s))


class Serve(msgspec.Struct, frozen=True):
    """Be the site of a queue; each message of the parent but None asks for the processor time so far."""

    path: Path

    def perform(self, parent: Connection) -> None:
        terms = SessionTerms("router", listen=("tcp/127.0.0.1:0",))
        with Queue.open(self.path) as queue, open_session(terms) as session:
            site = Site(session, queue, [])
            parent.send("ready")
            parent.send(locators(session)[0])
            while parent.recv() is not None:
                parent.send(time.process_time())
            site.close()
        parent.send("ended")


class Carry(msgspec.Struct, frozen=True):
    """Be a link to a site with a limited rate, until the parent sends something."""

    endpoint: str
    bytes_per_s: float

    def perform(self, parent: Connection) -> None:
        with NarrowLink(self.endpoint, self.bytes_per_s) as link:
            parent.send("ready")
            parent.send(link.endpoint)
            parent.recv()
        parent.send(link.carried)


Part = Supply | Consume | Serve | Carry


# --- the worker processes -------------------------------------------------------------------------


def _work(parent: Connection) -> None:
    """Perform parts until the parent has no more of them."""
    parent.send("ready")
    while (part := parent.recv()) is not None:
        part.perform(parent)


def receive(pipe: Connection) -> Any:
    """The next message of a process; an error if it has ended."""
    try:
        return pipe.recv()
    except EOFError:
        raise HeadraceError("a process of the benchmark has ended before its time", "its error is above") from None


class Workers:
    """Processes that perform parts; more are started when they are needed, a few at a time."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._idle = stack, list[Connection]()

    def grow(self, count: int) -> None:
        """Have at least so many idle processes."""
        while len(self._idle) < count:
            wave = min(_WAVE, count - len(self._idle))
            self._idle += self._stack.enter_context(processes(_work, [()] * wave, _READY_S))

    def begin(self, parts: list[Part]) -> list[Connection]:
        """Give each part to a process, and return their pipes once all are ready."""
        self.grow(len(parts))
        chosen = [self._idle.pop() for _ in parts]
        for pipe, part in zip(chosen, parts, strict=True):
            pipe.send(part)
        for pipe in chosen:
            if not pipe.poll(_READY_S):
                raise HeadraceError(f"a process of the benchmark was not ready after {_READY_S:g} s", "try --quick")
            receive(pipe)
        return chosen

    def release(self, pipes: list[Connection]) -> None:
        """These have ended their parts."""
        self._idle += pipes

    def dismiss(self) -> None:
        for pipe in self._idle:
            pipe.send(None)


@contextmanager
def worker_processes() -> Iterator[Workers]:
    with ExitStack() as stack:
        made = Workers(stack)
        yield made
        made.dismiss()
