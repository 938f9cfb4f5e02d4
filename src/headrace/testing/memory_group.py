"""MemoryGroup: a group of processing nodes without a queue, with a clock that moves only when you move it.

    group = MemoryGroup(slices=64)
    nodes = [group.node(f"node-{number}") for number in range(3)]
    balancer = Balancer(group, algorithm=my_algorithm)
    group.run(balancer, seconds=10, work=lambda slice: 0.02)     each slice needs 0.02 seconds of work per second

The ownership of slices is the real one (`headrace.share.ownership`): the same code that changes the table of a queue.
Nodes are what is left out: a MemoryNode does as a well-behaved node does, one exchange after the other, without
products. So an algorithm can be tried on a thousand nodes in a second, and a balancer with nodes that die or stall.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.share.interface import (
    NO_MARKS,
    Exchanged,
    Load,
    Marks,
    Parked,
    Progress,
    Reason,
    Sample,
    ShareState,
    ShareTerms,
    Slices,
    Work,
)
from headrace.share.layout import memory_table
from headrace.share.ownership import Ownership
from headrace.share.sessions import Moment
from headrace.share.show import history_of, parked_of, state_of
from headrace.testing.clock import MockClock

_REPORT_S = 1.0
Costs = npt.NDArray[np.float64]


class MemoryGroup:
    """A group in memory. It has the methods of a group that a balancer uses, and counts the calls of each."""

    feed = "memory"

    def __init__(
        self, slices: int = 256, dead_after_s: float = 3.0, clock: MockClock | None = None, item_s: float = 0.001
    ) -> None:
        """`item_s` is what the work on one item takes."""
        self.item_s = item_s
        self.clock = clock or MockClock(1_000_000_000_000)
        self.clock.advance(10)
        self.terms = ShareTerms(
            group="main", stream="memory", channel=1, number=1, id="memory", slices=slices,
            dead_after_s=dead_after_s, tries_max=3, created_ns=self.clock.now_ns(),
        )  # fmt: skip
        self.ownership = Ownership(memory_table(slices, dead_after_s=dead_after_s))
        self.versions: npt.NDArray[np.uint64] = self.ownership.table.seats["version"]
        self.nodes: list[MemoryNode] = []
        self.calls: dict[str, int] = {}
        self.backlog_s: Costs = np.zeros(slices)  # work that waits, by slice; it moves with the slice
        self.hangs = np.zeros(slices, bool)  # slices that do not go on, because an item of them hangs
        self.arrived_s: Costs = np.full(slices, self.now_s)  # up to when items have arrived

    @property
    def now(self) -> Moment:
        return Moment(self.clock.elapsed_ns(), self.clock.now_ns())

    @property
    def head(self) -> int:
        """The queue's next sequence: a million of them per second."""
        return self.clock.elapsed_ns() // 1000

    @property
    def now_s(self) -> float:
        return self.clock.elapsed_ns() / 1e9

    def node(self, name: str, capacity: float = 1.0, speed: float = 1.0) -> "MemoryNode":
        """A node that joins now; `speed` 2 does the work of a second in half of it."""
        made = MemoryNode(self, name, capacity, speed, len(self.nodes) + 1)
        self.nodes.append(made)
        return made

    def owners(self) -> npt.NDArray[np.uint16]:
        return self.state().owners

    def loads(self, costs: Costs) -> Costs:
        """The cost of what each live node owns, in the order of `state().nodes`."""
        state = self.state()
        sums = np.bincount(state.owners, costs, 1 << 16)
        return sums.astype(np.float64)[[node.seat for node in state.nodes if node.is_alive]]

    def run(self, balancers: Any, seconds: float, work: Callable[[int], float] | Costs, tick_s: float = 0.1) -> None:
        """Let time pass: the nodes work and report, then each balancer that is due makes a step."""
        each = balancers if isinstance(balancers, Sequence) else [balancers]
        costs = (
            work if isinstance(work, np.ndarray) else np.array([work(number) for number in range(self.terms.slices)])
        )
        due = dict.fromkeys(range(len(each)), self.now_s)
        end_s = self.now_s + seconds - 1e-9
        while self.now_s < end_s:
            self.clock.advance(tick_s)
            for node in self.nodes:
                node.turn(costs)
            for number, balancer in enumerate(each):
                if due[number] <= self.now_s + 1e-9:
                    due[number] = self.now_s + balancer.step(self.now_s)
        for node in self.nodes:
            node.work(costs)

    # --- what a balancer uses -----------------------------------------------------------------------

    def _called(self, what: str) -> Ownership:
        self.calls[what] = self.calls.get(what, 0) + 1
        return self.ownership

    def state(self) -> ShareState:
        return state_of(self.ownership, self.terms, self.now, self.head)

    def lead(self, balancer: str, lease_s: float, *, yields: bool = False) -> int:
        return self._called("lead").lead(balancer, int(lease_s * 1e9), self.now, yields=yields)

    def begin(self, term: int, giver: int, taker: int, slices: Slices, reason: Reason) -> int:
        return self._called("begin").begin(term, giver, taker, slices, reason, self.now)

    def cancel(self, term: int, slices: Slices) -> int:
        return self._called("cancel").cancel(term, slices, self.now)

    def give(self, term: int, taker: int, slices: Slices, reason: Reason) -> int:
        return self._called("give").give(term, taker, slices, reason, self.now)

    def seize(self, term: int, seat: int) -> int:
        return len(self._called("seize").seize(term, seat, self.now, self.head))

    def drain(self, seat: int) -> None:
        self._called("drain").drain(seat)

    def history(self) -> list[Sample]:
        return history_of(self.ownership.table)

    def parked(self) -> list[Parked]:
        return parked_of(self.ownership.table)


