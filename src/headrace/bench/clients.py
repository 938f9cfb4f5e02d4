"""`headrace bench clients`: what hundreds of remote consumers and suppliers cost, at their site and in their programs.

A site runs in a process, with a queue in memory. Consumers and suppliers are tasks in a few other processes, each with
one connection to the site over loopback. The consumers share some stations; a product goes to one of them. Steps:

    before    the site has no clients
    waiting   all are attached: every consumer waits in a get, every supplier holds its slot
    load      the suppliers push products of 1 kB, `rate` of them in a second, all suppliers together

Each product has a number and the time before its push, so that the benchmark knows which of them arrived, how often,
and how long after. Memory is that of the process (RSS), threads are those that the operating system counts.
"""

import asyncio
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headrace.bench.processes import processes
from headrace.bench.report import Announce, Figure
from headrace.bench.site_process import Usage, own_usage, serve, usage_of
from headrace.queue import AnyConsumer, AnyQueue, AnySupplier, Queue
from headrace.remote.client.connect import connect

CLIENTS_EACH = 250  # clients of one process
QUIET_S = 5.0  # how long the processor time of waiting clients is measured: each calls once in that time
NOT_MEASURED = [
    "a process for each client: its interpreter and its libraries take far more memory than the client",
    "several machines, real networks, TLS, durability on disk",
    "clients with a thread each (get, push consumers, pull suppliers): the threads are those of the program",
    "one core for each process: site and clients share the cores of this machine",
]
_READY_S = 300.0
_ARRIVE_S = 120.0  # in which everything that was pushed is acknowledged, or the benchmark fails
_BATCH = 10
_NUMBERS = struct.Struct("<QQ")  # number of a product, and when it was pushed
_PAYLOAD = bytes(1000 - _NUMBERS.size)


class Arrived(msgspec.Struct):
    """What the consumers of one process got: numbers of products, and nanoseconds since each was pushed."""

    numbers: list[int] = []
    after_ns: list[int] = []


