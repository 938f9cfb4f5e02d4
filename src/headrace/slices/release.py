"""Release: how many nodes a group needs, and which idle node may leave.

A node is released if the others would still have room: after it has left, at most the share `full` of their workers
may be in use. That must have been so for `after_s` without interruption; then one node drains, and the time begins
again. More nodes are wanted only above `crowded`, which is more than `full`: what was released is not asked for again
at once, and a group whose load lies between the two stays as it is.

`nodes_min` and `nodes_max` are respected in any case. Nodes beyond `nodes_max` drain without delay. Without a release
policy, no node is ever released; `wanted` is for whatever starts nodes, such as an autoscaler, which Headrace is not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.errors import OptionError
from headrace.slices.snapshot import Node, Snapshot, Table


@dataclass(frozen=True, slots=True)
class Bounds:
    """When nodes are released. `full` and `crowded` are shares of the workers in use."""

    nodes_min: int = 1
    nodes_max: int | None = None
    full: float = 0.5
    crowded: float = 0.8
    after_s: float = 60.0

    def __post_init__(self) -> None:
        if self.nodes_min < 1 or (self.nodes_max is not None and self.nodes_max < self.nodes_min):
            raise OptionError(
                f"nodes_min={self.nodes_min} and nodes_max={self.nodes_max} are out of range",
                "use 1 <= nodes_min <= nodes_max",
            )
        if not 0 < self.full < self.crowded <= 1:
            raise OptionError(
                f"full={self.full:g} and crowded={self.crowded:g} are out of range", "use 0 < full < crowded <= 1"
            )
        if self.after_s < 0:
            raise OptionError(f"after_s={self.after_s:g} is negative", "use 0 or more")


class Release:
    """The policy with its one memory: since when a node could be spared."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._spare_since_s: float | None = None

    def decide(self, snapshot: Snapshot, now_s: float) -> list[int]:
        """Numbers of nodes that should drain now."""
        staying = [node for node in snapshot.nodes if not node.draining]
        surplus = len(staying) - (self.bounds.nodes_max or len(staying))
        if surplus > 0:
            self._spare_since_s = None
            return [node.number for node in self._idlest(snapshot, staying)[:surplus]]
        if any(node.draining for node in snapshot.nodes) or not self._one_to_spare(snapshot, staying):
            self._spare_since_s = None
            return []
        if self._spare_since_s is None:
            self._spare_since_s = now_s
        if now_s - self._spare_since_s < self.bounds.after_s:
            return []
        self._spare_since_s = None
        return [self._idlest(snapshot, staying)[0].number]

    def wanted(self, snapshot: Snapshot) -> int:
        """How many nodes of this kind the group should have: as many as it has, or more if it is crowded."""
        staying = [node for node in snapshot.nodes if not node.draining]
        number, capacity = len(staying), sum(node.load.capacity for node in staying)
        if capacity > 0 and snapshot.costs.sum() > self.bounds.crowded * capacity:
            middle = (self.bounds.full + self.bounds.crowded) / 2
            number = math.ceil(float(snapshot.costs.sum()) / middle / (capacity / len(staying)))
        number = max(number, self.bounds.nodes_min)
        return min(number, self.bounds.nodes_max) if self.bounds.nodes_max is not None else number

    def _one_to_spare(self, snapshot: Snapshot, staying: Sequence[Node]) -> bool:
        if len(staying) <= self.bounds.nodes_min:
            return False
        leaving = self._idlest(snapshot, staying)[0]
        left = sum(node.load.capacity for node in staying) - leaving.load.capacity
        return bool(snapshot.costs.sum() <= self.bounds.full * left)

    def _idlest(self, snapshot: Snapshot, staying: Sequence[Node]) -> list[Node]:
        """Those with the fewest slices to move first, then those that came last."""
        table = Table(snapshot)
        loads = dict(zip(table.numbers.tolist(), np.round(table.loads, 3).tolist(), strict=True))
        counts = dict(zip(table.numbers.tolist(), table.counts.tolist(), strict=True))
        return sorted(staying, key=lambda node: (loads[node.number], counts[node.number], -node.number))
