"""Balancing: one step of a balancer, as a function of the group's table and of the time.

    lead      renew the lease; without it, stand by
    seize     nodes whose heartbeat has ended: their slices have no owner now
    watch     sessions: a giver that does not let go in time keeps its slices, and is left alone for a while
    decide    ask the algorithm if something has changed, or a second has passed
    give      slices without an owner, at once
    begin     sessions, one at a time for each giver; the plan has the next ones
    release   drain a node that is not needed

Everything that must survive is in the table: owners, takers, epochs, the lease. What is here may be lost at any
moment: a plan is made again, patience begins again, costs are measured again. So a standby takes over by taking the
lease. Every change carries the term of the lease, and the table refuses those of a balancer that was replaced.

A balancer is not in the data path: nodes work, confirm and end their sessions without it. Not here: threads and
connections (balancer.py), what to move (algorithms.py), what slices cost (costs.py), patience with givers (givers.py).
"""

import logging
import os
import time
from collections import deque

import numpy as np

from headrace.channel.worker import ErrorLog
from headrace.errors import BalancerDeposedError
from headrace.share.interface import NOBODY, Reason, ShareState
from headrace.slices.balanced import Balanced, BalancerStatistics, Patience
from headrace.slices.costs import Costs
from headrace.slices.givers import Givers, in_session
from headrace.slices.release import Release
from headrace.slices.snapshot import Algorithm, Integers, Move, Node, Snapshot, Table, homeless, moves_of, place
from headrace.units import format_count

SESSION_SLICES_MAX = 4096  # more of them move in several sessions, so that messages stay small
_KEEN, _STANDBY_S_MAX = 8, 15.0
_RENEW = 32  # changes of the table, between two renewals of the lease within one step
_PLAN_LASTS = 5  # decisions that may be left out while a plan is carried out

_logger = logging.getLogger(__name__)


