"""A thousand processing nodes in one process: how long decisions take, what a session costs, when a group is balanced.

The table of ownership, the algorithm and the balancer are the real ones; nodes and time are simulated
(`headrace.testing.MemoryGroup`). The scale is that of the thesis: 1,000 nodes and 100,000 publishers, whose rates
differ (log-normal), each with its own slice by hash. The story:

    0 s     500 nodes are there, and slices are spread by number, because nothing is measured yet
    20 s    500 more nodes join
    50 s    one node in a hundred dies, all at the same moment

A message takes one tick, 50 ms. What takes real time here is measured: decisions, steps of the balancer, exchanges.
Figures of Zipf's law compare the busiest node with the mean, for slices that are spread by number, as a hash ring or
Kafka would do, and for slices that the balancer has moved.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.bench import slices_paper, slices_rebalance
from headrace.bench.report import Announce, Figure
from headrace.share.interface import NOBODY, Load, Marks, Progress, Work
from headrace.slices.algorithms import Thresholds
from headrace.slices.balancer import Balancer
from headrace.slices.fewest_moves import FewestMoves
from headrace.slices.snapshot import Algorithm, Node, Snapshot
from headrace.testing import MemoryGroup

Floats = npt.NDArray[np.float64]

SEED = 14
NODES, PUBLISHERS, SLICES = 1000, 100_000, 65_535
FILL = 0.4  # share of all workers that the publishers need
TICK_S = 0.05
JOIN_S, DIE_S, END_S = 20.0, 50.0, 60.0
BOUND = 0.1
ZIPF, ZIPF_SLICES, ZIPF_NODES = 1.2, 4096, (4, 16)
NOT_MEASURED = [
    "work, products and the network of the thousand nodes: they are simulated; the other figures have real ones",
    "messages that are late or lost: tests/share explores all of their orders",
]


@dataclass(slots=True)
class Story:
    """The run over time, for the figures and the plot."""

    nodes: int
    publishers: int
    slices: int
    join_s: float = JOIN_S
    die_s: float = DIE_S
    times_s: list[float] = field(default_factory=list)
    shares: list[Floats] = field(default_factory=list)  # (lowest, 5 %, median, 95 %, busiest) node, divided by the mean
    moved: list[int] = field(default_factory=list)  # slices, so far
    sessions: int = 0
    messages: float = 0.0  # per session
    balanced_s: float = np.nan  # after the join
    begun_busiest: float = np.nan
    owned_s: float = np.nan  # after the end of the heartbeats
    step_s: list[float] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)


def run(folder: Path, scale: float, progress: Announce, plot: Path | None = None) -> Iterator[Figure]:
    """All figures, and a picture of them at `plot`. `scale` reduces the numbers of nodes, publishers and slices."""
    yield from decisions(scale, progress)
    progress(f"{_at_least(NODES, scale, 8):,} nodes, simulated; the balancer reports those that die")
    story = simulate(scale)
    report = report_figure(scale)
    found = [*figures_of(story), report]
    progress(f"Zipf {ZIPF:g}")
    found += zipf_figures(scale)
    yield from found
    progress("a rebalance that stops the world")
    yield from slices_rebalance.run(scale)
    progress(f"{slices_paper.TARGET_GBIT_S:g} Gbit/s, on paper")
    yield from slices_paper.run(folder, scale, NODES, report.value)
    if plot is not None:
        from headrace.bench.slices_plot import save_plot  # matplotlib takes a second to load

        save_plot(plot, story, found)


# --- decisions ------------------------------------------------------------------------------------------


def decisions(scale: float, progress: Announce) -> Iterator[Figure]:
    """How long the algorithms take in situations that differ."""
    nodes, slices = _at_least(NODES, scale, 4), _at_least(SLICES, scale, 64)
    members = [Node(number, f"node-{number}", Load()) for number in range(nodes)]
    costs = publishers_costs(_at_least(PUBLISHERS, scale, 100), slices, nodes * FILL)
    even, first = np.arange(slices) % nodes, np.zeros(slices, np.int64)
    situations: tuple[tuple[str, str, Algorithm, npt.NDArray[np.int64]], ...] = (
        ("start", "no slice has an owner", FewestMoves(BOUND), np.full(slices, NOBODY)),
        ("uneven", "slices spread by number", FewestMoves(BOUND), even),
        ("doubled", "as many nodes have joined", FewestMoves(BOUND), np.arange(slices) % max(1, nodes // 2)),
        ("alone", "one node has all slices", FewestMoves(BOUND), first),
        ("thresholds", "slices spread by number, classification of the thesis", Thresholds(), even),
    )
    for name, what, algorithm, owners in situations:
        progress(f"decision: {what}")
        snapshot = Snapshot(members, owners, costs, np.zeros(slices, bool))
        begun_s = time.perf_counter()
        moves = algorithm.decide(snapshot)
        spent_ms = (time.perf_counter() - begun_s) * 1000
        moved = sum(len(move.slices) for move in moves)
        text = f"decision, {nodes:,} nodes, {slices:,} slices: {what}; {moved:,} slices move"
        yield Figure(f"decide-{name}", text, spent_ms, "ms", 1000, True)


def publishers_costs(publishers: int, slices: int, total: float) -> Floats:
    """The cost of each slice: publishers of different rates, each in the slice of its hash."""
    chance = np.random.default_rng(SEED)
    rates = chance.lognormal(0, 1, publishers)
    return np.bincount(chance.integers(0, slices, publishers), rates * total / rates.sum(), slices).astype(np.float64)


# --- the thousand nodes ---------------------------------------------------------------------------------


def simulate(scale: float = 1.0) -> Story:
    """The story above, with so many nodes."""
    story = Story(_at_least(NODES, scale, 8), _at_least(PUBLISHERS, scale, 400), _at_least(SLICES, scale, 256))
    group = MemoryGroup(story.slices, dead_after_s=3.0)
    costs = publishers_costs(story.publishers, story.slices, story.nodes * FILL)
    balancer, begin_s = Balancer(group, algorithm=FewestMoves(BOUND)), group.now_s
    for number in range(story.nodes // 2):
        group.node(f"node-{number}")
    _run_until(story, group, balancer, costs, begin_s, JOIN_S)
    before, sessions = dict(group.calls), balancer.statistics().sessions
    for number in range(story.nodes // 2, story.nodes):
        group.node(f"node-{number}")
    _sample(story, group, balancer, costs, begin_s)
    story.begun_busiest = float(story.shares[-1][-1])
    _run_until(story, group, balancer, costs, begin_s, DIE_S)
    story.sessions = balancer.statistics().sessions - sessions
    messages = sum(group.calls.get(what, 0) - before.get(what, 0) for what in ("begin", "cancel", "exchanges"))
    story.messages = messages / max(1, story.sessions)
    dying = group.nodes[: max(1, story.nodes // 100)]
    for node in dying:
        node.alive = False
    died_s, seats = group.now_s, {node.seat for node in dying}
    heard_s = died_s - min(node.age_s for node in group.state().nodes if node.seat in seats)
    while np.any(~np.isin(group.owners(), [node.seat for node in group.nodes if node.alive])):
        _run_until(story, group, balancer, costs, begin_s, group.now_s - begin_s + TICK_S)
        if group.now_s - died_s > 60:
            break
    story.owned_s = group.now_s - heard_s - group.terms.dead_after_s  # the last heartbeat of them counts
    _run_until(story, group, balancer, costs, begin_s, END_S)
    return story


def _run_until(
    story: Story, group: MemoryGroup, balancer: Balancer, costs: Floats, begin_s: float, end_s: float
) -> None:
    timed = _Timed(balancer, story)
    while group.now_s - begin_s < end_s - 1e-6:
        group.run(timed, min(0.25, end_s - (group.now_s - begin_s)), costs, TICK_S)
        _sample(story, group, balancer, costs, begin_s)
        if group.now_s - begin_s > JOIN_S and np.isnan(story.balanced_s) and story.shares[-1][-1] <= 1 + BOUND:
            story.balanced_s = group.now_s - begin_s - JOIN_S


def _sample(story: Story, group: MemoryGroup, balancer: Balancer, costs: Floats, begin_s: float) -> None:
    loads = group.loads(costs)
    story.times_s.append(group.now_s - begin_s)
    story.shares.append(np.percentile(loads / max(float(loads.mean()), 1e-9), (0, 5, 50, 95, 100)))
    story.moved.append(balancer.statistics().slices_moved)


class _Timed:
    """A balancer whose steps are timed."""

    def __init__(self, balancer: Balancer, story: Story) -> None:
        self._balancer, self._story = balancer, story

    def step(self, now_s: float) -> float:
        decided = self._balancer.statistics().decisions
        begun_s = time.perf_counter()
        pause_s = self._balancer.step(now_s)
        self._story.step_s.append(time.perf_counter() - begun_s)
        statistics = self._balancer.statistics()
        if statistics.decisions > decided:
            self._story.decision_s.append(statistics.decision_s)
        return pause_s


def _busiest(group: MemoryGroup, costs: Floats) -> float:
    loads = group.loads(costs)
    return float(loads.max() / loads.mean())


def figures_of(story: Story) -> Iterator[Figure]:
    """What the story tells."""
    crowd = f"{story.nodes:,} nodes, {story.publishers:,} publishers"
    yield Figure("scale-busiest-before", f"{crowd}: busiest node when half of them join", story.begun_busiest, "× mean")
    yield Figure(
        "scale-busiest", f"{crowd}: busiest node at the end", float(story.shares[-1][-1]), "× mean", 1 + BOUND, True
    )
    yield Figure(
        "scale-balanced", f"{crowd}: time to balance after half of them joined", story.balanced_s, "s", 5, True
    )
    yield Figure("scale-sessions", f"{crowd}: sessions for that", story.sessions, "sessions")
    yield Figure(
        "scale-messages",
        f"{crowd}: messages per session, of balancer, giver and taker",
        story.messages,
        "messages",
        6,
        True,
    )
    yield Figure(
        "scale-dead",
        f"{crowd}: slices of dead nodes have owners, after the heartbeats' end",
        story.owned_s,
        "s",
        1,
        True,
    )
    yield Figure("scale-decision", f"{crowd}: longest decision", max(story.decision_s) * 1000, "ms", 1000, True)
    yield Figure("scale-step", f"{crowd}: step of the balancer, median", float(np.median(story.step_s)) * 1000, "ms")


def report_figure(scale: float) -> Figure:
    """What a report of one node costs the site: confirmations of its slices, loads, work."""
    nodes, slices = _at_least(NODES, scale, 8), _at_least(SLICES, scale, 256)
    group = MemoryGroup(slices)
    members = [group.node(f"node-{number}") for number in range(nodes)]
    balancer = Balancer(group)
    group.run(balancer, 1, np.zeros(slices))
    group.clock.advance(1)
    spent_us = []
    for node in members[:200]:
        held = node.holding
        positions = np.full(len(held.slices), group.head, np.uint64)
        ones = np.ones(len(held.slices), np.uint64)
        work = Work(1_000_000, held.slices, ones, ones)
        progress = Progress(
            int(group.versions[node.seat]), Marks(held.slices, held.epochs, positions), load=Load(), work=work
        )
        begun_s = time.perf_counter()
        group.ownership.exchange(node.seat, node.instance, progress, group.now, group.head)
        spent_us.append((time.perf_counter() - begun_s) * 1e6)
    what = f"report of one of {nodes:,} nodes with {slices // nodes} slices, without the network: median"
    return Figure("scale-report", what, float(np.median(spent_us)), "µs")


# --- Zipf -----------------------------------------------------------------------------------------------


def zipf_figures(scale: float) -> Iterator[Figure]:
    """The busiest node against the mean, before and after."""
    slices = _at_least(ZIPF_SLICES, scale, 256)
    for nodes in ZIPF_NODES:
        costs = zipf_costs(slices, _at_least(PUBLISHERS, scale, 1000), nodes * FILL)
        before, after, moved = zipf_balance(costs, nodes)
        best = max(1.0, float(costs.max() / costs.sum()) * nodes)
        where = f"Zipf {ZIPF:g}, {slices:,} slices, {nodes} nodes"
        yield Figure(f"zipf-{nodes}-before", f"{where}: busiest node, slices spread by number", before, "× mean")
        beside = "" if best <= 1 + BOUND else f"one slice alone: {best:.2f}"
        goal = 1 + BOUND if best <= 1 + BOUND else best * (1 + BOUND)
        text = f"{where}: busiest node, balanced; {moved} slices moved"
        yield Figure(f"zipf-{nodes}-after", text, after, "× mean", goal, True, beside)


def zipf_costs(slices: int, keys: int, total: float) -> Floats:
    """Cost by slice of keys whose frequencies follow Zipf's law."""
    chance = np.random.default_rng(SEED)
    rates = np.arange(1, keys + 1, dtype=np.float64) ** -ZIPF
    return np.bincount(chance.integers(0, slices, keys), rates * total / rates.sum(), slices).astype(np.float64)


def zipf_balance(costs: Floats, nodes: int) -> tuple[float, float, int]:
    """Busiest node against the mean with slices by number, and after a minute of the balancer; slices moved for it."""
    group = MemoryGroup(len(costs))
    for number in range(nodes):
        group.node(f"node-{number}")
    balancer = Balancer(group, algorithm=FewestMoves(BOUND))
    group.run(balancer, 0.5, np.zeros(len(costs)))
    before = _busiest(group, costs)
    group.run(balancer, 60, costs)
    return before, _busiest(group, costs), balancer.statistics().slices_moved


def _at_least(number: int, scale: float, least: int) -> int:
    return min(number, max(least, int(number * scale)))
