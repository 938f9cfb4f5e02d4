"""Keys by Zipf's law through four real nodes and the real balancer: the busiest node against the mean.

Each node is a process with one worker, whose work sleeps a millisecond for each item. Items arrive at a rate that needs
a third of all workers; one key in five items is the same. Slices begin where their numbers put them, as with a hash
ring; then a balancer starts, and balances by the times that nodes report. All items take the same time, so the load of
a node is counted here as the items that arrive in its slices, which does not depend on what else the machine does.
"""

import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from headrace.bench.processes import Pool
from headrace.bench.report import Announce, Figure
from headrace.bench.slices_nodes import STREAM, node_processes, spread, stream
from headrace.queue import Queue
from headrace.share.share import Share
from headrace.slices.balancer import Balancer

NODES, ZIPF, KEYS, BOUND = 4, 1.2, 100_000, 0.1
SLEEP_S, RATE = 0.001, 1_000
SECONDS, SETTLE_S = 6.0, 15.0  # of each measurement; of the balancer
SEED = 14
_EVERY_S = 0.01
_MEASURED_S = 5.0


def run(folder: Path, scale: float, pool: Pool, progress: Announce) -> Iterator[Figure]:
    """Both figures. `scale` reduces the times."""
    seconds, settle_s = max(0.5, SECONDS * min(scale, 1.0)), max(0.5, SETTLE_S * min(scale, 1.0))
    with (
        stream(folder / "zipf") as (queue, share),
        node_processes(pool, folder / "zipf", NODES, SLEEP_S, records=False),
        pool.run(_put, [(folder / "zipf",)]) as (producer,),
    ):
        spread(share, NODES)
        progress(f"Zipf {ZIPF:g} with {NODES} nodes, slices by number")
        time.sleep(seconds / 5)
        before, largest = _busiest(queue, share, seconds)
        progress(f"Zipf {ZIPF:g} with {NODES} nodes, balanced")
        with Balancer(share) as balancer:
            time.sleep(settle_s)
            after, _ = _busiest(queue, share, seconds)
            moved = balancer.statistics().slices_moved
        producer.send("stop")
    where = f"Zipf {ZIPF:g}, {NODES} real nodes"
    yield Figure("zipf-real-before", f"{where}: busiest node, slices spread by number", before, "× mean")
    beside = f"one slice alone: {largest:.2f}" if largest > 1 else ""
    goal = max(1.0, largest) * (1 + BOUND) if settle_s >= _MEASURED_S else None  # costs have to be measured first
    yield Figure("zipf-real-after", f"{where}: busiest node, balanced; {moved} slices moved", after, "× mean",
                 goal, True, beside)  # fmt: skip


def _busiest(queue: Queue, share: Share, seconds: float) -> tuple[float, float]:
    """The busiest node, and the busiest slice, divided by the mean of the nodes."""
    begin = queue.next
    time.sleep(seconds)
    weights = queue.weigh(begin, queue.next).slice_products
    items = np.array([weights.get(number, 0) for number in range(share.terms.slices)], np.float64)
    mean = max(float(items.sum()) / NODES, 1e-9)
    return float(np.bincount(share.state().owners, items).max()) / mean, float(items.max()) / mean


def _put(parent: Connection, path: Path) -> None:
    """A process: puts items with keys by Zipf's law, until it is stopped."""
    shares = np.arange(1, KEYS + 1, dtype=np.float64) ** -ZIPF
    keys = np.random.default_rng(SEED).choice(KEYS, 1 << 16, p=shares / shares.sum()).tolist()
    each, number = int(RATE * _EVERY_S), 0
    with Queue.open(path) as queue:
        parent.send("ready")
        begun_s = time.monotonic()
        while not parent.poll():
            idents = [str(keys[(number + more) % len(keys)]) for more in range(each)]
            queue.put_many([b""] * each, feed=STREAM, ident=idents)
            number += each
            time.sleep(max(0.0, begun_s + number / RATE - time.monotonic()))
        parent.recv()
