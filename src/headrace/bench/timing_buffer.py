"""Release buffer: products per second that are put in order, over one and over 50 origins.

The products are in the queue before the clock starts, 100 B each, in the order in which they arrived: up to 100 ms
after they were created, each one by its own random time. A buffer takes them from a follower and from a consumer, which
includes the acknowledgements. Its limits of number and size are the default ones. It may hold products for longer, so
that a busy machine changes the rate and not the order. Every batch is checked for order.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headrace.bench.report import Announce, Figure
from headrace.queue import Queue
from headrace.timing import ReleaseBuffer

PRODUCTS = 2_000_000
ORIGINS = 50
GOAL = 1_000_000.0
NOT_MEASURED = ["release buffer: remote sources, whose rate is that of the connection (headrace bench clients)"]
_BATCH = 20_000
_HOLD = "10s"
_SPACING_NS, _DELAY_NS = 2_000, 100_000_000


def run(folder: Path, scale: float, progress: Announce) -> Iterator[Figure]:
    count = max(5_000, int(PRODUCTS * scale))
    for origins in (1, ORIGINS):
        progress(f"release buffer over {origins} origin{'s' if origins > 1 else ''}")
        with Queue.create(folder / f"buffer-{origins}", size=max(64 << 20, 400 * count), durability="memory") as queue:
            _fill(folder, queue, count, origins)
            words = "one origin" if origins == 1 else f"{origins} origins"
            rate, late = _drain(ReleaseBuffer(queue.follow("oldest", timeout=0), hold=_HOLD), count)
            yield Figure(f"buffer-{origins}", f"release buffer on a follower, {words}", rate, "/s", GOAL)
            yield Figure(f"buffer-{origins}-late", f"products out of order, {words}", late, "", 0, True)
            with queue.station("all", "**", start="oldest").attach() as consumer:
                rate, _ = _drain(ReleaseBuffer(consumer, hold=_HOLD, timeout=0), count)
            yield Figure(f"buffer-{origins}-station", f"release buffer on a consumer, {words}", rate, "/s")


def _fill(folder: Path, queue: Queue, count: int, origins: int) -> None:
    """Put products of all origins in the order in which they arrive."""
    randomly = np.random.default_rng(origins)
    size = max(4 << 20, 1000 * _BATCH // origins)
    sources = [
        Queue.create(folder / f"origin-{origins}-{number}", size=size, origin=f"site{number}", durability="memory")
        for number in range(origins)
    ]
    base_ns = time.time_ns() - count * _SPACING_NS - 2 * _DELAY_NS
    try:
        for begin in range(0, count, _BATCH):
            created = base_ns + np.arange(begin, min(begin + _BATCH, count)) * _SPACING_NS
            order = np.argsort(created + randomly.integers(0, _DELAY_NS, len(created)), kind="stable")
            _put(queue, sources, created[order])
    finally:
        for source in sources:
            source.close()
            Queue.remove(source.path)


def _put(queue: Queue, sources: list[Queue], created: Any) -> None:
    """Each origin creates its share; the shares are stored one after the other."""
    for number, source in enumerate(sources):
        own = created[number :: len(sources)].tolist()
        first = source.next
        source.put_many([bytes(100)] * len(own), feed=f"lab/{number}", created=own)
        queue.put_batch(source.read_batch(first, limit=len(own)))


def _drain(buffer: ReleaseBuffer, count: int) -> tuple[float, int]:
    """Products per second, and how many came out of order."""
    found, last, late = 0, 0, 0
    begun = time.perf_counter()
    with buffer:
        for batch in buffer:
            created = batch.columns["created_ns"]
            late += int(np.count_nonzero(created[1:] < created[:-1])) + int(created[0] < last)
            last, found = int(created[-1]), found + len(batch)
    seconds = time.perf_counter() - begun
    return found / seconds, late + abs(count - found)
