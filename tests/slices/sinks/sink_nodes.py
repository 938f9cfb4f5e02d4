"""Processing nodes with a sink, as processes that are killed, and stopped for longer than their group waits.

    python sink_nodes.py KIND FOLDER SEED FAULTS

Nodes are forks of this process. In the end each product must have its results in the sink once, in the order of its
slice, and be confirmed.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from sink_bench import create, open_sink, stored, value

from headrace import Queue
from headrace.slices import ProcessingNode

SLICES, PARTS, NODES = 16, 2, 3
PRODUCTS = 1500 * int(sys.argv[4])  # enough to be at work when something happens
DEAD_AFTER_S = 1.0
LIMIT_S = 120.0  # a safety net


def node(kind: str, folder: Path) -> int:
    """Start a node; its process id."""
    child = os.fork()
    if child:
        return child

    def work(product: Any) -> list[Any]:
        time.sleep(0.0005)
        return [value(kind, product.slice, product.sequence, part) for part in range(PARTS)]

    try:
        terms = {"dead_after": f"{DEAD_AFTER_S}s", "confirm": "20ms"}
        ProcessingNode(folder / "in", "s", work, sink=open_sink(kind, folder), **terms).run()  # type: ignore[arg-type]
    finally:
        os._exit(9)


def faults(kind: str, folder: Path, chance: random.Random, count: int) -> list[int]:
    nodes = [node(kind, folder) for _ in range(NODES)]
    for _ in range(count):
        time.sleep(chance.uniform(0.05, 0.5))
        victim = chance.choice(nodes)
        if chance.random() < 0.5:
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            nodes[nodes.index(victim)] = node(kind, folder)
        else:
            os.kill(victim, signal.SIGSTOP)
            time.sleep(chance.uniform(DEAD_AFTER_S, 2 * DEAD_AFTER_S))
            os.kill(victim, signal.SIGCONT)
    return nodes


def wait_until_confirmed(folder: Path, ends: dict[int, int]) -> None:
    until_s = time.monotonic() + LIMIT_S
    with Queue.open(folder / "in") as queue:
        share = queue.share("s")
        while True:
            state = share.state()
            if all(int(state.positions[slice_]) > last for slice_, last in ends.items()):
                return
            if time.monotonic() > until_s:
                sys.exit(f"not confirmed: {state}")
            time.sleep(0.02)


def main(kind: str, folder: Path, seed: int, count: int) -> None:
    create(kind, folder)
    with Queue.create(folder / "in", size="16MiB", durability="memory", origin="here") as queue:
        queue.channel("s", "x", slices=SLICES)
        queue.put_many([b"%d" % n for n in range(PRODUCTS)], feed="x", ident=[f"i{n}" for n in range(PRODUCTS)])
        slices = {product.sequence: product.slice for product in queue.read("oldest")}
    nodes = faults(kind, folder, random.Random(seed), count)
    try:
        wait_until_confirmed(folder, {slice_: sequence for sequence, slice_ in slices.items()})
    finally:
        for each in nodes:
            os.kill(each, signal.SIGKILL)
    found = stored(kind, folder)
    expected = sorted((slice_, sequence, part) for sequence, slice_ in slices.items() for part in range(PARTS))
    if sorted(found) != expected:
        lost, twice = set(expected) - set(found), {each for each in found if found.count(each) > 1}
        sys.exit(f"lost {sorted(lost)[:9]}, twice {sorted(twice)[:9]}: {len(found)} results of {len(expected)}")
    if kind != "queue" and sorted(found, key=lambda each: each[0]) != expected:
        sys.exit("not in the order of a slice")
    print(f"{len(found)} results, each once")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