class MemoryNode:
    """A node that works as it should, unless you set `alive` or `lets_go` to False."""

    def __init__(self, group: MemoryGroup, name: str, capacity: float, speed: float, instance: int) -> None:
        self.group, self.name, self.capacity, self.speed, self.instance = group, name, capacity, speed, instance
        self.alive = self.lets_go = True
        self._stalls = False  # it has slices that it should let go, and does not
        self.seat = group.ownership.join(name, instance, group.now)
        self.holding = group.ownership.holding(self.seat)  # nothing yet
        self._seen = self._report = 0
        self._worked_s = group.now_s
        self._reported_s = group.now_s - instance % 20 / 20  # not all of them at once
        self._busy_s: Costs = np.zeros(0)  # of the slices that it holds, since the last report
        self._costs: Costs = np.zeros(0)
        self._before: list[tuple[Slices, Costs]] = []  # of those that it held before, since the last report

    def turn(self, costs: Costs) -> None:
        """Report once a second; let go of what is to move; take what came. Nothing to do costs nothing."""
        group = self.group
        reports = group.now_s - self._reported_s >= _REPORT_S - 1e-9
        changed = self._stalls or int(group.versions[self.seat]) != self._seen
        if self.alive and (reports or changed):
            self.work(costs)
            self._costs = costs
            self._exchange(reports)

    def work(self, costs: Costs) -> None:
        """Do the work of the time since the last call, as far as the capacity allows; the rest waits."""
        group, slices = self.group, self.holding.slices
        if not self.alive:
            return
        passed_s, self._worked_s = group.now_s - self._worked_s, group.now_s
        group.backlog_s[slices] += costs[slices] * (group.now_s - group.arrived_s[slices])
        group.arrived_s[slices] = group.now_s
        wanted_s = np.where(self.holding.leaving | group.hangs[slices], 0.0, group.backlog_s[slices])
        done_s = wanted_s * min(1.0, self.capacity * self.speed * passed_s / max(float(wanted_s.sum()), 1e-9))
        group.backlog_s[slices] -= done_s
        self._busy_s += done_s / self.speed

    def _exchange(self, reports: bool) -> None:
        """The messages of a real node: report; look again if something changed; release; say that it was seen."""
        load, work = (self._load(), self._work()) if reports else (None, None)
        confirm = self._marks(~self.holding.leaving) if reports else NO_MARKS
        self._send(Progress(self._seen, confirm, load=load, work=work), "reports" if reports else "exchanges")
        self._stalls = bool(self.holding.leaving.any())
        if self._stalls and self.lets_go:
            self._send(Progress(self._seen, release=self._marks(self.holding.leaving)), "exchanges")
            self._stalls = False
        if self.holding.draining and not len(self.holding.slices):
            self.leave()

    def _send(self, progress: Progress, what: str) -> Exchanged:
        group = self.group
        group.calls[what] = group.calls.get(what, 0) + 1
        answer = group.ownership.exchange(self.seat, self.instance, progress, group.now, group.head)
        self._seen = answer.version
        if answer.holding is not None:
            self._before.append((self.holding.slices, self._busy_s))
            self.holding, self._busy_s = answer.holding, np.zeros(len(answer.holding.slices))
        return answer

    def _marks(self, chosen: npt.NDArray[np.bool_]) -> Marks:
        """How far these slices have come: as much of the time since their items arrived as is not done."""
        held = self.holding
        lag_s = self.group.backlog_s[held.slices] / np.maximum(self._costs[held.slices], 1e-9)
        positions = np.maximum((self.group.now_s - lag_s) * 1e6, 1).astype(np.uint64)
        return Marks(held.slices, held.epochs, np.minimum(positions, np.uint64(self.group.head))).where(chosen)

    def _load(self) -> Load:
        waiting_s = float(self.group.backlog_s[self.holding.slices].sum())
        return Load(capacity=self.capacity, waiting=int(waiting_s / self.group.item_s))

    def _work(self) -> Work:
        self._reported_s = self.group.now_s
        self._report += 1
        parts = [*self._before, (self.holding.slices, self._busy_s)]
        slices = np.concatenate([slices for slices, _ in parts])
        busy_ns = (np.concatenate([busy_s for _, busy_s in parts]) * 1e9).astype(np.uint64)
        self._before, self._busy_s = [], np.zeros(len(self.holding.slices))
        return Work(
            self._report, slices, np.ceil(busy_ns * self.speed / (self.group.item_s * 1e9)).astype(np.uint64), busy_ns
        )

    def leave(self) -> None:
        self.group.ownership.leave(self.seat, self.instance, self.group.now)
        self.alive = False
