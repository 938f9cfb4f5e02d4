"""Slices that move while items flow: how long a slice pauses, what others notice, and whether each item counts once.

20,000 items per second arrive in 256 slices of two nodes, each in a process, and ten times a second a slice moves from
one node to the other. Every node notes each item it works on. Three runs with the same puts:

    none     no slice moves
    slice    slices move one by one, in sessions
    world    a rebalance that stops the world (slices_eager.py)

The pause of a slice is the time between its items before and after the move, minus the time between their puts. So it
is what the items see: a slice whose next item arrives after the move has no pause. How long the session itself took,
from the message to the giver to the first work of the taker, is a figure of its own. The oracle compares what was put
with what all nodes have noted and with what the group has confirmed: an item that nobody has is lost; one that is
there twice, or that the group has counted twice, was confirmed twice.

What other slices notice of a move is the longest wait of their items within 20 ms after it; beside it, the same at
moments between two moves. Both are medians, because a machine with other work delays items at any moment.
"""

import itertools
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.bench import slices_eager
from headrace.bench.processes import Pool
from headrace.bench.report import Announce, Figure
from headrace.bench.slices_nodes import STREAM, Records, confirmed, node_processes, records_of, spread, stream, wait_for
from headrace.queue import Queue
from headrace.share.share import Share

Floats = npt.NDArray[np.float64]

RATE, MOVES_PER_S, SECONDS, NODES = 20_000, 10.0, 10.0, 2
PAUSE_MS = 50.0
_EVERY_S = 0.002  # between two puts
_LEAD_S = 0.5  # before the first move
_NEAR_S, _BETWEEN_S = 0.02, 0.06  # items right after a move, and between two moves
_NONE = np.zeros(0, np.int64)
OTHERS_MS = 5.0  # the time slice of Python's threads; less than that is not noticed


@dataclass(slots=True)
class Run:
    """What happened in one run. Columns have one entry for each item that was worked on, by slice, then by sequence."""

    kind: str
    items: int  # put
    lost: int
    twice: int
    out_of_order: int
    moves_s: Floats  # when moves began, since the first put
    seconds: float
    slices: npt.NDArray[np.int64]
    times_s: Floats  # of the put, since the first one
    latencies_ms: Floats  # from the put to the work
    stops: npt.NDArray[np.int64]  # places of the first item after each stop of a slice
    session_ms: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def pauses_ms(self) -> Floats:
        """Of slices that were stopped: how much later the first item after it was worked on than the last before."""
        return self.latencies_ms[self.stops] - self.latencies_ms[self.stops - 1]

    def longest_ms(self, after_s: float, but: npt.NDArray[np.int64]) -> float:
        """The longest latency of items but those at these places, so long after each move; the median."""
        times_s, latencies_ms = np.delete(self.times_s, but), np.delete(self.latencies_ms, but)
        begins_s = self.moves_s + after_s
        found = [latencies_ms[(times_s >= each) & (times_s < each + _NEAR_S)] for each in begins_s.tolist()]
        return float(np.median([each.max(initial=0.0) for each in found])) if found else 0.0


def measure(folder: Path, scale: float, pool: Pool, progress: Announce) -> dict[str, Run]:
    """The three runs."""
    seconds, runs = max(1.2, SECONDS * min(scale, 1.0)), dict[str, Run]()
    for kind, words in (("none", "no moves"), ("slice", "slices move"), ("world", "the world stops for each move")):
        progress(f"{RATE:,} items/s, {words}")
        runs[kind] = _run(folder / "moves", kind, seconds, pool)
    return runs


