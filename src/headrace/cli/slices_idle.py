"""When a node of `headrace slices run --timeout` has nothing left to do, and what it leaves undone.

A node has nothing to do if nothing was done, failed or parked for so long, nothing waits or is in work, and the group
has confirmed its slices up to the end of the queue. Other feeds of the queue may grow all the time, so that the end is
the one of an earlier look, which does not move until the slices are there.
"""

from typing import TYPE_CHECKING

import numpy as np

from headrace.errors import HeadraceError
from headrace.selection import Selection
from headrace.share.interface import ELSEWHERE

if TYPE_CHECKING:
    from headrace.queue import AnyQueue
    from headrace.share.interface import AnyShare, ShareState
    from headrace.slices import NodeStatistics

UNDONE_MAX = 10_000  # are counted
_EXPECT_S = 10.0  # a node that has just begun may get slices
_ROWS = 4096


class Idle:
    """Looks at a node again and again, until it has nothing to do."""

    def __init__(self, share: "AnyShare", timeout_s: float, now_s: float) -> None:
        self._share, self._timeout_s = share, timeout_s
        self._began_s = self._since_s = now_s
        self._before = (0, 0, 0)
        self._end: int | None = None  # of the queue, at the look that has not been reached yet

    def has_ended(self, name: str, now: "NodeStatistics", now_s: float) -> bool:
        """Whether the node of this name has had nothing to do for the whole timeout."""
        done = (now.products, now.failed, now.parked)
        is_expecting = not now.slices and now_s < self._began_s + _EXPECT_S
        if done != self._before or now.waiting or is_expecting:
            self._before, self._since_s, self._end = done, now_s, None
            return False
        return self._is_confirmed(name) and now_s - self._since_s >= self._timeout_s

    def _is_confirmed(self, name: str) -> bool:
        try:
            state = self._share.state()
        except HeadraceError:  # the site is away: who knows; the node itself tells of it
            return False
        own = next((node for node in state.nodes if node.name == name), None)
        if own is None:  # it joins again
            return False
        if self._end is None:
            self._end = state.head
        positions = state.positions[state.owners == own.seat]
        is_reached = not len(positions) or int(positions.min()) >= self._end
        if is_reached:
            self._end = None
        return is_reached


def count_undone(queue: "AnyQueue", share: "AnyShare") -> int:
    """Products of the group that nobody works on, because it has no node; at most UNDONE_MAX are counted."""
    state = share.state()
    if any(node.is_alive for node in state.nodes):
        return 0
    undone, position = 0, _first_undone(state)
    while position < state.head and undone < UNDONE_MAX:
        batch = queue.read_batch(position, Selection(feed=share.feed), limit=_ROWS, stop=state.head)
        slices = batch.columns["slice"].astype(np.int64)
        known = slices < len(state.owners)
        slices, sequences = slices[known], batch.sequences[known]
        undone += int(np.count_nonzero((state.owners[slices] != ELSEWHERE) & (sequences >= state.positions[slices])))
        if batch.next <= position:
            break
        position = batch.next
    return min(undone, UNDONE_MAX)


def _first_undone(state: "ShareState") -> int:
    positions = state.positions[state.owners != ELSEWHERE]
    return int(positions.min()) if len(positions) else state.head
