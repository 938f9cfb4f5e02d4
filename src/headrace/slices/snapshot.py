"""What a load-balancing algorithm sees and returns: a snapshot of the group goes in, moves of slices come out.

    Snapshot    the live nodes, and for each slice its owner, its measured cost, and whether it is in a session
    Move        these slices, from this node (or from nobody) to that node
    Algorithm   `decide(snapshot) -> moves`; any object with this method can be used

The cost of a slice is the share of one worker that it needs: 0.25 means a quarter of a second of work per second. The
capacity of a node is the number of its workers, and its fill is the cost of its slices divided by its capacity.

Every algorithm has two duties that allow no choice: slices without an owner get one, and a draining node is emptied.
`homeless` and `place` do this, so that an algorithm of yours has to decide only what it would do differently. Nothing
here reads a clock, a file or the network; the balancer, the tests and the simulation call the same functions.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from headrace.share.interface import NOBODY, Load, Reason

Integers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_NO_ROW = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A live node: its seat in the group, and its last load report."""

    number: int
    name: str
    load: Load
    draining: bool = False  # gives everything away and takes nothing


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an algorithm sees. `owners` has the number of a node in `nodes`, or NOBODY."""

    nodes: Sequence[Node]
    owners: Integers  # by slice; in a session, the taker: what is under way counts as done
    costs: Floats  # by slice
    fixed: Flags  # by slice: in a session, moved a short time ago, or of another group; do not move it
    noise: float = 0.0  # standard error of the load of a node, as a share of one worker


@dataclass(frozen=True, slots=True)
class Move:
    giver: int  # NOBODY: the slices have no owner
    taker: int
    slices: tuple[int, ...]
    reason: Reason = "load"


@runtime_checkable
class Algorithm(Protocol):
    def decide(self, snapshot: Snapshot) -> list[Move]:
        """Moves that should be made. An empty list says that all is well.

        It is called about once a second and holds nothing that it must not lose: the balancer may be replaced by its
        standby at any moment. Moves of fixed slices, and moves to nodes that drain, are dropped by the balancer.
        """


class Table:
    """The snapshot by node, in an order that suits arrays: node i of the table is `numbers[i]`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.numbers = np.array([node.number for node in snapshot.nodes], np.int64)
        self.capacities = np.array([max(node.load.capacity, 1e-9) for node in snapshot.nodes])
        self.takes = np.array([not node.draining for node in snapshot.nodes], bool)
        self.owners = rows_of(snapshot.owners, self.numbers)
        self.fixed = snapshot.fixed | ((self.owners < 0) & (snapshot.owners != NOBODY))  # owners that are unknown
        self.costs = np.maximum(np.nan_to_num(snapshot.costs.astype(np.float64), posinf=0.0), 0.0)
        self.loads = self.loads_of(self.costs)

    def loads_of(self, costs: Floats) -> Floats:
        owned = self.owners >= 0
        return np.bincount(self.owners[owned], costs[owned], len(self.numbers)).astype(np.float64)

    @property
    def counts(self) -> Integers:
        """How many slices each node owns."""
        return np.bincount(self.owners[self.owners >= 0], minlength=len(self.numbers)).astype(np.int64)


def rows_of(owners: Integers, numbers: Integers) -> Integers:
    """The row of each owner in `numbers`; -1 for owners that are not there."""
    if not len(numbers):
        return np.full(len(owners), _NO_ROW, np.int64)
    order = np.argsort(numbers)
    found = order[np.minimum(np.searchsorted(numbers, owners, sorter=order), len(numbers) - 1)]
    return np.where(numbers[found] == owners, found, _NO_ROW)


def homeless(table: Table) -> Integers:
    """The slices that must get another owner: those of nobody, and those of draining nodes."""
    stays = np.append(table.takes, False)  # row -1: nobody
    return np.flatnonzero(~stays[table.owners] & ~table.fixed)


def place(slices: Integers, weights: Floats, loads: Floats, table: Table) -> Integers:
    """A row for each of these slices: the heaviest first, each to the node that is least full.

    `loads` are the weights that the nodes have already, and are not changed. Nodes that drain get nothing.
    """
    chosen = np.full(len(slices), _NO_ROW, np.int64)
    heap = [
        (load / capacity, row, load, capacity)
        for row, (load, capacity) in enumerate(zip(loads.tolist(), table.capacities.tolist(), strict=True))
        if table.takes[row]
    ]
    if not heap:
        return chosen
    heapq.heapify(heap)
    order = np.argsort(-weights[slices], kind="stable")
    rows = []
    for weight in weights[slices[order]].tolist():
        _, row, load, capacity = heap[0]
        rows.append(row)
        heapq.heapreplace(heap, ((load + weight) / capacity, row, load + weight, capacity))
    chosen[order] = rows
    return chosen


def moves_of(table: Table, slices: Integers, takers: Integers) -> list[Move]:
    """Rows of takers for slices, as moves: one for each pair of nodes."""
    kept = takers >= 0
    slices, takers = slices[kept], takers[kept]
    givers = table.owners[slices]
    numbers, counts = np.append(table.numbers, NOBODY), table.counts
    order = np.lexsort((slices, takers, givers))
    ends = np.flatnonzero(np.diff(givers[order]) | np.diff(takers[order])) + 1
    found = []
    for pair in np.split(order, ends) if len(order) else []:
        giver, taker = int(givers[pair[0]]), int(takers[pair[0]])
        reason: Reason = "join" if giver < 0 or not counts[taker] else "load"
        if giver >= 0 and not table.takes[giver]:
            reason = "drain"
        found.append(Move(int(numbers[giver]), int(numbers[taker]), tuple(slices[pair].tolist()), reason))
    return found