def figures_of(runs: dict[str, Run], fastest: float) -> Iterator[Figure]:
    """What the runs tell; `fastest` is how many moves a second are possible one after the other."""
    what = f"{RATE:,} items/s, {MOVES_PER_S:g} moves/s"
    none, moved, world = runs["none"], runs["slice"], runs["world"]
    pauses = moved.pauses_ms
    yield Figure("move-pause-p50", f"{what}: pause of the slice that moves, p50", _at(pauses, 50), "ms", PAUSE_MS, True)
    yield Figure("move-pause-p99", f"{what}: the same, p99", _at(pauses, 99), "ms")
    yield Figure("move-session-p50", f"{what}: session, from its begin to the work of the taker, p50",
                 _at(moved.session_ms, 50), "ms")  # fmt: skip
    yield Figure(
        "move-rate", f"{what}: moves that were done", len(moved.moves_s) / moved.seconds, "moves/s", 0.95 * MOVES_PER_S
    )
    yield Figure("move-fastest", f"{RATE:,} items/s: moves, one after the other", fastest, "moves/s", MOVES_PER_S)
    near_ms, far_ms = moved.longest_ms(0, moved.stops), moved.longest_ms(_BETWEEN_S, moved.stops)
    yield Figure("others-added", f"{what}: what a move adds to the longest wait of other slices", near_ms - far_ms,
                 "ms", OTHERS_MS, True, f"longest wait {near_ms:.1f}, between moves {far_ms:.1f}")  # fmt: skip
    yield Figure("others-p99", f"{what}: all items, from put to work, p99", _at(moved.latencies_ms, 99), "ms",
                 beside=f"without moves {_at(none.latencies_ms, 99):.1f}")  # fmt: skip
    yield Figure("moves-lost", f"{what}: items lost", moved.lost, "items", 0, True, f"of {moved.items:,}")
    yield Figure("moves-twice", f"{what}: items confirmed twice", moved.twice, "items", 0, True, f"of {moved.items:,}")
    yield Figure("moves-order", f"{what}: items out of order in their slice", moved.out_of_order, "items", 0, True)
    yield Figure("world-stops", "the same, the world stops: slices that stop for each move",
                 len(world.stops) / max(1, len(world.moves_s)), "slices", beside="one by one: 1")  # fmt: skip
    near_ms, far_ms = world.longest_ms(0, _NONE), world.longest_ms(_BETWEEN_S, _NONE)
    yield Figure("world-added", "the same, the world stops: what a move adds to the longest wait of all slices",
                 near_ms - far_ms, "ms", beside="best case: nothing in work takes long")  # fmt: skip


def _at(values: Floats, share: float) -> float:
    return float(np.percentile(values, share)) if len(values) else 0.0


# --- a run ----------------------------------------------------------------------------------------


def _run(path: Path, kind: str, seconds: float, pool: Pool) -> Run:
    if kind == "world":
        return _run_eager(path, seconds, pool)
    with (
        stream(path) as (queue, share),
        node_processes(pool, path, NODES, 0.0) as nodes,
        pool.run(_put, [(path, seconds)]) as (producer,),
    ):
        owners = spread(share, NODES)
        mover = _Mover(share, owners)
        first = queue.next
        producer.send("go")
        done = _beat(mover.move if kind == "slice" else None, seconds)
        puts_ns: Records = producer.recv()
        wait_for(share, len(puts_ns))
        records = [records_of(node) for node in nodes]
        run = account(kind, puts_ns, records, first, done, seconds)
        run.session_ms, run.twice = mover.session_ms(), max(run.twice, confirmed(share) - run.items)
        return run


def fastest_moves(folder: Path, scale: float, pool: Pool) -> float:
    """Moves per second under the same rate, each as soon as the one before is over."""
    seconds = max(0.2, 4.0 * min(scale, 1.0))
    with (
        stream(folder / "fastest") as (_, share),
        node_processes(pool, folder / "fastest", NODES, 0.0),
        pool.run(_put, [(folder / "fastest", seconds + _LEAD_S)]) as (producer,),
    ):
        mover = _Mover(share, spread(share, NODES))
        producer.send("go")
        time.sleep(_LEAD_S)
        begun_s, done = time.monotonic(), 0
        while (now_s := time.monotonic()) < begun_s + seconds:
            done += mover.move(done)
            time.sleep(0.0005)
        rate = done / (now_s - begun_s)
        producer.recv()
        return rate


class _Mover:
    """Moves slices by hand, to the other node."""

    def __init__(self, share: Share, owners: npt.NDArray[np.int64]) -> None:
        self._share, self._owners, self._seats = share, owners, sorted({int(each) for each in owners})

    def move(self, number: int) -> bool:
        """Begin a session for one slice; False if its giver is still in another one."""
        slice_number = number * 37 % len(self._owners)
        giver = int(self._owners[slice_number])
        taker = self._seats[(self._seats.index(giver) + 1) % len(self._seats)]
        if not self._share.begin(0, giver, taker, np.array([slice_number], np.uint32), "hand"):
            return False
        self._owners[slice_number] = taker
        return True

    def session_ms(self) -> Floats:
        """How long the latest sessions took."""
        ended = [each for each in self._share.state().sessions if each.outcome == "done" and each.reason == "hand"]
        return np.array([(each.available_ns - each.begun_ns) / 1e6 for each in ended if each.giver])


