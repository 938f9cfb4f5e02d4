"""What processing nodes on other machines cost at their site: a part of `headrace bench slices`.

A site runs in a process, with a queue in memory. Nodes are seats of one group, in a few other processes that have one
connection each, over loopback. They do no work. Steps:

    exchange   one node confirms 256 slices with every exchange, one exchange after the other
    nodes      all nodes exchange twice a second with a confirmation and a load, and each has a call that waits for
               changes of what it holds
    told       slices move; how long until the call of the taker that waits has its reply
"""

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from headrace.bench.processes import processes
from headrace.bench.report import Announce, Figure
from headrace.bench.site_process import serve, usage_of
from headrace.queue import Queue
from headrace.remote.client.connect import connect
from headrace.share.interface import AnySeat, Epochs, Load, Marks, Progress, Slices, Work
from headrace.share.share import Share

SLICES = 256
EACH_S = 0.5  # between two exchanges of a node
MOVES = 50
NOT_MEASURED = [
    "a process for each node: its interpreter takes far more than its seat",
    "real networks, TLS, durability on disk",
]
_NODES_EACH = 100  # of one process
_ALL = np.arange(SLICES, dtype=np.uint32)
_HEAD = 100_000  # products, so that there is something to confirm
_READY_S = 300.0


def run(place: Path, nodes: int, seconds: float, progress: Announce) -> Iterator[Figure]:
    path = place / "slices-remote"
    with (
        Queue.create(path, size="64MiB", durability="memory", origin="bench", dedup="none") as queue,
        ExitStack() as parts,
    ):
        queue.channel("bench", "bench", slices=SLICES)
        queue.put_many([b""] * _HEAD, feed="bench")
        share = queue.share("bench", dead_after="1h")
        (site,) = parts.enter_context(processes(serve, [(path,)]))
        parts.callback(site.send, "stop")
        endpoint = site.recv()
        progress(f"one node confirms {SLICES} slices with each exchange")
        yield from _exchanges(share, site, endpoint, seconds)
        yield from _told(share, endpoint)
        progress(f"{nodes} nodes exchange every {EACH_S:g} s")
        yield from _crowd(site, endpoint, nodes, seconds)


# --- steps ----------------------------------------------------------------------------------------


def _exchanges(share: Share, site: Connection, endpoint: str, seconds: float) -> Iterator[Figure]:
    with connect(endpoint) as remote:
        seat = remote.share("bench").join("one")
        share.give(0, seat.number, _ALL, "hand")
        held = seat.exchange(Progress()).holding
        assert held is not None
        before, count, took = usage_of(site), 0, list[float]()
        while (now := time.monotonic()) < before.moment_s + seconds / 2:
            count += 1
            seat.exchange(_progress(seat.version, held.slices, held.epochs, min(count, _HEAD), count))
            took.append(time.monotonic() - now)
        after = usage_of(site)
        seat.leave()
    busy_us = (after.processor_s - before.processor_s) / count * 1e6
    yield Figure("exchange-site", f"site: processor time of an exchange that confirms {SLICES} slices", busy_us, "µs",
                 1000.0, at_most=True, beside=f"{count:,} exchanges")  # fmt: skip
    yield Figure("exchange", "the same, as the node sees it, p50", float(np.median(took)) * 1e3, "ms")


def _told(share: Share, endpoint: str) -> Iterator[Figure]:
    """How long after a change on the site's machine a node that waits elsewhere has heard of it."""
    took = []
    with connect(endpoint) as remote:
        group = remote.share("bench")
        seats = [group.join(name) for name in ("giver", "taker")]
        share.give(0, seats[0].number, _ALL, "hand")
        for turn in range(MOVES):
            giver, taker = seats[turn % 2], seats[1 - turn % 2]
            held = giver.exchange(Progress()).holding
            seen = taker.exchange(Progress()).version
            assert held is not None
            taker.wait(seen, 0.02)  # its call is at the site
            begun = time.monotonic()
            share.begin(0, giver.number, taker.number, _ALL, "hand")
            taker.wait(seen, 10)
            took.append(time.monotonic() - begun)
            giver.exchange(Progress(release=Marks(held.slices, held.epochs, held.positions)))
        for seat in seats:
            seat.leave()
    yield Figure("told", "from a change to the node that waits for it, p50", float(np.median(took)) * 1e3, "ms")


def _crowd(site: Connection, endpoint: str, nodes: int, seconds: float) -> Iterator[Figure]:
    parts = [len(part) for part in np.array_split(range(nodes), -(-nodes // _NODES_EACH))]
    with processes(_be_nodes, [(endpoint, count) for count in parts], _READY_S) as pipes:
        for pipe in pipes:
            pipe.send("go")
        time.sleep(2 * EACH_S)
        before = usage_of(site)
        time.sleep(seconds)
        after = usage_of(site)
        for pipe in pipes:
            pipe.send("stop")
        counts = [pipe.recv() for pipe in pipes]
    used_s, elapsed_s = after.processor_s - before.processor_s, after.moment_s - before.moment_s
    made = sum(count for count, _ in counts) / max(late_s for _, late_s in counts)
    yield Figure("nodes-site", f"site: processor time for {nodes} nodes", 100 * used_s / elapsed_s, "% of a core",
                 beside=f"{made:.0f} exchanges a second, {nodes} calls wait")  # fmt: skip
    yield Figure("nodes-each", "site: processor time of each node", used_s / elapsed_s / nodes * 1e6, "µs/s")
    yield Figure("nodes-threads", f"site: threads with {nodes} nodes", after.threads, "threads")


# --- processes ------------------------------------------------------------------------------------


def _be_nodes(parent: Connection, endpoint: str, count: int) -> None:
    """So many nodes, one after the other, each again after EACH_S; how often, and in what time."""
    with connect(endpoint) as queue:
        share = queue.share("bench")
        seats = [share.join() for _ in range(count)]
        gc.freeze()
        parent.send("ready")
        parent.recv()
        begun, turn = time.monotonic(), 0
        while not parent.poll():
            seat, due = seats[turn % count], begun + turn * EACH_S / count
            time.sleep(max(0.0, due - time.monotonic()))
            _beat(seat, turn // count + 1)
            turn += 1
        parent.recv()
        parent.send((turn, time.monotonic() - begun))
        for seat in seats:
            seat.leave()


def _beat(seat: AnySeat, number: int) -> None:
    """One exchange, with the call that waits kept under way."""
    load = Load(cpu=0.5, memory=1 << 28, waiting=number, in_work=1)
    slices = _ALL[:8]
    work = Work(number, slices, np.full(8, 10, np.uint64), np.full(8, 10**7, np.uint64))
    seat.exchange(Progress(seen=seat.version, load=load, work=work))


def _progress(seen: int, slices: Slices, epochs: Epochs, position: int, number: int) -> Progress:
    counts = np.ones(len(slices), np.uint64)
    confirm = Marks(slices, epochs, np.full(len(slices), position, np.uint64))
    return Progress(seen, confirm, load=Load(waiting=1), work=Work(number, slices, counts, counts))
