"""Pacer: jitter before and after, by RTP's formula, and what each precision costs.

    atlantic   a stream from the other side of the Atlantic, simulated: each product is put into the queue when it
               would have arrived. Figures 16 to 18 of the paper are this with a spacing of 5 ms, for two precisions
    site       put and taken over loopback at a real site, a process of its own: figure 19
    fine       the same Atlantic with a spacing of 1 ms and of 500 microseconds: figure 20

The simulated way takes 45 ms, a queueing time by the gamma distribution (shape 2, scale 4 ms: 8 ms in the mean, 27 ms
for one product in a hundred), and for one product in a hundred up to 60 ms more. So products overtake each other. The
sender is a process of its own; the processor time is that of the process with the pacer, all threads included.

As in the paper, the first products are left out: until the fastest ones have come, the schedule moves.
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.bench.processes import processes
from headrace.bench.report import Announce, Figure
from headrace.bench.site_process import serve
from headrace.kernel import _kernel as kernel
from headrace.queue import AnyConsumer, Queue
from headrace.remote import connect
from headrace.timing import Pacer, PacerStatistics
from headrace.timing.jitter import jitter_of_each

NOT_MEASURED = [
    "pacer: real oceans; the way is simulated by a fixed distribution, and loopback is one machine",
    "pacer: a machine that does other things at the same time, which delays every sleeper",
]
SECONDS = 10.0
WAY_NS, GAMMA_NS, SPIKE_NS, SPIKES = 45_000_000, 4_000_000, 60_000_000, 0.01
FEED = "lab/camera"
_SKIPPED = 0.1  # of the stream, at its beginning

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kind:
    """One experiment."""

    name: str
    what: str
    spacing_us: int
    precision: str
    over_site: bool = False
    jitter_us: float | None = None  # goals
    processor: float | None = None


KINDS = (
    Kind("atlantic", "Atlantic, 5 ms, precision 1 ms", 5_000, "1ms"),
    Kind("atlantic-fine", "Atlantic, 5 ms, precision 100 µs", 5_000, "100us"),
    Kind("site", "loopback through a site, 5 ms, precision 100 µs", 5_000, "100us", over_site=True),
    Kind("1ms", "Atlantic, 1 ms, precision 1 ms", 1_000, "1ms", processor=6.0),
    Kind("500us", "Atlantic, 500 µs, precision 100 µs", 500, "100us", jitter_us=50.0, processor=25.0),
    Kind("500us-spin", "Atlantic, 500 µs, precision 20 µs", 500, "20us", jitter_us=50.0),
)


@dataclass(frozen=True, slots=True)
class Stream:
    """What was seen of one stream. Products are in the order in which they arrived or were released."""

    kind: Kind
    arrived: Times  # two rows: created and inserted
    released: Times  # two rows: created and released (monotonic)
    processor: float  # percent of one
    statistics: PacerStatistics

    @property
    def before(self) -> npt.NDArray[np.float64]:
        """Jitter after each product that arrived, in microseconds."""
        return jitter_of_each(*self.arrived) / 1e3

    @property
    def after(self) -> npt.NDArray[np.float64]:
        """Jitter after each product that was released, in microseconds."""
        return jitter_of_each(*self.released) / 1e3


def measure(folder: Path, scale: float, progress: Announce) -> list[Stream]:
    """Run all experiments, one after the other."""
    seconds = max(0.3, SECONDS * min(scale, 3.0))
    streams = []
    for kind in KINDS:
        progress(f"pacer: {kind.what}")
        streams.append(_over_site(folder, kind, seconds) if kind.over_site else _over_queue(folder, kind, seconds))
    return streams


def figures_of(streams: list[Stream]) -> Iterator[Figure]:
    for stream in streams:
        kind, name = stream.kind, stream.kind.name
        before, after = (each[int(_SKIPPED * len(each)) :] for each in (stream.before, stream.after))
        beside = f"before the pacer: {before.mean():,.0f} µs"
        yield Figure(f"jitter-{name}", f"jitter, {kind.what}", float(after.mean()), "µs", kind.jitter_us, True, beside)
        median = f"99 % below {np.percentile(after, 99):,.0f} µs"
        yield Figure(f"jitter-{name}-p50", "  median", float(np.median(after)), "µs", beside=median)
        yield Figure(f"processor-{name}", "  processor time", stream.processor, "% of one", kind.processor, True)
        lost = len(stream.arrived[0]) - len(stream.released[0])
        yield Figure(f"lost-{name}", "  products not released", float(lost), "", 0, True)


def _over_queue(folder: Path, kind: Kind, seconds: float) -> Stream:
    path = folder / f"pacer-{kind.name}"
    count = int(seconds * 1e6 / kind.spacing_us)
    with (
        Queue.create(path, size="64MiB", durability="memory") as queue,
        queue.station("show", "**").attach() as consumer,
        processes(send, [(path, kind, count)]) as (sender,),
    ):
        stream = _receive(consumer, kind, count, sender)
    shutil.rmtree(path)
    return stream


def _over_site(folder: Path, kind: Kind, seconds: float) -> Stream:
    path = folder / f"pacer-{kind.name}"
    count = int(seconds * 1e6 / kind.spacing_us)
    Queue.create(path, size="64MiB", durability="memory").close()
    with contextlib.ExitStack() as parts:
        (site,) = parts.enter_context(processes(serve, [(path,)]))
        parts.callback(site.send, "stop")
        endpoint = site.recv()
        queue = parts.enter_context(connect(endpoint))
        consumer = parts.enter_context(queue.station("show", "**").attach())
        (sender,) = parts.enter_context(processes(send_remotely, [(endpoint, kind, count)]))
        stream = _receive(consumer, kind, count, sender)
    shutil.rmtree(path)
    return stream


def _receive(consumer: AnyConsumer, kind: Kind, count: int, sender: Connection) -> Stream:
    """Take the stream from a pacer, and note when each product arrived and left."""
    rows: list[tuple[int, int, int]] = []  # created, inserted, released
    with Pacer(consumer, precision=kind.precision) as pacer:
        sender.send("go")
        begun: tuple[float, float] | None = None
        for batch in pacer:
            now_ns = time.monotonic_ns()
            begun = begun or (time.process_time(), time.monotonic())
            rows += [(each.created_ns, each.inserted_ns, now_ns) for each in batch]
            if len(rows) >= count:
                break
        assert begun is not None
        processor = 100 * (time.process_time() - begun[0]) / max(1e-9, time.monotonic() - begun[1])
        pacer.ack(batch)
        found = pacer.statistics()
    created, inserted, released = np.array(rows, np.int64).T
    order = np.argsort(inserted, kind="stable")
    return Stream(kind, np.array([created[order], inserted[order]]), np.array([created, released]), processor, found)


# --- other processes --------------------------------------------------------------------------------


def send(parent: Connection, path: Path, kind: Kind, count: int) -> None:
    """Put products when they would have arrived."""
    arrivals = arrivals_ns(count, kind.spacing_us * 1000)
    order = np.argsort(arrivals, kind="stable")
    with Queue.open(path) as queue:
        parent.send("ready")
        parent.recv()
        begun_ns, created_ns = time.monotonic_ns(), time.time_ns()
        for number in order.tolist():
            kernel.sleep_precisely(begun_ns + int(arrivals[number]), 0)
            queue.put(bytes(252), feed=FEED, created=created_ns + number * kind.spacing_us * 1000)


def send_remotely(parent: Connection, endpoint: str, kind: Kind, count: int) -> None:
    """Put products at a site, evenly."""
    with connect(endpoint) as queue:
        parent.send("ready")
        parent.recv()
        begun_ns = time.monotonic_ns()
        for number in range(count):
            kernel.sleep_precisely(begun_ns + number * kind.spacing_us * 1000, 0)
            queue.put(bytes(252), feed=FEED, created=time.time_ns())


def arrivals_ns(count: int, spacing_ns: int, seed: int = 16) -> Times:
    """When products arrive that were sent evenly from 0 on."""
    randomly = np.random.default_rng(seed)
    way = WAY_NS + randomly.gamma(2.0, GAMMA_NS, count)
    way += np.where(randomly.random(count) < SPIKES, randomly.random(count) * SPIKE_NS, 0.0)
    return (np.arange(count) * spacing_ns + way).astype(np.int64)