def run(place: Path, clients: int, stations: int, rate: float, seconds: float, progress: Announce) -> Iterator[Figure]:
    """`clients` consumers and as many suppliers."""
    stations = min(stations, clients)
    path = place / "clients"
    count = max(clients, int(rate * seconds))
    Queue.create(path, size="256MiB", durability="memory", origin="bench").close()
    with ExitStack() as parts:
        (site,) = parts.enter_context(processes(serve, [(path, True)]))
        parts.callback(site.send, "stop")  # when the clients have left
        endpoint = site.recv()
        queue = parts.enter_context(connect(endpoint))
        channel = queue.channel("bench", "bench")
        for number in range(stations):
            channel.station(f"s{number}", f"bench/{number}")
        before = usage_of(site)
        shares = [len(part) for part in np.array_split(range(clients), -(-clients // CLIENTS_EACH))]
        progress(f"{clients} consumers and {clients} suppliers attach")
        firsts = [sum(shares[:place]) for place in range(len(shares))]
        parts_of_each = zip(firsts, shares, strict=True)
        consumers = parts.enter_context(
            processes(_consume, [(endpoint, stations, *part) for part in parts_of_each], _READY_S)
        )
        suppliers = parts.enter_context(processes(_supply, [(endpoint, share) for share in shares], _READY_S))
        waiting = [usage_of(pipe) for pipe in (site, *consumers, *suppliers)]
        progress("all of them wait")
        time.sleep(QUIET_S)
        quiet = [usage_of(pipe) for pipe in (site, *consumers, *suppliers)]
        progress(f"{count:,} products, {rate:g} in a second")
        for number, pipe in enumerate(suppliers):
            pipe.send(("push", number, len(suppliers), count, stations, count / rate))
        for pipe in suppliers:
            pipe.recv()
        loaded = [usage_of(pipe) for pipe in (site, *consumers, *suppliers)]
        _await_acknowledged(queue, stations, count)
        arrived = [_stop(pipe) for pipe in consumers]
        for pipe in suppliers:
            pipe.send("stop")
    yield from _compare(before, waiting[0], quiet[0], loaded[0], clients, count)
    half = 1 + len(consumers)
    yield from _compare_programs("consumer", waiting[1:half], quiet[1:half], loaded[1:half], clients, count)
    yield from _compare_programs("supplier", waiting[half:], quiet[half:], loaded[half:], clients, count)
    yield from _deliveries(arrived, count)


# --- figures --------------------------------------------------------------------------------------


def _compare(before: Usage, waiting: Usage, quiet: Usage, loaded: Usage, clients: int, count: int) -> Iterator[Figure]:
    """Of the site."""
    yield Figure("site-threads", "site: threads under load", loaded.threads, "threads",
                 beside=f"{before.threads} before the first client")  # fmt: skip
    grown = (waiting.memory_kib - before.memory_kib) / (2 * clients)
    yield Figure("site-memory", "site: memory for each client", max(grown, 0.0), "KiB",
                 beside=f"{loaded.memory_kib / 1024:.0f} MiB in all, under load")  # fmt: skip
    yield from _processor("site", waiting, quiet, loaded, 2 * clients, count)


def _compare_programs(
    role: str, waiting: list[Usage], quiet: list[Usage], loaded: list[Usage], clients: int, count: int
) -> Iterator[Figure]:
    """Of all processes with clients of one role."""
    yield Figure(f"{role}-threads", f"{role}s: threads of one process", max(each.threads for each in loaded), "threads",
                 beside=f"{-(-clients // len(loaded))} {role}s in it")  # fmt: skip
    memory_kib = sum(each.memory_kib for each in loaded) / clients
    yield Figure(f"{role}-memory", f"{role}s: memory for each, with its share of the process", memory_kib, "KiB")
    yield from _processor(f"{role}s", _sum(waiting), _sum(quiet), _sum(loaded), clients, count, name=role)


def _processor(
    who: str, waiting: Usage, quiet: Usage, loaded: Usage, clients: int, count: int, name: str = "site"
) -> Iterator[Figure]:
    idle = (quiet.processor_s - waiting.processor_s) / (quiet.moment_s - waiting.moment_s)
    yield Figure(f"{name}-idle", f"{who}: processor time of each that waits", idle / clients * 1e6, "µs/s",
                 beside=f"{100 * idle:.1f} % of a core in all")  # fmt: skip
    work = loaded.processor_s - quiet.processor_s
    yield Figure(f"{name}-work", f"{who}: processor time for each product", work / count * 1e6, "µs",
                 beside=f"{100 * work / (loaded.moment_s - quiet.moment_s):.1f} % of a core under load")  # fmt: skip


def _sum(usages: list[Usage]) -> Usage:
    return Usage(
        sum(each.threads for each in usages), sum(each.memory_kib for each in usages),
        sum(each.processor_s for each in usages), usages[0].moment_s,
    )  # fmt: skip


def _deliveries(arrived: list[Arrived], count: int) -> Iterator[Figure]:
    numbers = [number for each in arrived for number in each.numbers]
    after_ms = np.array([after for each in arrived for after in each.after_ns]) / 1e6
    yield Figure("lost", f"products lost, of {count:,}", count - len(set(numbers)), "products", 0.0, at_most=True)
    yield Figure(
        "twice", "products delivered twice", len(numbers) - len(set(numbers)), "products", 0.0, at_most=True
    )  # fmt: skip
    for name, share in (("p50", 50), ("p99", 99)):
        yield Figure(f"latency-{name}", f"from push to consumer, {name}", float(np.percentile(after_ms, share)), "ms")


# --- processes ------------------------------------------------------------------------------------


def _stop(pipe: Connection) -> Arrived:
    pipe.send("stop")
    arrived: Arrived = pipe.recv()
    return arrived


def _consume(parent: Connection, endpoint: str, stations: int, first: int, count: int) -> None:
    """Consumers, of one station after another, until the parent says stop; then what arrived."""
    arrived = Arrived()

    async def consume(consumer: AnyConsumer) -> None:
        async for batch in consumer.batches_async(_BATCH):
            now_ns = time.monotonic_ns()
            for product in batch:
                number, pushed_ns = _NUMBERS.unpack_from(product.payload)
                arrived.numbers.append(number)
                arrived.after_ns.append(now_ns - pushed_ns)

    async def work(queue: AnyQueue) -> None:
        names = [f"s{number % stations}" for number in range(first, first + count)]
        consumers = [queue.station(name).attach() for name in names]
        tasks = [asyncio.create_task(consume(consumer)) for consumer in consumers]
        await asyncio.sleep(0.5)  # each has sent its first get
        parent.send("ready")
        while await _message(parent) != "stop":
            parent.send(own_usage())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    with connect(endpoint) as queue:
        asyncio.run(work(queue))
        parent.send(arrived)


def _supply(parent: Connection, endpoint: str, count: int) -> None:
    """Suppliers; when the parent says so, they push in turn, all processes together each number below `products`."""

    async def push(
        suppliers: list[AnySupplier], place: int, places: int, products: int, stations: int, seconds: float
    ) -> None:
        begun_s = time.monotonic()
        pushes = []
        for number in range(place, products, places):
            await asyncio.sleep(max(0.0, begun_s + seconds * number / products - time.monotonic()))
            supplier = suppliers[number // places % len(suppliers)]
            payload = _NUMBERS.pack(number, time.monotonic_ns()) + _PAYLOAD
            push = supplier.push_async(payload, feed=f"bench/{number % stations}", ident=str(number))
            pushes.append(asyncio.create_task(push))
        await asyncio.gather(*pushes)

    async def work(queue: AnyQueue) -> None:
        channel = queue.channel("bench")
        suppliers = [channel.supplier() for _ in range(count)]
        parent.send("ready")
        while (message := await _message(parent)) != "stop":
            if message == "usage":
                parent.send(own_usage())
            else:
                await push(suppliers, *message[1:])
                parent.send("done")

    with connect(endpoint) as queue:
        asyncio.run(work(queue))


async def _message(pipe: Connection) -> Any:
    """The next message of the parent; no thread waits for it."""
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(pipe.fileno(), arrived.set)
    try:
        await arrived.wait()
    finally:
        loop.remove_reader(pipe.fileno())
    return pipe.recv()


def _await_acknowledged(queue: AnyQueue, stations: int, count: int) -> None:
    """Until the stations have seen the acknowledgement of each product."""
    until = time.monotonic() + _ARRIVE_S
    left = [queue.station(f"s{number}") for number in range(stations)]
    acknowledged = 0
    while acknowledged < count and time.monotonic() < until:
        time.sleep(0.1)
        acknowledged = sum(station.statistics().acknowledged for station in left)
