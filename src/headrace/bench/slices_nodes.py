"""Real processing nodes, each in a process of its own: how much they do, and whether more of them do more.

    sleep     1, 2 and 4 nodes whose work sleeps: items per second, against as many times those of one node
    local     a backlog of small items through one node beside the queue: from the first item to the last confirmation
    remote    the same over a site, by loopback
    latency   from the put of a single item to its work, at 200 items per second, local and remote

Work on single products is a Python call for each; work on batches is measured beside it.
"""

import shutil
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.bench.processes import Pool
from headrace.bench.report import Announce, Figure
from headrace.bench.site_process import serve
from headrace.queue import Queue
from headrace.share.share import Share
from headrace.slices.node import ProcessingNode

Records = npt.NDArray[np.int64]  # rows: sequence, slice, time in nanoseconds; one column for each item

STREAM, SLICES = "bench", 256
NODES, SLEEP_S, LINEAR = (1, 2, 4), 0.004, 0.9
LOCAL_GOAL, REMOTE_GOAL, ITEM_BYTES = 100_000.0, 50_000.0, 100
LATENCY_ITEMS, LATENCY_EACH_S = 400, 0.005
WAIT_S = 120.0
_BATCH = 1000
_SPREAD_S = 0.2  # for nodes to begin with slices that they were given


def run(folder: Path, scale: float, pool: Pool, progress: Announce) -> Iterator[Figure]:
    """All figures. `scale` reduces times and numbers of items; from 1 on, the best of three runs counts."""
    seconds, runs = max(0.5, 4.0 * min(scale, 1.0)), 3 if scale >= 1 else 1
    progress(f"{', '.join(map(str, NODES))} nodes, work that sleeps {SLEEP_S * 1000:g} ms")
    yield from _linear(folder, pool, seconds, runs)
    items = max(5_000, int(1_000_000 * min(scale, 1.0)))
    for kind, goal in (("local", LOCAL_GOAL), ("remote", REMOTE_GOAL)):
        progress(f"{items:,} items through one {kind} node")
        yield from _throughput(folder, pool, kind, goal, items, runs)
    progress("latency of single items")
    for kind in ("local", "remote"):
        yield from _latency(folder, pool, kind, max(40, int(LATENCY_ITEMS * min(scale, 1.0))))


# --- figures --------------------------------------------------------------------------------------


def _linear(folder: Path, pool: Pool, seconds: float, runs: int) -> Iterator[Figure]:
    rates = {count: max(_sleeping_rate(folder, pool, count, seconds) for _ in range(runs)) for count in NODES}
    for count, rate in rates.items():
        yield Figure(f"sleep-{count}", f"{_nodes(count)}, work that sleeps {SLEEP_S * 1000:g} ms", rate, "items/s")
    for count in NODES[1:]:
        share = rates[count] / (count * rates[1])
        yield Figure(f"linear-{count}", f"{_nodes(count)} against {count} times one", share, "of linear", LINEAR)


def _sleeping_rate(folder: Path, pool: Pool, nodes: int, seconds: float) -> float:
    """Items per second while there is more to do than they can."""
    with stream(folder / "sleep", assign="round_robin") as (queue, share):
        fill(queue, int(nodes * (seconds + 5) / SLEEP_S))
        with node_processes(pool, queue.path, nodes, SLEEP_S):
            spread(share, nodes)
            time.sleep(_SPREAD_S)
            before, begun_s = confirmed(share), time.monotonic()
            time.sleep(seconds)
            return (confirmed(share) - before) / (time.monotonic() - begun_s)


def _throughput(folder: Path, pool: Pool, kind: str, goal: float, items: int, runs: int) -> Iterator[Figure]:
    for batches in (False, True):
        with stream(folder / "rate") as (queue, _):
            fill(queue, items)
            rate = max(_rate(queue, pool, kind, items, batches, turn) for turn in range(runs))
        what = f"one {kind} node, items of {ITEM_BYTES} B, work on {'batches' if batches else 'single products'}"
        yield Figure(f"{kind}{'-batches' * batches}", what, rate, "items/s", None if batches else goal)


def _rate(queue: Queue, pool: Pool, kind: str, items: int, batches: bool, turn: int) -> float:
    """Items per second from the first one to the confirmation of the last, by a new group."""
    share = queue.share(STREAM, f"run-{turn}")
    with ExitStack() as parts:
        where = parts.enter_context(_site(pool, queue.path)) if kind == "remote" else str(queue.path)
        (node,) = parts.enter_context(
            node_processes(pool, where, 1, 0.0, share.terms.group, batches=batches, records=False)
        )
        spread(share, 1)
        deadline = time.monotonic() + WAIT_S
        while confirmed(share) < items and time.monotonic() < deadline:
            time.sleep(0.002)
        ended_ns = time.monotonic_ns()
        begun_ns = int(records_of(node)[2, 0])
        return items / (ended_ns - begun_ns) * 1e9


