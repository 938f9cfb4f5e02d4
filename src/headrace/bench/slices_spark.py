"""Slices on Spark: whether a skewed stream fills all tasks, and what it costs to read by slices.

The keys of the stream are chosen by Zipf's law with exponent 1.2, and a channel assigns them to 256 slices by a hash.

    balance    the heaviest task compared with the mean, for 2, 4 and 8 tasks: slices divided by their numbers, as by a
               fixed division, and packed by their load as `partitionBy=slice` does. A slice is never divided, so a
               slice above the mean is the limit; the figure says so
    cost       the same where each slice takes another time for a product, which a group of nodes has measured
    plan       time to plan a batch
    read       a batch into Spark's no-op sink by slices, compared with stretches of equal size
"""

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.bench.report import Announce, Figure
from headrace.log.weights import Weights
from headrace.queue import Queue
from headrace.selection import Selection
from headrace.share.interface import Progress, Work

SEED, ZIPF, KEYS, SLICES = 14, 1.2, 100_000, 256
TASKS = (2, 4, 8)
PAYLOAD_BYTES = 200
_PART = 10_000
_PLANS = 5


def run(place: Path, scale: float, announce: Announce, *, with_spark: bool = True) -> Iterator[Figure]:
    """`with_spark` is off in tests that must not start Java."""
    from headrace.pipeline.source.slice_sets import GroupName, loads_of
    from headrace.pipeline.source.spans import spans_of

    work, count = (
        Path(tempfile.mkdtemp(prefix="headrace-bench-slices-", dir=place)),
        max(20_000, int(1_000_000 * scale)),
    )
    try:
        with Queue.create(work / "queue", size=f"{max(64, count * 600 >> 20)}MiB", dedup="none") as queue:
            announce(f"{count:,} products by Zipf's law")
            fill(queue, count)
            announce("balance")
            weights = queue.weigh(1, queue.next)
            yield from balance("", "bytes", weights.slices, weights.slices)
            _measure(queue, weights)
            group = GroupName("bench", "main")
            yield from balance("cost-", "cost", loads_of(queue, weights, group), weights.slices)
            taken = [_timed(lambda: spans_of(queue, Selection(), 1, queue.next, 4, True)) for _ in range(_PLANS)]
            what = f"plan a batch of {count:,} products by slices"
            yield Figure("slices-plan", what, min(taken) * 1e9 / count, "ns per product", 50, True)
            if with_spark:
                announce("reading by slices")
                yield from _reads(queue, count)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def fill(queue: Queue, count: int) -> None:
    chance = np.random.default_rng(SEED)
    shares = np.arange(1, KEYS + 1, dtype=np.float64) ** -ZIPF
    keys = chance.choice(KEYS, count, p=shares / shares.sum()).tolist()
    queue.channel("bench", "bench/**", slices=SLICES, assign="ident")
    for begin in range(0, count, _PART):
        part = keys[begin : begin + _PART]
        queue.put_many([bytes(PAYLOAD_BYTES)] * len(part), feed="bench/zipf", ident=[f"key {key}" for key in part])


def balance(name: str, by: str, loads: Mapping[int, float], bytes_: Mapping[int, float]) -> Iterator[Figure]:
    from headrace.pipeline.source.slice_sets import slice_sets

    for tasks in TASKS:
        mean = sum(loads.values()) / tasks
        limit = max(loads.values()) / mean
        before = _heaviest([range(task, SLICES, tasks) for task in range(tasks)], loads) / mean
        after = _heaviest(slice_sets(loads, tasks), loads) / mean
        what = f"{tasks} tasks, heaviest compared with the mean, packed by {by}"
        others = "" if loads is bytes_ else f", by bytes {_heaviest(slice_sets(bytes_, tasks), loads) / mean:.2f}"
        beside = f"by number {before:.2f}{others}; the heaviest slice alone {limit:.2f}"
        yield Figure(f"slices-{name}{tasks}", what, after, "", max(1.1, 1.001 * limit), True, beside=beside)


def _heaviest(sets: Sequence[Sequence[int]], loads: Mapping[int, float]) -> float:
    return max(sum(loads.get(number, 0) for number in numbers) for numbers in sets)


def _measure(queue: Queue, weights: Weights) -> None:
    """Let a group report that each slice takes another time for a product, from 0.1 ms to 10 ms."""
    numbers = np.array(sorted(weights.slice_products), np.uint32)
    products = np.array([weights.slice_products[number] for number in numbers.tolist()], np.uint64)
    costs_ns = np.random.default_rng(SEED).permutation(np.geomspace(1e5, 1e7, len(numbers)))
    share = queue.share("bench")
    seat = share.join("bench")
    share.give(0, seat.number, numbers, "hand")
    seat.exchange(Progress(work=Work(1, numbers, products, (products * costs_ns).astype(np.uint64))))
    seat.leave()


def _reads(queue: Queue, count: int) -> Iterator[Figure]:
    from headrace.pipeline.source.session import spark_session

    spark = spark_session("headrace bench", "local[2]")
    try:
        seconds: dict[str, list[float]] = {"bytes": [], "slice": []}
        for _ in range(_PLANS):
            for by, taken in seconds.items():
                taken.append(_timed(lambda by=by: _read(spark, queue, by)))
        rates = {by: count / min(taken) for by, taken in seconds.items()}
    finally:
        spark.stop()
    beside = f"stretches of equal size {rates['bytes']:,.0f}/s"
    yield Figure("slices-read", "batch read by slices, 2 tasks", rates["slice"], "/s", beside=beside)
    yield Figure(
        "slices-read-share", "the same, fraction of the rate by size", rates["slice"] / rates["bytes"], "", 0.7
    )


def _read(spark: Any, queue: Queue, by: str) -> None:
    frame = spark.read.format("headrace").options(queue=str(queue.path), columns="*", partitionBy=by, minPartitions=2)
    frame.load().write.format("noop").mode("overwrite").save()


def _timed(work: Any) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
