"""`headrace bench stations`: producers, stations and consumers, in ET's experiments.

One producer process, one to eight consumer processes, a queue in memory without duplicate check, blocking stations with
a capacity of 3,000 products, as many as ET's system had events. ET reused the memory of its events; a queue of 16 MiB
(64 MiB for payloads of 34 kB or more) does the same and stays in the cache, as ET's events did. One figure has a queue
that does not fit. The producer puts arrays of products, whose payloads are copied into the queue. The consumer gets
arrays, verifies their checksums, which reads every byte, and acknowledges them. The rate counts products from the first
put to the last acknowledgement by the last consumer.

The yardstick is the least that two Python processes can do: copy the same arrays into a ring of
`multiprocessing.shared_memory` and out again, with two counters and no guarantees. For latency it is 8 bytes through a
pipe.
"""

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from pathlib import Path

from headrace.bench.anchors import ANCHORS
from headrace.bench.processes import processes
from headrace.bench.report import Figure
from headrace.queue import Queue
from headrace.station import Consumer

FEED = "det/events"
CAPACITY = 3000
ROUNDS = 3
SIZES = (8, 100, 512, 5_000, 34_000, 1_000_000)
LARGE_QUEUE_SIZE = 5_000
ARRAYS = (1, 10, 100, 1000)
CONSUMERS = (1, 2, 4, 8)
GOALS = {8: 6.6e6, 100: 6.1e6, 512: 5.0e6, 5_000: 1.9e6, 34_000: 0.25e6, 1_000_000: 8_000.0}
ARRAY_GOALS = {1: 0.4e6, 100: 7.2e6, 1000: 9.6e6}
NOT_MEASURED = [
    "ET itself: its figures come from a machine with the yardstick (md5) at 1.08 µs; it passes pointers and "
    "verifies no checksums",
    "expensive selections, durability on disk, duplicate check: see headrace bench match and headrace bench queue",
    "remote consumers",
]
_RING = 1 << 25

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One experiment."""

    size: int
    array: int
    consumers: int
    stations: int
    products: int
    queue_mib: int = 16


def run(place: Path, scale: float, progress: Progress) -> Iterator[Figure]:
    """All figures, in the order of ET's paper."""
    for size in SIZES:
        progress(f"{size} B in arrays of 100")
        yield from _by_size(place, size, scale)
    for array in ARRAYS:
        progress(f"arrays of {array}")
        yield from _by_array(place, array, scale)
    alone = 0.0
    for stations in (False, True):
        for consumers in CONSUMERS:
            progress(f"{consumers} consumers on {'a station each' if stations else 'one station'}")
            figure = _by_consumers(place, consumers, stations, scale, alone)
            alone = figure.value if consumers == 1 else alone
            yield figure
    progress("for product in consumer")
    yield _iteration(place, scale)
    progress("latency at 100/s")
    yield from _latency(place, scale)


