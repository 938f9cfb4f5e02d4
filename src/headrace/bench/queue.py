"""`headrace bench queue`: the product queue, figure by figure.

Each figure says what it measures and against what goal. Payloads are prepared before the clock starts; queues are full,
so that every put also evicts. Rounds are repeated and the best one counts, since other work on the machine can only
slow a round down; the yardstick is taken in the same run.
"""

import os
import shutil
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from headrace.bench.anchors import ANCHORS
from headrace.bench.processes import processes
from headrace.bench.report import Announce, Figure
from headrace.queue import Queue
from headrace.selection import Selection

FEED = "wx/text/metar"
IDENT = "SAUS70 KWBC 060000 /pMETAR"
ROUNDS = 5
NOT_MEASURED = [
    "durability `disk`: it is bound by the disk's flush, not by the queue",
    "several writers at once: they serialise on one lock",
    "cold page cache: everything fits into memory",
    "LDM and ET themselves: their figures come from a machine with the yardstick at 1.08 µs",
]


class Bench:
    """Queues below one directory, each removed when its figure is taken."""

    def __init__(self, place: Path, durability: str, scale: float, progress: Announce) -> None:
        self.place, self.durability, self.scale, self.progress = place, durability, scale, progress
        self._noise = np.random.default_rng(1).bytes(1 << 20)
        self._number = 0

    def payloads(self, count: int, size: int) -> list[bytes]:
        """Different payloads of one size."""
        start, self._number = self._number, self._number + count
        body = self._noise[: max(0, size - 8)]
        return [number.to_bytes(8, "little") + body[8:] + body[:8] for number in range(start, start + count)]

    def times(self, count: int) -> int:
        return max(100, int(count * self.scale))

    def queue(self, size: int, hash: str | None) -> Queue:
        """A queue whose signatures use this hash; None: one that makes no signatures."""
        path = self.place / f"bench-{os.getpid()}-{self._number}-{size}"
        return Queue.create(
            path, size=max(size, 1 << 20), durability=self.durability, dedup="none" if hash is None else "identity",
            hash=hash or "blake3", origin="bench",
        )  # fmt: skip

    def done(self, queue: Queue) -> None:
        queue.close()
        shutil.rmtree(queue.path)

    # --- writing ----------------------------------------------------------------------------------

    def put_round(self, queue: Queue, size: int, count: int) -> float:
        """Rate of single puts. Payloads are made shortly before they are put, as by a feed."""
        put, spent = queue.put, 0.0
        for payloads in self.portions(count, size, max(100, 1_000_000 // size)):
            begun = time.perf_counter()
            for payload in payloads:
                put(payload, feed=FEED, ident=IDENT)
            spent += time.perf_counter() - begun
        return count / spent

    def many_rate(self, queue: Queue, size: int, batch: int, count: int, ident: str = IDENT) -> float:
        best = 0.0
        for _ in range(ROUNDS):
            spent = 0.0
            for payloads in self.portions(count, size, 5000):
                batches = [payloads[i : i + batch] for i in range(0, len(payloads), batch)]
                begun = time.perf_counter()
                for part in batches:
                    queue.put_many(part, feed=FEED, ident=ident)
                spent += time.perf_counter() - begun
            best = max(best, count / spent)
        return best

    def portions(self, count: int, size: int, portion: int) -> Iterator[list[bytes]]:
        for start in range(0, count, portion):
            yield self.payloads(min(portion, count - start), size)

    def fill(self, queue: Queue, size: int) -> None:
        """Put until something has been evicted."""
        while queue.oldest == 1:
            queue.put_many(self.payloads(500, size), feed=FEED, ident=IDENT)

    def writing(self) -> Iterator[Figure]:
        """Small and large queue in turns, so that both see the same machine."""
        self.progress("put, 150 B, 20,000 and 1,000,000 held")
        small, large = (self.queue(products * 307, "blake3") for products in (20_000, 1_000_000))
        best = {small: 0.0, large: 0.0}
        for queue in best:
            self.fill(queue, 150)
        for _ in range(2 * ROUNDS):
            for queue in best:
                best[queue] = max(best[queue], self.put_round(queue, 150, self.times(50_000)))
        for name, queue in (("put-20k", small), ("put-1m", large)):
            what = f"put, 150 B, BLAKE3, full queue of {queue.statistics().held_products:,} products"
            yield Figure(name, what, best[queue], "products/s", 500_000, beside=ANCHORS[name])
        yield Figure("put-ratio", "put, 1,000,000 held against 20,000 held", best[large] / best[small], "ratio", 0.9)
        statistics = large.statistics()
        space = statistics.file_bytes / statistics.held_products - 150
        what = f"space beyond a 150 B payload, ident of {len(IDENT)} B included"
        yield Figure("space", what, space, "B/product", 160, True, ANCHORS["space"])
        self.done(small)
        self.done(large)
        yield from self.batches()
        yield from self.large()

    def batches(self) -> Iterator[Figure]:
        for name, by, ident, goal, signed in (
            ("many-blake3", "blake3", IDENT, 1_000_000, "BLAKE3"),
            ("many-xxh3", "xxh3", IDENT, 3_000_000, "XXH3"),
            ("many-unnamed", "blake3", "", 3_000_000, "no ident"),
            ("many-none", None, IDENT, 8_000_000, "no dedup"),
        ):
            self.progress(f"put_many of 100, 150 B, {signed}")
            queue = self.queue(64 << 20, by)
            self.fill(queue, 150)
            rate = self.many_rate(queue, 150, 100, self.times(200_000), ident)
            what = f"put_many of 100, 150 B, {signed}"
            yield Figure(name, what, rate, "products/s", goal, beside=ANCHORS.get(name, ""))
            self.done(queue)

    def large(self) -> Iterator[Figure]:
        self.progress("put, 13.6 kB")
        queue = self.queue(256 << 20, "blake3")
        self.fill(queue, 13_600)
        rate = max(self.put_round(queue, 13_600, self.times(10_000)) for _ in range(ROUNDS))
        yield Figure("put-13k", "put, 13.6 kB, BLAKE3", rate, "products/s", 100_000, beside=ANCHORS["put-13k"])
        self.done(queue)
        self.progress("put, 1 MB")
        queue = self.queue(256 << 20, None)
        payloads = [self._noise[i:] + self._noise[:i] for i in range(4)]
        payloads = [payload[:1_000_000] for payload in payloads]
        best = 0.0
        count = self.times(400)
        for _ in range(ROUNDS + 1):
            begun = time.perf_counter()
            for number in range(count):
                queue.put(payloads[number % 4], feed=FEED, ident=IDENT)
            best = max(best, count / (time.perf_counter() - begun))
        yield Figure("put-1mb", "put, 1 MB, no dedup", best / 1000, "GB/s", 4.0, beside=ANCHORS["put-1mb"])
        self.done(queue)

    # --- reading ----------------------------------------------------------------------------------

    def reading(self) -> Iterator[Figure]:
        self.progress("reading")
        count = self.times(500_000)
        queue = self.queue(count * 320 + (16 << 20), None)
        for start in range(0, count, 1000):
            idents = [f"SAUS{n % 90 + 10} KWBC {n % 1_000_000:06d} /pMETAR" for n in range(start, start + 1000)]
            queue.put_many(self.payloads(1000, 150), feed=[f"wx/text/{n % 50}" for n in range(1000)], ident=idents)
        by_feed = self.read_rate(queue, Selection("wx/*/7"), count)
        yield Figure(
            "read-feed",
            "reading by feed pattern, 1 in 50 wanted",
            by_feed,
            "rows/s",
            10_000_000,
            beside=ANCHORS["read-feed"],
        )
        by_ident = self.read_rate(queue, Selection(ident=r"^SAUS1. KWBC .*7 /pMETAR$"), count)
        yield Figure(
            "read-ident",
            "reading by ident regex, 1 in 90 wanted",
            by_ident,
            "rows/s",
            2_000_000,
            beside=ANCHORS["read-ident"],
        )
        everything = self.read_rate(queue, Selection(), count)
        yield Figure("read-all", "reading everything, every checksum compared", everything, "products/s")
        best = 0.0
        for _ in range(ROUNDS):
            position, spent, done = queue.oldest, 0.0, 0
            while position < queue.next:
                batch = queue.read_batch(position, limit=50_000)
                begun = time.perf_counter()
                batch.to_arrow()
                spent += time.perf_counter() - begun
                done += len(batch)
                position = batch.next
            best = max(best, done / spent)
        yield Figure("to-arrow", "Batch.to_arrow of 150 B products", best, "products/s", 3_000_000)
        iterated = max(self.iterate_rate(queue, count) for _ in range(ROUNDS))
        what = "for product in queue.read(): feed, ident and payload of each"
        yield Figure("iterate", what, iterated, "products/s", 2_000_000, beside=f"{everything:,.0f}/s in batches")
        self.done(queue)

    def read_rate(self, queue: Queue, selection: Selection, rows: int) -> float:
        best = 0.0
        for _ in range(ROUNDS):
            position = queue.oldest
            begun = time.perf_counter()
            while position < queue.next:
                position = queue.read_batch(position, selection, limit=50_000).next
            best = max(best, rows / (time.perf_counter() - begun))
        return best

    def iterate_rate(self, queue: Queue, products: int) -> float:
        begun = time.perf_counter()
        for product in queue.read("oldest"):
            _ = product.feed, product.ident, product.payload
        return products / (time.perf_counter() - begun)

    # --- waking -----------------------------------------------------------------------------------

    def waking(self) -> Iterator[Figure]:
        self.progress("wake-up between processes, 1,000/s")
        queue = self.queue(64 << 20, "blake3")
        count = self.times(4000)
        with processes(watch, [(str(queue.path), count)]) as (watcher,):
            payloads = self.payloads(count, 150)
            due = time.perf_counter()
            for payload in payloads:
                due += 0.001
                time.sleep(max(0.0, due - time.perf_counter()))
                queue.put(payload, feed=FEED, ident=IDENT, created=time.time_ns())
            delays_us = np.array(watcher.recv()) / 1000
        p50, p99 = np.percentile(delays_us, [50, 99])
        yield Figure(
            "wake-p50",
            "put in one process, seen in another, at 1,000/s: median",
            float(p50),
            "µs",
            50,
            True,
            ANCHORS["wake"],
        )
        yield Figure("wake-p99", "the same: 99 of 100", float(p99), "µs", 500, True)
        self.done(queue)

    # --- opening ----------------------------------------------------------------------------------

    def opening(self) -> Iterator[Figure]:
        size = int((2 << 30) * min(1.0, self.scale))
        self.progress("opening after a crash, filling the queue")
        queue = self.queue(size, "xxh3")
        path = queue.path
        queue.close()
        context = get_context("spawn")
        process = context.Process(target=fill_and_die, args=(str(path),))
        process.start()
        process.join()
        begun = time.perf_counter()
        queue = Queue.open(path)
        seconds = time.perf_counter() - begun
        held = queue.statistics().held_products
        yield Figure(
            "open", f"opening {size / 2**30:.2g} GiB with {held:,} products after kill -9", seconds, "s", 1.0, True
        )
        self.done(queue)


def watch(parent: Connection, path: str, count: int) -> None:
    """The other side of `waking`: how long after its creation each product was seen."""
    queue = Queue.open(path)
    follower = queue.follow("next")
    parent.send("ready")
    delays: list[int] = []
    while len(delays) < count:
        batch = next(follower)
        now_ns = time.time_ns()
        delays += [now_ns - created for created in batch.columns["created_ns"].tolist()]
    parent.send(delays)
    queue.close()


def fill_and_die(path: str) -> None:
    """Fill a queue of 150 B products to the brim and be killed in the middle of a put."""
    from headrace.kernel import _kernel as kernel

    queue = Queue.open(path)
    bench = Bench(Path(path), "process", 1.0, lambda _: None)
    while queue.oldest == 1:
        queue.put_many(bench.payloads(1000, 150), feed=FEED, ident=IDENT)
    kernel.arm_failpoint("append:before-commit", 1)
    queue.put_many(bench.payloads(1000, 150), feed=FEED, ident=IDENT)


def run(place: Path, durability: str, scale: float, progress: Announce) -> Iterator[Figure]:
    """All figures, one after the other."""
    bench = Bench(place, durability, scale, progress)
    yield from bench.writing()
    yield from bench.reading()
    yield from bench.waking()
    yield from bench.opening()
