"""Assignment of slices: what it adds to a put, for each function; and puts with a slice beside puts without one.

Products go into two feeds of one queue in turn, one in a channel with slices and one beside it, so that both see the
same machine. Columns are prepared before the clock starts: to encode properties takes longer than all the rest. The
best round of each counts, and their difference is what the function costs. So it includes everything that a channel
with slices adds to a put: finding the channel of the feed, the function, and the check under the lock.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.bench.report import Announce, Figure
from headrace.log.append import put_columns
from headrace.log.columns import columns_of
from headrace.product.product import Product
from headrace.queue import Queue
from headrace.queue.queue import log_of

SLICES = 256
BATCH = 1000
ROUNDS = 15
GOAL_NS = 100
FUNCTIONS = {
    "ident": "hash of the ident", "property:station": "hash of a property", "modulo:number": "modulo of a property",
    "grid:lat,lon": "cell of a grid", "round_robin": "round robin", "random": "random",
    "function:in_turn": "a user's function that looks at no product",
}  # fmt: skip
NOT_MEASURED = ["functions of users that look at products: each look makes a Python object"]


def in_turn(products: Sequence[Product]) -> Any:
    """A function over a whole batch, as NumPy makes it."""
    return np.arange(len(products), dtype=np.uint16) % SLICES


def run(folder: Path, scale: float, progress: Announce) -> Iterator[Figure]:
    """`scale` shortens the rounds."""
    path = folder / "assign.queue"
    with Queue.create(
        path, size="64MiB", durability="memory", dedup="none", origin="bench", functions={"in_turn": in_turn}
    ) as queue:
        for assign, what in FUNCTIONS.items():
            progress(f"slices by {assign}")
            yield _assignment(queue, assign, what, scale)
        progress("puts with a slice beside puts without")
        yield from _given(queue, scale)
        progress("plain puts in a channel with slices")
        yield from _plain(queue, scale)
    shutil.rmtree(path)


def _assignment(queue: Queue, assign: str, what: str, scale: float) -> Figure:
    channel = queue.channel("c", "in", slices=SLICES, assign=assign)
    payloads, log = [b"x" * 100] * BATCH, log_of(queue)
    idents = [f"KDEN/{number}" for number in range(BATCH)]
    properties: list[dict[str, Any]] = [
        {"lat": 39.0 + number / BATCH, "lon": -104.0, "number": number, "station": f"K{number}"}
        for number in range(BATCH)
    ]
    inside, outside = (columns_of(BATCH, feed, idents, {"properties": properties}) for feed in ("in", "out"))
    within, beside = _each_ns(
        lambda: put_columns(log, payloads, inside), lambda: put_columns(log, payloads, outside), BATCH, scale
    )
    channel.remove()
    name = f"assign-{assign.partition(':')[0]}"
    return Figure(name, f"{what}, each product of a batch of {BATCH:,}", max(0.0, within - beside), "ns", GOAL_NS, True)


def _given(queue: Queue, scale: float) -> Iterator[Figure]:
    payloads, slices = [b"x" * 100] * BATCH, np.arange(BATCH, dtype=np.uint16)
    for kind, given in (("array", slices), ("list", slices.tolist())):
        with_slice, without = _each_ns(
            lambda given=given: queue.put_many(payloads, feed="out", slice=given),  # type: ignore[misc]
            lambda: queue.put_many(payloads, feed="out"), BATCH, scale,
        )  # fmt: skip
        what = f"put_many with slices in {'an' if kind == 'array' else 'a'} {kind}, beside put_many without"
        yield Figure(f"given-many-{kind}", what, with_slice / without, "times", 1.2, True)
    with_slice, without = _each_ns(lambda: _put_sliced(queue), lambda: _put_each(queue, "out"), BATCH, scale)
    yield Figure("given-put", "put with a slice, beside put without", with_slice / without, "times", 1.2, True)


def _plain(queue: Queue, scale: float) -> Iterator[Figure]:
    """The first is today's path without slices: other benchmarks have its rate."""
    queue.channel("c", "in", slices=SLICES, assign="ident")
    payloads = [b"x" * 100] * BATCH
    within, beside = _each_ns(
        lambda: queue.put_many(payloads, feed="in", ident="KDEN"),
        lambda: queue.put_many(payloads, feed="out", ident="KDEN"), BATCH, scale,
    )  # fmt: skip
    yield Figure("plain-many", "put_many into a channel with slices, beside one without", within / beside, "times", 1.2,
                 True)  # fmt: skip
    within, beside = _each_ns(lambda: _put_each(queue, "in"), lambda: _put_each(queue, "out"), BATCH, scale)
    yield Figure("plain-put", "put into a channel with slices, beside one without", within / beside, "times", 1.2, True)
    yield Figure("plain-put-ns", "put into a channel with slices", within, "ns")


def _put_each(queue: Queue, feed: str) -> None:
    put, payload = queue.put, b"x" * 100
    for _ in range(BATCH):
        put(payload, feed=feed, ident="KDEN")


def _put_sliced(queue: Queue) -> None:
    put, payload = queue.put, b"x" * 100
    for _ in range(BATCH):
        put(payload, feed="out", ident="KDEN", slice=5)


def _each_ns(one: Callable[[], Any], other: Callable[[], Any], products: int, scale: float) -> tuple[float, float]:
    """Nanoseconds for each product: the best of rounds in turn."""
    times = max(1, int(20 * scale))
    best = [float("inf"), float("inf")]
    for put in (one, other):
        put()
    for _ in range(max(2, int(ROUNDS * min(1.0, scale)))):
        for place, put in enumerate((one, other)):
            begun = time.perf_counter_ns()
            for _ in range(times):
                put()
            best[place] = min(best[place], (time.perf_counter_ns() - begun) / (times * products))
    return best[0], best[1]