def _beat(move: Callable[[int], bool] | None, seconds: float) -> list[int]:
    """Make moves at their rate, from a moment after the first put on; when those that were done began."""
    begun_s, number, done_ns = time.monotonic() + _LEAD_S, 0, list[int]()
    while number < round((seconds - 2 * _LEAD_S) * MOVES_PER_S):
        time.sleep(max(0.0, begun_s + number / MOVES_PER_S - time.monotonic()))
        now_ns = time.monotonic_ns()
        if move is not None and move(number):
            done_ns.append(now_ns)
        number += 1
    return done_ns


def _put(parent: Connection, path: Path, seconds: float) -> None:
    """A process: puts items at the rate; when each was put, in the order of their sequences."""
    times, each, number = array("q"), int(RATE * _EVERY_S), 0
    with Queue.open(path) as queue:
        parent.send("ready")
        parent.recv()
        begun_s = time.monotonic()
        while number < int(RATE * seconds):
            time.sleep(max(0.0, begun_s + number / RATE - time.monotonic()))
            times.extend([time.monotonic_ns()] * each)
            queue.put_many([b""] * each, feed=STREAM, ident=[str(number + more) for more in range(each)])
            number += each
    parent.send(np.array(times, np.int64))


def _run_eager(path: Path, seconds: float, pool: Pool) -> Run:
    """The same, by consumers that all stop for each move."""
    with (
        stream(path) as (queue, share),
        slices_eager.members(pool, path, NODES) as group,
        pool.run(_put, [(path, seconds)]) as (producer,),
    ):
        first = queue.next
        group.assign(np.arange(share.terms.slices) % NODES, first)
        producer.send("go")
        done = _beat(group.rebalance, seconds)
        puts_ns: Records = producer.recv()
        run = account("world", puts_ns, group.end(first + len(puts_ns)), first, done, seconds)
        run.stops = _stops_of(run)
        return run


# --- the oracle -----------------------------------------------------------------------------------


def account(
    kind: str, puts_ns: Records, records: list[Records], first: int, moves_ns: list[int], seconds: float
) -> Run:  # fmt: skip
    """Compare what was put with what the nodes have worked on."""
    nodes = np.repeat(np.arange(len(records)), [each.shape[1] for each in records])
    sequences, slices, worked_ns = np.concatenate(records, axis=1)
    counts = np.bincount(sequences - first, minlength=len(puts_ns))
    order = np.lexsort((worked_ns, sequences, slices))
    sequences, slices, worked_ns, nodes = sequences[order], slices[order], worked_ns[order], nodes[order]
    same = slices[1:] == slices[:-1]
    stops = np.flatnonzero(same & (nodes[1:] != nodes[:-1])) + 1
    put_ns = puts_ns[sequences - first]
    return Run(
        kind, len(puts_ns), int(np.count_nonzero(counts == 0)), int((counts - 1).clip(0).sum()),
        int(np.count_nonzero(same & (worked_ns[1:] < worked_ns[:-1]))), (np.array(moves_ns) - puts_ns[0]) / 1e9,
        seconds - 2 * _LEAD_S, slices, (put_ns - puts_ns[0]) / 1e9, (worked_ns - put_ns) / 1e6, stops,
    )  # fmt: skip


def _stops_of(run: Run) -> npt.NDArray[np.int64]:
    """The first item of each slice that was worked on after each move, if every slice stops for it."""
    worked_s = run.times_s + run.latencies_ms / 1e3
    bounds = np.searchsorted(run.slices, np.arange(int(run.slices.max()) + 2)).tolist()
    found = []
    for begin, end in itertools.pairwise(bounds):
        places = np.searchsorted(worked_s[begin:end], run.moves_s) + begin
        found.append(np.unique(places[(places > begin) & (places < end)]))
    return np.concatenate(found)