def _by_size(place: Path, size: int, scale: float) -> Iterator[Figure]:
    array = 100 if size < 100_000 else 10
    products = max(array * 20, int(scale * min(2_000_000, 4_000_000_000 // max(size, 1000))) // array * array)
    queue_mib = 16 if size < 10_000 else 64
    rate = _best(place, Run(size, array, 1, 1, products, queue_mib), scale)
    plain = max(_plain_rate(size, array, products) for _ in range(_rounds(scale)))
    beside = f"{ANCHORS[f'station-{size}']}; plain shared memory here: {plain:,.0f}/s"
    yield Figure(f"size-{size}", f"{size:,} B, arrays of {array}", rate, "/s", GOALS[size], beside=beside)
    if size == LARGE_QUEUE_SIZE:
        rate = _best(place, Run(size, array, 1, 1, products, 512), scale)
        yield Figure(f"size-{size}-large", f"{size:,} B, a queue of 512 MiB", rate, "/s")


def _by_array(place: Path, array: int, scale: float) -> Iterator[Figure]:
    products = max(array * 20, int(scale * (200_000 if array == 1 else 2_000_000)) // array * array)
    rate = _best(place, Run(100, array, 1, 1, products), scale)
    plain = max(_plain_rate(100, array, products) for _ in range(_rounds(scale)))
    beside = f"{ANCHORS[f'array-{array}']}; plain shared memory here: {plain:,.0f}/s"
    yield Figure(f"array-{array}", f"100 B, arrays of {array}", rate, "/s", ARRAY_GOALS.get(array), beside=beside)


def _by_consumers(place: Path, consumers: int, stations: bool, scale: float, alone: float) -> Figure:
    products = max(2_000, int(scale * (500_000 if stations and consumers > 1 else 1_000_000)) // 100 * 100)
    rate = _best(place, Run(100, 100, consumers, consumers if stations else 1, products), scale)
    what = f"{consumers} consumer{'s' if consumers > 1 else ''}, " + ("a station each" if stations else "one station")
    beside = ANCHORS.get(f"consumers-{consumers}-{'each' if stations else 'one'}", "")
    goal = alone / 2 if consumers == CONSUMERS[-1] and stations else None
    return Figure(f"consumers-{consumers}-{'each' if stations else 'one'}", what, rate, "/s", goal, beside=beside)


def _best(place: Path, experiment: Run, scale: float) -> float:
    return max(_rate(place / f"round-{number}", experiment) for number in range(_rounds(scale)))


def _rounds(scale: float) -> int:
    return ROUNDS if scale >= 0.1 else 1


# --- one experiment ------------------------------------------------------------------------------


def _rate(path: Path, experiment: Run) -> float:
    """Products per second, from the first put to the last acknowledgement by the last consumer."""
    with Queue.create(
        path, size=f"{experiment.queue_mib}MiB", durability="memory", dedup="none", origin="bench"
    ) as queue:
        for number in range(experiment.stations):
            queue.station(f"s{number}", None, blocking=True, capacity=CAPACITY)
        share = experiment.products if experiment.stations > 1 else experiment.products // experiment.consumers
        places = [(path, f"s{number % experiment.stations}", experiment.array, share)
                  for number in range(experiment.consumers)]  # fmt: skip
        with processes(_consume, places) as consumers:
            payloads = [os.urandom(experiment.size) for _ in range(experiment.array)]
            begun = time.perf_counter()
            _produce(queue, payloads, share * (experiment.consumers if experiment.stations == 1 else 1))
            ended: float = max(consumer.recv() for consumer in consumers)
    shutil.rmtree(path)
    return experiment.products / (ended - begun)


def _produce(queue: Queue, payloads: list[bytes], products: int) -> None:
    if len(payloads) == 1:
        for _ in range(products):
            queue.put(payloads[0], feed=FEED, timeout=60)
        return
    for _ in range(products // len(payloads)):
        queue.put_many(payloads, feed=FEED, timeout=60)
    if products % len(payloads):
        queue.put_many(payloads[: products % len(payloads)], feed=FEED, timeout=60)


def _consume(parent: Connection, path: Path, station: str, array: int, products: int) -> None:
    """Get and acknowledge this many products; report when the last one was."""
    with Queue.open(path) as queue, queue.station(station).attach() as consumer:
        parent.send("ready")
        while products:
            batch = consumer.get(min(array, products), 60.0)
            if not len(batch):
                break
            products -= len(batch)
            consumer.ack(batch)
        parent.send(time.perf_counter())


def _iteration(place: Path, scale: float) -> Figure:
    """One consumer, product by product, of a station at which they all wait."""
    products, path = max(2_000, int(scale * 500_000)), place / "iteration"
    best = {"loop": 0.0, "batches": 0.0}
    with Queue.create(path, size="512MiB", durability="memory", dedup="none", origin="bench") as queue:
        station = queue.station("s")
        for _ in range(0, products, 1000):
            queue.put_many([bytes(100)] * min(1000, products), feed=FEED, ident="SAUS70 KWBC 060000")
        held = queue.next - 1
        for _ in range(_rounds(scale)):
            for how, work in (("loop", _loop), ("batches", _take_batches)):
                station.seek("oldest")
                with station.attach() as consumer:
                    begun = time.perf_counter()
                    work(consumer, held)
                    best[how] = max(best[how], held / (time.perf_counter() - begun))
    shutil.rmtree(path)
    what = "for product in consumer: feed, ident and payload of each"
    return Figure("iterate", what, best["loop"], "/s", 1e6, beside=f"arrays of 100 here: {best['batches']:,.0f}/s")


def _loop(consumer: Consumer, products: int) -> None:
    for product in consumer:
        _ = product.feed, product.ident, product.payload
        products -= 1
        if not products:
            consumer.ack(product)
            break


def _take_batches(consumer: Consumer, products: int) -> None:
    while products:
        batch = consumer.get(100)
        for product in batch:
            _ = product.feed, product.ident, product.payload
        products -= len(batch)
        consumer.ack(batch)


# --- the yardstick -------------------------------------------------------------------------------


def _plain_rate(size: int, array: int, products: int) -> float:
    """Copies into a ring and out again, array by array; products per second."""
    slots = max(2, min(64, _RING // (size * array)))
    memory = shared_memory.SharedMemory(create=True, size=16 + slots * size * array)
    room: memoryview = memory.buf  # type: ignore[assignment]
    try:
        with processes(_copy_out, [(memory.name, size * array, slots, products // array)]) as (reader,):
            counters, payload = room[:16].cast("Q"), os.urandom(size * array)
            begun = time.perf_counter()
            for number in range(products // array):
                while number - counters[1] >= slots:
                    pass
                place = 16 + number % slots * len(payload)
                room[place : place + len(payload)] = payload
                counters[0] = number + 1
            spent: float = reader.recv() - begun
            counters.release()
    finally:
        memory.close()
        memory.unlink()
    return products / spent


def _copy_out(parent: Connection, name: str, size: int, slots: int, arrays: int) -> None:
    memory = shared_memory.SharedMemory(name)  # spawned: the tracker is the parent's
    room: memoryview = memory.buf  # type: ignore[assignment]
    counters = room[:16].cast("Q")
    parent.send("ready")
    for number in range(arrays):
        while counters[0] <= number:
            pass
        place = 16 + number % slots * size
        bytes(room[place : place + size])
        counters[1] = number + 1
    parent.send(time.perf_counter())
    counters.release()
    memory.close()


# --- latency -------------------------------------------------------------------------------------


def _latency(place: Path, scale: float) -> Iterator[Figure]:
    """From before the put to after the get, one product at a time, 100 per second."""
    path = place / "latency"
    count = max(50, int(1000 * scale))
    with Queue.create(path, size="64MiB", durability="memory", dedup="none", origin="bench") as queue:
        queue.station("s", None)
        with processes(_note_latency, [(path, count)]) as (consumer,):
            for _ in range(count):
                time.sleep(0.01)
                queue.put(time.perf_counter_ns().to_bytes(8, "little"), feed=FEED)
            taken = sorted(consumer.recv())
    shutil.rmtree(path)
    with processes(_note_pipe, [(count,)]) as (reader,):
        for _ in range(count):
            time.sleep(0.01)
            reader.send_bytes(time.perf_counter_ns().to_bytes(8, "little"))
        pipe = statistics.median(reader.recv()) / 1e3
    yield Figure("latency-p50", "latency at 100/s, p50", statistics.median(taken) / 1e3, "µs", 50, True,
                 f"{ANCHORS['station-latency']}; a pipe here: {pipe:.0f} µs")  # fmt: skip
    yield Figure("latency-p99", "latency at 100/s, p99", taken[int(len(taken) * 0.99)] / 1e3, "µs")


def _note_pipe(parent: Connection, count: int) -> None:
    taken = []
    parent.send("ready")
    for _ in range(count):
        begun = int.from_bytes(parent.recv_bytes(), "little")
        taken.append(time.perf_counter_ns() - begun)
    parent.send(taken)


def _note_latency(parent: Connection, path: Path, count: int) -> None:
    taken = []
    with Queue.open(path) as queue, queue.station("s").attach() as consumer:
        parent.send("ready")
        for _ in range(count):
            batch = consumer.get(1, 60.0)
            now = time.perf_counter_ns()
            taken.append(now - int.from_bytes(batch.payload(0), "little"))
            consumer.ack(batch)
        parent.send(taken)
