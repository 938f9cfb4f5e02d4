"""The processing nodes of a demonstration: one works alone, a second one joins, and the load spreads.

They share the latest products of the second site, whose channel gives each product a slice as it arrives. Each node
records every product that it has worked on, with the time. The oracle compares both records with what the queue holds:
through the hand-over, each product must have been worked on once.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from blake3 import blake3

from headrace.demo.plan import NODES, SLICES, STREAM, STREAM_FEED, Plan
from headrace.demo.processes import REPORT_S, Report, child_process
from headrace.product import Product
from headrace.queue import Queue
from headrace.share.interface import AnyShare, Session
from headrace.slices import ProcessingNode
from headrace.testing import Verdict
from headrace.testing.verdict import SIGNATURE_BYTES, Sighting, judge
from headrace.units import format_count, format_latency

BEGIN = "begin"  # command to a node
PRODUCTS = 4000  # that the nodes share
ALONE = 0.2  # share of them that the first node has done when the second one joins
_WORK_S = 0.0005  # simulates the work on a product


def run_node(plan: Plan, name: str, pipe: Connection) -> None:
    """Wait for the command BEGIN, then work until the next one."""
    with child_process(pipe), Queue.open(plan.second) as queue:
        pipe.send(Report())
        try:
            pipe.recv()
        except EOFError:  # the run is gone
            return
        done: list[tuple[int, float]] = []

        def work(product: Product) -> None:
            time.sleep(_WORK_S)
            done.append((product.sequence, time.time()))

        with ProcessingNode(queue, STREAM, work, name=name) as node:
            while not pipe.poll(REPORT_S / 4):
                pipe.send(Report(len(done), state=format_count(node.statistics().slices, "slice")))
        np.save(plan.times_of(name), np.array(done, dtype=np.float64).reshape(-1, 2).T)
        pipe.send(Report(len(done), done=True))


@dataclass(frozen=True, slots=True)
class Sharing:
    """What became of the stream that the nodes shared."""

    verdict: Verdict
    products: dict[str, int]  # by node
    session: Session | None  # that gave slices to the second node

    @property
    def moved_s(self) -> float:
        """How long the hand-over took."""
        return 0.0 if self.session is None else (self.session.ended_ns - self.session.begun_ns) / 1e9

    def __str__(self) -> str:
        counts = ", ".join(f"{node} {count:,}" for node, count in self.products.items())
        if self.session is None:
            return f"{NODES[1]} joined too late; {counts}"
        return (
            f"{NODES[1]} joined {NODES[0]}: {self.session.slices} of {SLICES} slices moved in "
            f"{format_latency(self.moved_s)}; {counts}"
        )


def sharing_of(plan: Plan, queue: Queue, share: AnyShare, start: int, end: int) -> Sharing:
    """Judge what the nodes have done with the products from `start` to `end`, when both have left."""
    done = {node: np.load(plan.times_of(node))[0].astype(np.int64) for node in NODES}
    sent = [product.sequence for product in queue.read(start, STREAM_FEED, stop=end)]
    worked = np.sort(np.concatenate(list(done.values()))).tolist()
    joined = [each for each in share.state().sessions if (each.giver, each.taker) == NODES and each.outcome == "done"]
    return Sharing(
        judge(_sightings(sent), _sightings(worked)), {node: len(each) for node, each in done.items()},
        joined[0] if joined else None,
    )  # fmt: skip


def _sightings(sequences: Iterable[int]) -> list[Sighting]:
    return [Sighting("", str(each), 0, blake3(b"%d" % each).digest(length=SIGNATURE_BYTES)) for each in sequences]


def draw_sharing(axes: Any, plan: Plan, sharing: Sharing, colours: Iterable[str]) -> None:
    """Products per second of each node; a line where the second one joined."""
    times = {node: np.load(plan.times_of(node))[1] for node in NODES}
    start_s = min(float(each[0]) for each in times.values() if len(each))
    last_s = max(float(each[-1]) for each in times.values() if len(each)) - start_s
    bin_s = max(0.05, last_s / 25)
    ends = np.arange(0.0, last_s + bin_s, bin_s)
    rates = [np.histogram(each - start_s, ends)[0] / bin_s for each in times.values()]
    axes.stackplot(ends[:-1], *rates, step="post", labels=list(times), colors=list(colours), alpha=0.75)
    if sharing.session is not None:
        at_s = sharing.session.begun_ns / 1e9 - start_s
        axes.axvline(at_s, color="0.3", linestyle=":", linewidth=1.2)
        took = format_latency(sharing.moved_s)
        text = f"{NODES[1]} joins: {sharing.session.slices} of {SLICES} slices\nmove to it in {took}"
        axes.annotate(text, (at_s, 0.9), (6, 0), xycoords=("data", "axes fraction"), textcoords="offset points",
                      va="top", fontsize=9,
                      bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "0.6", "alpha": 0.9})  # fmt: skip
    axes.set(
        xlabel="seconds since the first node began", ylabel="products per second",
        title=f"A stream in {SLICES} slices: a second node joins, and the load spreads; each product is worked on once",
    )  # fmt: skip
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlim=(0, None), ylim=(0, axes.get_ylim()[1] * 1.4))  # room for the note
    axes.legend(loc="upper left", fontsize=8)
