"""Cost of each slice, measured: the share of one worker that it needs.

Nodes report for each slice the items that are done, the time that they took, and the position. Here two reports become
rates: what was added, divided by the time between the reports, not by the time between two looks at them, which would
be wrong by up to one report. Rates are smoothed over five seconds, or over a minute if items are few. What is left of
chance is known, too: `noise` is the standard error of a node's load, and differences of that size mean nothing.

A node that cannot keep up does not show what its slices need: it works all the time and falls behind. How much they
need follows from the positions. The work on a slice takes `share / pace` seconds for each sequence by which it goes on.
The head of the queue goes on by so many sequences per second, and what the slice lags behind should be done within
`catch_up_s`:

    cost = share / pace × (pace of the head + lag / catch_up_s)

This counts only at a busy node. A slice that lags at a node with time to spare waits for something else, such as an
item that hangs, and no move would help. A slice works on one item at a time, so it never needs more than one worker.

The cost belongs to the slice, not to the node, and moves with it. That is what lets an algorithm calculate the loads
after a move. A node that is faster than others reports a higher capacity.
"""

import numpy as np

from headrace.share.interface import Load, NodeState, ShareState
from headrace.slices.snapshot import Floats, Integers

_INTERVAL_S_MIN = 0.5  # shorter ones contain too few items
_KNOWN_S = 2.0  # a slice that was measured for less counts as an average one
_BUSY = 0.8  # of its capacity: a node that works so much may be behind
_FACTOR_MAX = 20.0  # by which a cost exceeds what is measured, for slices that hardly go on
_WINDOW_S = (5.0, 60.0)
_ITEMS = 100  # of each node, in a window
_SILENT_S = 2.0  # a node that reports no work for so long has none


class Costs:
    """Rates from counters. A counter that went back, because the group was made again, adds nothing."""

    def __init__(self, slices: int, catch_up_s: float = 10.0) -> None:
        self._catch_up_s = catch_up_s
        self._window_s = _WINDOW_S[0]
        self._items, self._items_s, self._item_rate = 0, np.nan, 0.0
        self._reports = _Reports()
        self._reported_s: Floats = np.full(slices, np.nan)  # as it is now
        self._at_s: Floats = np.full(slices, np.nan)  # as it was counted last
        self._seen_s: Floats = np.zeros(slices)
        self._busy_s: Floats = np.zeros(slices)
        self._positions: Floats = np.zeros(slices)
        self._shares: Floats = np.zeros(slices)  # busy seconds per second
        self._paces: Floats = np.zeros(slices)  # sequences per second
        self._head_pace, self._head, self._head_s = 0.0, 0, np.nan

    def measure(self, state: ShareState, now_s: float) -> None:
        """Take in what the nodes have reported."""
        reported_s = self._reported_s = self._reports.times(state.nodes, state.owners, now_s)
        self._measure_head(state.head, now_s)
        self._measure_items(state, now_s)
        passed_s = reported_s - self._at_s
        ready = np.flatnonzero(passed_s >= _INTERVAL_S_MIN)
        first = np.flatnonzero(np.isnan(self._at_s) & ~np.isnan(reported_s))
        busy_s, positions = state.busy_ns / 1e9, state.positions.astype(np.float64)
        if len(ready):
            passed = passed_s[ready]
            self._seen_s[ready] += passed
            # until the window is full, each interval counts by its length
            part = np.maximum(1 - np.exp(-passed / self._window_s), np.minimum(1.0, passed / self._seen_s[ready]))
            for rates, counters, before in (
                (self._shares, busy_s, self._busy_s),
                (self._paces, positions, self._positions),
            ):
                added = np.maximum(counters[ready] - before[ready], 0) / passed
                rates[ready] += part * (added - rates[ready])
        for taken in (ready, first):
            self._at_s[taken] = reported_s[taken]
            self._busy_s[taken] = busy_s[taken]
            self._positions[taken] = positions[taken]

    def _measure_head(self, head: int, now_s: float) -> None:
        passed_s = now_s - self._head_s
        if np.isnan(passed_s):
            self._head, self._head_s = head, now_s
        elif passed_s >= _INTERVAL_S_MIN:
            part = 1 - np.exp(-passed_s / self._window_s) if self._head_pace else 1.0
            self._head_pace += float(part) * (max(0, head - self._head) / passed_s - self._head_pace)
            self._head, self._head_s = head, now_s

    def _measure_items(self, state: ShareState, now_s: float) -> None:
        """How many items there are per second, and so for how long rates must be smoothed."""
        items, passed_s = int(state.products.sum()), now_s - self._items_s
        if np.isnan(passed_s):
            self._items, self._items_s = items, now_s
        elif passed_s >= _SILENT_S:
            part = 1 - np.exp(-passed_s / self._window_s) if self._item_rate else 1.0
            self._item_rate += float(part) * (max(0, items - self._items) / passed_s - self._item_rate)
            self._items, self._items_s = items, now_s
            wanted_s = _ITEMS * len(state.nodes) / max(self._item_rate, 1e-9)
            self._window_s = min(max(wanted_s, _WINDOW_S[0]), _WINDOW_S[1])

    def noise(self, nodes: int) -> float:
        """Standard error of the load of a node, if items come by chance: so many of them, each of the mean length."""
        share = float(self._shares.sum())
        if not (nodes and share > 0 and self._item_rate > 0):
            return 0.0
        return float(np.sqrt(share / nodes * (share / self._item_rate) / (2 * self._window_s)))

    def costs(self, state: ShareState, loads: dict[int, Load], now_s: float) -> Floats:
        """Share of a worker that each slice needs; loads are by seat."""
        needed: Floats = np.minimum(self._shares * self._factors(state, loads, now_s), 1.0)
        known = self._seen_s >= _KNOWN_S
        needed[~known] = needed[known].mean() if known.any() else 0.0
        return needed

    def _factors(self, state: ShareState, loads: dict[int, Load], now_s: float) -> Floats:
        """By how much a slice needs more than it gets."""
        busy = np.bincount(state.owners, self._shares)
        behind = np.zeros(len(busy), bool)
        for seat, load in loads.items():
            if seat < len(busy) and busy[seat] >= _BUSY * load.capacity:
                behind[seat] = True
        since_s = np.nan_to_num(now_s - self._reported_s)
        lags = np.maximum(state.head - self._head_pace * since_s - state.positions.astype(np.float64), 0)
        wanted = self._head_pace + lags / self._catch_up_s
        factors = wanted / np.maximum(self._paces, wanted / _FACTOR_MAX + 1e-9)
        return np.where(behind[state.owners], np.maximum(factors, 1.0), 1.0)


class _Reports:
    """When each node has reported its work last, on the clock of the balancer."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[tuple[int, int, float], float]] = {}

    def times(self, nodes: list[NodeState], owners: Integers, now_s: float) -> Floats:
        """By slice: when its owner has reported; NaN without an owner."""
        times = np.full(int(owners.max(initial=0)) + 1, np.nan)
        seen = {}
        for node in nodes:
            counters, heard_s = (node.joined_ns, node.products, node.busy_s), now_s - node.age_s
            known = self._seen.get(node.seat)
            if known is not None and known[0] == counters and heard_s - known[1] < _SILENT_S:
                heard_s = known[1]
            seen[node.seat] = (counters, heard_s)
            if node.seat < len(times):
                times[node.seat] = heard_s
        self._seen = seen
        return times[owners]
