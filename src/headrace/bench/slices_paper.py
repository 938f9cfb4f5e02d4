"""What tens of Gbit/s would need: measured on one core here, multiplied on paper.

Products of 34 kB go into a queue, with signatures, and one reader reads them all, every checksum compared.
From the two rates follow the writers and readers that the target needs, if the work itself takes no time, and from the
cost of one report what the table of ownership needs for a thousand nodes: it sees reports and sessions, never
products, so that does not grow with the rate.
"""

import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from headrace.bench.report import Figure
from headrace.queue import Queue

TARGET_GBIT_S = 40.0
PRODUCT_BYTES = 34_000
REPORTS_PER_S = 2  # of a node
_BATCH = 50
_SEED = 14


def run(folder: Path, scale: float, nodes: int, report_us: float) -> Iterator[Figure]:
    """Measured rates, and what they mean for the target; `report_us` is what a node's report costs the site."""
    put_gbit_s, read_gbit_s = _rates(folder, max(200, int(6000 * min(scale, 1.0))))
    target = f"{TARGET_GBIT_S:g} Gbit/s of {PRODUCT_BYTES // 1000} kB products, on paper"
    yield Figure("paper-put", "put of 34 kB products, one process", put_gbit_s, "Gbit/s")
    yield Figure("paper-read", "reading of 34 kB products, one process", read_gbit_s, "Gbit/s")
    yield Figure("paper-products", f"{target}: products", TARGET_GBIT_S * 1e9 / 8 / PRODUCT_BYTES, "products/s")
    yield Figure(
        "paper-writers", f"{target}: queues, each with one writer", math.ceil(TARGET_GBIT_S / put_gbit_s), "queues"
    )
    yield Figure("paper-readers", f"{target}: nodes only to read", math.ceil(TARGET_GBIT_S / read_gbit_s), "nodes")
    share = 100 * nodes * REPORTS_PER_S * report_us / 1e6
    yield Figure("paper-table", f"the same: reports of {nodes:,} nodes, two a second each", share, "% of a core")


def _rates(folder: Path, products: int) -> tuple[float, float]:
    """Gbit/s into and out of a queue."""
    payloads = [
        bytes(each) for each in np.random.default_rng(_SEED).integers(0, 256, (_BATCH, PRODUCT_BYTES), np.uint8)
    ]
    path = folder / "slices-paper"
    bits = products // _BATCH * _BATCH * PRODUCT_BYTES * 8
    with Queue.create(path, size=2 * products * PRODUCT_BYTES, durability="process", origin="bench") as queue:
        begun_s = time.perf_counter()
        for start in range(0, products // _BATCH * _BATCH, _BATCH):
            queue.put_many(payloads, feed="bench/paper", ident=[str(start + number) for number in range(_BATCH)])
        put_s = time.perf_counter() - begun_s
        begun_s, position = time.perf_counter(), queue.oldest
        while position < queue.next:
            position = queue.read_batch(position, limit=_BATCH).next
        read_s = time.perf_counter() - begun_s
    shutil.rmtree(path)
    return bits / put_s / 1e9, bits / read_s / 1e9