class Balancing:
    """The steps of one balancer. One thread at a time."""

    def __init__(
        self, share: Balanced, algorithm: Algorithm, release: Release | None = None,
        patience: Patience | None = None, name: str = "balancer",
    ) -> None:  # fmt: skip
        self._share, self._algorithm, self._release = share, algorithm, release
        self._patience = patience or Patience()
        self.rank, self.yields = 0, False
        self.name = f"{name}.{os.urandom(4).hex()}"  # two balancers of one name must not share a lease
        self.errors = ErrorLog(_logger)
        self._count = dict.fromkeys(
            ("steps", "decisions", "sessions", "slices_moved", "slices_given", "cancelled", "seized", "drained"), 0
        )
        self._decision_s = self._busiest = 0.0
        self._wanted = self._term = 0
        self._forget(0)

    def _forget(self, term: int) -> None:
        """Begin a term, or stand by."""
        slices = self._share.terms.slices
        self._term = term
        self._costs = Costs(slices)
        self._moved_s = np.full(slices, -np.inf)
        self._plan: dict[int, deque[Move]] = {}
        self._givers = Givers(self._patience.session_s)
        self._members: frozenset[tuple[int, str, bool]] = frozenset()
        self._decided_s = -np.inf
        self._seized = np.zeros(slices, bool)
        self._owners: Integers = np.full(slices, NOBODY)
        self._begun = np.zeros(slices, bool)  # slices whose next move is ours
        self._released: set[int] = set()
        self._moving, self._pause_s = b"", self._patience.idle_step_s
        self._unrenewed = 0

    # --- one step ---------------------------------------------------------------------------------

    def step(self, now_s: float | None = None) -> float:
        """Do what is to do now; in how many seconds the next step should come."""
        now_s = time.monotonic() if now_s is None else now_s
        self._count["steps"] += 1
        try:
            term = self._share.lead(self.name, self._patience.lease_s, yields=self.yields)
            if term != self._term:
                self._forget(term)
            if not term:
                return self._standby_s()
            state = self._seize(self._share.state())
            self._watch(state, now_s)
            return self._act(state, now_s)
        except BalancerDeposedError:  # stopped for longer than the lease: somebody else leads now
            self._forget(0)
            return self._standby_s()

    def _standby_s(self) -> float:
        """Pause of a standby: the first eight try four times in a lease, those behind them more and more rarely.

        So a thousand standbys cost a site a hundred calls a second, and not two thousand, and the lease of a dead
        leader is taken as soon as by a few.
        """
        return min(self._patience.lease_s / 4 * max(1.0, self.rank / _KEEN), _STANDBY_S_MAX)

    def _renew(self) -> None:
        """Before each change: a step with many of them, on a slow disk or link, may take longer than the lease."""
        self._unrenewed += 1
        if self._unrenewed >= _RENEW:
            self._unrenewed = 0
            if self._share.lead(self.name, self._patience.lease_s, yields=self.yields) != self._term:
                raise BalancerDeposedError("another balancer leads", "stand by")

    def resign(self) -> None:
        """Let a standby lead at once."""
        if self._term:
            self._share.lead(self.name, 1e-6)
            self._forget(0)

    def _act(self, state: ShareState, now_s: float) -> float:
        nodes = [Node(each.seat, each.name, each.load, each.draining) for each in state.nodes if each.is_alive]
        self._costs.measure(state, now_s)
        self._released &= {node.number for node in nodes if node.draining}
        self._note_moves_by_hand(state, now_s)
        snapshot = self._snapshot(state, nodes, now_s)
        members = frozenset((node.number, node.name, node.draining) for node in nodes)
        changed, self._members = members != self._members, members
        if changed or self._is_due(snapshot, now_s):
            self._decided_s = now_s
            self._adopt(self._decide(snapshot), snapshot)
            self._drain_idle(snapshot, now_s)
        self._give()
        begun = self._begin(state, now_s)
        return self._next_s(begun > 0, state.takers[state.takers != NOBODY].tobytes())

    def _next_s(self, begun: bool, moving: bytes) -> float:
        """Soon while sessions go on; less and less often while nothing changes, because a state may be large."""
        if begun or (moving and moving != self._moving):
            self._pause_s = self._patience.busy_step_s
        else:
            self._pause_s = min(self._pause_s * 2, self._patience.idle_step_s) if moving else self._patience.idle_step_s
        self._moving = moving
        return self._pause_s

    # --- dead nodes and slow givers -----------------------------------------------------------------

    def _seize(self, state: ShareState) -> ShareState:
        dead = [node for node in state.nodes if not node.is_alive]
        if not dead:
            return state
        for node in dead:
            self._renew()
            self._share.seize(self._term, node.seat)
        after = self._share.state()
        still = {(node.seat, node.joined_ns) for node in after.nodes}  # heard of again at the last moment
        for node in dead:
            if (node.seat, node.joined_ns) not in still:
                self._seized |= state.owners == node.seat
                self._count["seized"] += 1
                _logger.warning("node %s was not heard of for %.1f s: its slices go to others", node.name, node.age_s)
        return after

    def _watch(self, state: ShareState, now_s: float) -> None:
        """Cancel sessions in which nothing has moved for too long."""
        for giver, slices, pause_s in self._givers.watch(state, now_s):
            self._share.cancel(self._term, slices.astype(np.uint32))
            self._count["cancelled"] += 1
            self._begun[slices] = False
            self._plan.pop(giver, None)
            name = next((node.name for node in state.nodes if node.seat == giver), "that has left")
            _logger.warning(
                "node %s did not let go of %s within %.0f s, and keeps them; next attempt in %.0f s",
                name, format_count(len(slices), "slice"), self._patience.session_s, pause_s,
            )  # fmt: skip

    # --- decide -------------------------------------------------------------------------------------

    def _note_moves_by_hand(self, state: ShareState, now_s: float) -> None:
        """Slices that a person has moved rest too: the move should be seen before it is undone."""
        moved = (state.owners != self._owners) & (self._owners != NOBODY) & (state.owners != NOBODY)
        self._moved_s[moved & ~self._begun] = now_s
        self._begun &= ~moved
        self._owners = state.owners

    def _snapshot(self, state: ShareState, nodes: list[Node], now_s: float) -> Snapshot:
        moving = state.takers != NOBODY
        owners = np.where(moving, state.takers, state.owners).astype(np.int64)
        staying = np.isin(owners, [node.number for node in nodes if not node.draining])
        resting = (now_s - self._moved_s < self._patience.rest_s) & staying
        fixed = moving | resting | np.isin(owners, self._givers.left_alone(now_s))
        costs = self._costs.costs(state, {node.number: node.load for node in nodes}, now_s)
        return Snapshot(nodes, owners, costs, fixed, self._costs.noise(len(nodes)))

    def _is_due(self, snapshot: Snapshot, now_s: float) -> bool:
        if np.any((snapshot.owners == NOBODY) & ~snapshot.fixed):
            return True
        # a plan is carried out before the next one is made, unless a giver holds it up
        return now_s - self._decided_s >= self._patience.decide_s * (_PLAN_LASTS if self._plan else 1)

    def _decide(self, snapshot: Snapshot) -> list[Move]:
        begun_s = time.perf_counter()
        self._count["decisions"] += 1
        table = Table(snapshot)
        fills = table.loads[table.takes] / table.capacities[table.takes]
        total, capacity = table.loads[table.takes].sum(), table.capacities[table.takes].sum()
        self._busiest = float(fills.max() / (total / capacity)) if total > 0 else 0.0
        try:
            moves = list(self._algorithm.decide(snapshot))
        except Exception as error:  # noqa: BLE001  of a user, perhaps; slices must not stay without an owner
            self.errors.add("the balancing algorithm failed; slices without an owner are spread by number", error)
            slices, ones = homeless(table), np.ones(len(table.costs))
            moves = moves_of(table, slices, place(slices, ones, table.loads_of(ones), table))
        self._decision_s = time.perf_counter() - begun_s
        return moves

    def _adopt(self, moves: list[Move], snapshot: Snapshot) -> None:
        """Make the moves the plan; what an algorithm must not ask for is left out."""
        self._plan = {}
        takers = {node.number for node in snapshot.nodes if not node.draining}
        for move in moves:
            slices = np.unique(np.array(move.slices, np.int64))
            slices = slices[(slices >= 0) & (slices < len(snapshot.owners))]
            slices = slices[(snapshot.owners[slices] == move.giver) & ~snapshot.fixed[slices]]
            if move.taker not in takers or move.taker == move.giver:
                continue
            for begin in range(0, len(slices), SESSION_SLICES_MAX):
                part = tuple(slices[begin : begin + SESSION_SLICES_MAX].tolist())
                waiting = self._plan.setdefault(move.giver, deque())
                waiting.append(Move(move.giver, move.taker, part, move.reason))

    def _drain_idle(self, snapshot: Snapshot, now_s: float) -> None:
        if self._release is None:
            self._wanted = len(snapshot.nodes)
            return
        self._wanted = self._release.wanted(snapshot)
        for seat in self._release.decide(snapshot, now_s):
            self._share.drain(seat)
            self._released.add(seat)
            self._count["drained"] += 1

    # --- do -----------------------------------------------------------------------------------------

    def _give(self) -> None:
        """Slices of nobody need no session."""
        for move in self._plan.pop(NOBODY, ()):
            slices = np.array(move.slices, np.uint32)
            reason: Reason = "dead" if self._seized[slices].any() else "join"
            self._renew()
            self._count["slices_given"] += self._share.give(self._term, move.taker, slices, reason)
            self._seized[slices] = False

    def _begin(self, state: ShareState, now_s: float) -> int:
        """The next session of each giver that is in none; how many began."""
        running = in_session(state)
        begun = 0
        for giver in [giver for giver in self._plan if giver not in running]:
            moves = self._plan[giver]
            while moves:
                move = moves.popleft()
                slices = np.array(move.slices, np.uint32)
                reason: Reason = "idle" if giver in self._released and move.reason == "drain" else move.reason
                self._renew()
                number = self._share.begin(self._term, giver, move.taker, slices, reason)
                if number:
                    self._moved_s[slices] = now_s if reason == "load" else -np.inf
                    self._begun[slices] = True
                    self._count["sessions"] += 1
                    self._count["slices_moved"] += number
                    begun += 1
                    break
            if not moves:
                del self._plan[giver]
        return begun

    def statistics(self) -> BalancerStatistics:
        return BalancerStatistics(
            name=self.name, is_leader=self._term > 0, term=self._term, decision_s=self._decision_s,
            errors=self.errors.count, latest_error=self.errors.latest, busiest=self._busiest,
            nodes_wanted=self._wanted, **self._count,
        )  # fmt: skip