def _latency(folder: Path, pool: Pool, kind: str, items: int) -> Iterator[Figure]:
    with stream(folder / "latency") as (queue, share), ExitStack() as parts:
        where = parts.enter_context(_site(pool, queue.path)) if kind == "remote" else str(queue.path)
        (node,) = parts.enter_context(node_processes(pool, where, 1, 0.0))
        spread(share, 1)
        time.sleep(_SPREAD_S)
        begun_ns = []
        for number in range(items):
            time.sleep(LATENCY_EACH_S)
            begun_ns.append(time.monotonic_ns())
            queue.put(b"", feed=STREAM, ident=str(number))
        wait_for(share, items)
        records = records_of(node)
    took_ms = (records[2][np.argsort(records[0])] - np.array(begun_ns)) / 1e6
    what = f"one {kind} node, single items: from put to work"
    yield Figure(f"{kind}-latency-p50", f"{what}, p50", float(np.median(took_ms)), "ms")
    yield Figure(f"{kind}-latency-p99", f"{what}, p99", float(np.percentile(took_ms, 99)), "ms")


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count > 1)}"


# --- a stream and its nodes -----------------------------------------------------------------------


@contextmanager
def stream(path: Path, assign: str = "ident", slices: int = SLICES) -> Iterator[tuple[Queue, Share]]:
    """A queue in memory with a sliced channel, and the group of its nodes."""
    with Queue.create(path, size="512MiB", durability="memory", origin="bench", dedup="none") as queue:
        queue.channel(STREAM, STREAM, slices=slices, assign=assign)
        yield queue, queue.share(STREAM, dead_after="1min")
    shutil.rmtree(path)


def fill(queue: Queue, items: int) -> None:
    """Put small items, each with its own ident."""
    payload = bytes(ITEM_BYTES)
    for begin in range(0, items, _BATCH):
        count = min(_BATCH, items - begin)
        queue.put_many([payload] * count, feed=STREAM, ident=[str(begin + number) for number in range(count)])


@contextmanager
def node_processes(
    pool: Pool,
    where: Path | str,
    count: int,
    sleep_s: float,
    group: str = "main",
    *,
    batches: bool = False,
    records: bool = True,
) -> Iterator[list[Connection]]:
    """So many nodes; they have joined, and own nothing yet."""
    arguments = [(str(where), group, sleep_s, batches, records) for _ in range(count)]
    with pool.run(_be_node, arguments) as pipes:
        try:
            yield pipes
        finally:
            for pipe in pipes:
                pipe.send("stop")


def spread(share: Share, nodes: int) -> npt.NDArray[np.int64]:
    """Give slices to the nodes by number; the owner of each slice, counted from 0."""
    owners = np.arange(share.terms.slices) % nodes
    seats = _seats(share, nodes)
    for number, seat in enumerate(seats):
        share.give(0, seat, np.flatnonzero(owners == number).astype(np.uint32), "hand")
    return np.array(seats)[owners]


def _seats(share: Share, nodes: int) -> list[int]:
    deadline = time.monotonic() + WAIT_S
    while len(found := [node.seat for node in share.state().nodes if node.is_alive]) < nodes:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {nodes} nodes have joined")
        time.sleep(0.01)
    return found


def wait_for(share: Share, items: int) -> None:
    """Wait until so many items are confirmed."""
    deadline = time.monotonic() + WAIT_S
    while confirmed(share) < items and time.monotonic() < deadline:
        time.sleep(0.02)


def confirmed(share: Share) -> int:
    """Items that the nodes have confirmed."""
    return sum(node.products for node in share.state().nodes)


def records_of(pipe: Connection) -> Records:
    """What a node has noted until now."""
    pipe.send("records")
    found: Records = pipe.recv()
    return found


@contextmanager
def _site(pool: Pool, path: Path) -> Iterator[str]:
    with pool.run(serve, [(path,)]) as (site,):
        yield site.recv()
        site.send("stop")


def _be_node(parent: Connection, where: str, group: str, sleep_s: float, batches: bool, records: bool) -> None:
    """A process: a node that notes each item it works on, or only the first one."""
    noted = array("q")
    clock, note = time.monotonic_ns, noted.extend

    def work(product: Any) -> None:
        if sleep_s:
            time.sleep(sleep_s)
        if records:
            note((product.sequence, product.slice, clock()))
        elif not noted:
            note((0, 0, clock()))

    with ProcessingNode(where, STREAM, work, group=group, batches=batches, balance=False):
        parent.send("ready")
        while parent.recv() == "records":
            parent.send(np.array(noted, np.int64).reshape(-1, 3).T)
