"""`headrace bench slices`: everything that is claimed of slices and processing nodes, in one run.

    assignment   what a slice adds to a put (slices_assign.py)
    nodes        real nodes: linear, items per second, latency (slices_nodes.py)
    moves        slices that move under load, and a rebalance that stops the world (slices_moves.py)
    Zipf         a skewed stream through real nodes and the real balancer (slices_zipf.py)
    crowd        hundreds of nodes at one site (slices_remote.py)
    scale        a thousand nodes, simulated (slices_scale.py), with a rebalance that stops the world on one trace
                 (slices_rebalance.py), and tens of Gbit/s on paper (slices_paper.py)
    Spark        partitions of slices by load (slices_spark.py)

Real nodes are processes that share the machine with everything else on it, so the run begins with the machine's load.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from headrace.bench import (
    slices_assign,
    slices_moves,
    slices_nodes,
    slices_remote,
    slices_scale,
    slices_spark,
    slices_zipf,
)
from headrace.bench.processes import Pool
from headrace.bench.report import Announce, Figure

CROWD, CROWD_S = 500, 10.0
NOT_MEASURED = [
    "several machines and real networks: everything is on this one, over loopback",
    "Kafka: its protocol is measured in its best case, with our reading, and simulated; see docs/slices.md",
    "a sink: each batch of results is one transaction of it",
    *slices_assign.NOT_MEASURED,
    *slices_remote.NOT_MEASURED,
    *slices_scale.NOT_MEASURED,
]


def run(
    folder: Path, scale: float, progress: Announce, *, spark: bool = True, plots: Path | None = None
) -> Iterator[Figure]:
    """All figures; pictures in the directory `plots`. `spark` is off where Java must not start."""
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    yield Figure("machine", f"load of the machine before the run, {cores} cores", busy, "processes")
    yield from slices_assign.run(folder, scale, progress)
    with Pool() as pool:
        yield from slices_nodes.run(folder, scale, pool, progress)
        runs = slices_moves.measure(folder, scale, pool, progress)
        progress(f"{slices_moves.RATE:,} items/s, as many moves as possible")
        yield from slices_moves.figures_of(runs, slices_moves.fastest_moves(folder, scale, pool))
        yield from slices_zipf.run(folder, scale, pool, progress)
    if plots is not None:
        from headrace.bench.slices_moves_plot import save_plot  # matplotlib takes a second to load

        save_plot(plots / "moves.png", runs)
    crowd, seconds = max(10, int(CROWD * min(scale, 1.0))), max(0.5, CROWD_S * min(scale, 1.0))
    yield from slices_remote.run(folder, crowd, seconds, progress)
    yield from slices_scale.run(folder, scale, progress, plots / "scale.png" if plots is not None else None)
    yield from slices_spark.run(folder, scale, progress, with_spark=spark)
