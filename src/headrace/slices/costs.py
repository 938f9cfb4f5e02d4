"""Cost of each slice, measured: the share of one worker that it needs.

Nodes report for each slice the items that are done and the time that they took. Here two reports become a rate: what
was added, divided by the time between the reports, not by the time between two looks at them, which would be wrong by
up to one report. Rates are smoothed over `window_s`.

A node that cannot keep up does not show what its slices need: it works all the time, and items wait. So items that
wait at a busy node count as well, as the share of a worker that would finish them within `catch_up_s`. Those at a node
that has time do not: they wait for something else, such as an item of their slice that hangs, and no move would help.
A slice works on one item at a time, so it never needs more than one worker.

The cost belongs to the slice, not to the node, and moves with it. That is what lets an algorithm calculate the loads
after a move. A node that is faster than others reports a higher capacity.
"""

import numpy as np

from headrace.share.interface import Counts, Load, NodeState
from headrace.slices.snapshot import Floats, Integers

_INTERVAL_S_MIN = 0.5  # shorter ones contain too few items
_KNOWN_S = 2.0  # a slice that was measured for less counts as an average one
_BUSY = 0.8  # of its capacity: a node that works so much may be behind
_SILENT_S = 2.0  # a node that reports no work for so long has none


class Costs:
    """Rates from counters. A counter that went back, because the group was made again, adds nothing."""

    def __init__(self, slices: int, window_s: float = 5.0, catch_up_s: float = 10.0) -> None:
        self._window_s, self._catch_up_s = window_s, catch_up_s
        self._at_s: Floats = np.full(slices, np.nan)
        self._seen_s: Floats = np.zeros(slices)
        self._items: Floats = np.zeros(slices)
        self._busy_s: Floats = np.zeros(slices)
        self.rates: Floats = np.zeros(slices)  # items per second
        self.shares: Floats = np.zeros(slices)  # busy seconds per second

    def measure(self, reported_s: Floats, products: Counts, busy_ns: Counts) -> None:
        """Take the counters in; `reported_s`, by slice, is when they were reported, NaN if nobody owns the slice."""
        passed_s = reported_s - self._at_s
        ready = np.flatnonzero(passed_s >= _INTERVAL_S_MIN)
        first = np.flatnonzero(np.isnan(self._at_s) & ~np.isnan(reported_s))
        if len(ready):
            passed = passed_s[ready]
            self._seen_s[ready] += passed
            # until the window is full, each interval counts by its length
            part = np.maximum(1 - np.exp(-passed / self._window_s), np.minimum(1.0, passed / self._seen_s[ready]))
            items = np.maximum(products[ready].astype(np.float64) - self._items[ready], 0) / passed
            busy = np.maximum(busy_ns[ready].astype(np.float64) / 1e9 - self._busy_s[ready], 0) / passed
            self.rates[ready] += part * (items - self.rates[ready])
            self.shares[ready] += part * (busy - self.shares[ready])
        for taken in (ready, first):
            self._at_s[taken] = reported_s[taken]
            self._items[taken] = products[taken]
            self._busy_s[taken] = busy_ns[taken] / 1e9

    def costs(self, owners: Integers, loads: dict[int, Load]) -> Floats:
        """Share of a worker that each slice needs, with the items that wait at its owner; loads are by seat."""
        rates, busy = self.rates + 1e-9, np.bincount(owners, self.shares)
        at_owner = np.zeros(len(busy))
        for seat, load in loads.items():
            if seat < len(busy) and busy[seat] >= _BUSY * load.capacity:
                at_owner[seat] = load.waiting
        # what waits at a node waits for its slices as their items come
        shared = at_owner[owners] * rates / np.bincount(owners, rates)[owners]
        total = self.rates.sum()
        mean_s = self.shares.sum() / total if total > 0 else 0.0
        item_s = np.divide(self.shares, self.rates, out=np.full(len(rates), mean_s), where=self.rates > 1e-6)
        needed: Floats = np.minimum(self.shares + shared * item_s / self._catch_up_s, 1.0)
        known = self._seen_s >= _KNOWN_S
        needed[~known] = needed[known].mean() if known.any() else 0.0
        return needed


class Reports:
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
