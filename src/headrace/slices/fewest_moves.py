"""FewestMoves: every node within a bound of the mean, with as few slices moved as possible.

    1  slices of nobody and of draining nodes     each to the node that is least full, the heaviest first
    2  nodes above (1 + bound) × mean             give their heaviest slices until they are at (1 + settle) × mean
    3  nodes that still are above                 the best single move, or a swap of a heavy slice for a lighter one
    4  nodes below half of the mean               get the heaviest slices that others can spare: a node that joined

The heaviest slices first is what makes the moves few. If no slice costs more than `settle` × mean, the number of moves
in step 2 is the least possible: a node must give up at least so many of its slices, the last one is the lightest that
suffices, and there is always a node at or below the mean that can take one more. Where slices are larger, the bound
may be out of reach: a slice that alone costs more than (1 + bound) × mean stays alone with its node, and the others
are compared with the mean of the rest.

No oscillation: a node begins to give only above `bound`, and then goes down to `settle`, which is half of it; takers
never go above `settle`. So costs that are measured with an error of less than the difference cause no further move.
Differences below `noise`, in shares of one worker, are not worth a move at all, and those below three standard errors
of the measurement mean nothing. An idle group is balanced by the number of slices, and only for the benefit of nodes
that have none.
"""

from bisect import bisect_left, bisect_right, insort

import numpy as np

from headrace.errors import OptionError
from headrace.slices.snapshot import Floats, Integers, Move, Snapshot, Table, homeless, moves_of, place

_LIGHTEST = 1e-4  # of the mean cost: what a slice without work counts, so that such slices are spread too
_UNDERLOADED = 0.5  # of the mean: below this a node gets slices even if nobody is overloaded
_ERRORS = 3  # standard errors of a measurement: a larger difference is hardly due to chance
_SWAPS_WITH = 8  # nodes that are tried for a swap
_ROUNDS_MAX = 4  # a slice that exceeds every limit and moves changes the limits of others


class FewestMoves:
    """See the module. `bound` is the share by which the busiest node may exceed the mean."""

    def __init__(self, bound: float = 0.1, settle: float | None = None, noise: float = 0.01) -> None:
        settle = bound / 2 if settle is None else settle
        if not (0 < settle <= bound and noise >= 0):
            raise OptionError(
                f"bound={bound:g}, settle={settle:g} and noise={noise:g} are out of range",
                "use 0 < settle <= bound, and a noise of 0 or more",
            )
        self.bound, self.settle, self.noise = bound, settle, noise

    def decide(self, snapshot: Snapshot) -> list[Move]:
        table = Table(snapshot)
        if not table.takes.any():
            return []
        noise = max(self.noise, _ERRORS * snapshot.noise / float(table.capacities.mean()))
        plan = _Plan(table, idle=table.costs.sum() <= self.noise)
        plan.place_homeless()
        if not plan.idle:
            for _ in range(_ROUNDS_MAX):
                plan.set_limits(self.bound, self.settle, noise)
                if not plan.relieve(self.settle):
                    break
        plan.fill_underloaded(self.bound, noise)
        return plan.moves()


class _Plan:
    """The table while slices change hands on paper."""

    def __init__(self, table: Table, idle: bool) -> None:
        self.table, self.idle = table, idle
        self.weights = _weights(table.costs, idle)
        self.takers = table.owners.copy()
        self.loads = table.loads_of(self.weights)
        self.mean = 0.0
        self.limits = self.settled = np.zeros(len(self.loads))
        self._free: dict[int, list[tuple[float, int]]] = {}

    def place_homeless(self) -> None:
        slices = homeless(self.table)
        stay = np.where(self.table.takes, self.loads, 0.0)
        self.takers[slices] = place(slices, self.weights, stay, self.table)
        # what is fixed at a draining node leaves later, and is no load to compare with
        here = (self.takers >= 0) & np.append(self.table.takes, False)[self.takers]
        self.loads = np.bincount(self.takers[here], self.weights[here], len(self.loads)).astype(np.float64)
        capacity = self.table.capacities[self.table.takes].sum()
        self.mean = float(self.loads.sum() / capacity)

    def set_limits(self, bound: float, settle: float, noise: float) -> None:
        """Loads at which a node begins to give, and down to which it gives; for draining nodes, 0."""
        rows, capacities = self.takers, np.where(self.table.takes, self.table.capacities, 0.0)
        heaviest = np.zeros(len(self.loads))
        np.maximum.at(heaviest, rows[rows >= 0], self.weights[rows >= 0])
        alone = np.zeros(len(self.loads), bool)  # nodes with one slice that exceeds every limit
        while True:
            rest = float(capacities[~alone].sum())
            mean = float(self.loads.sum() - heaviest[alone].sum()) / rest if rest else self.mean
            more = ~alone & self.table.takes & (heaviest > (1 + bound) * mean * capacities)
            if not more.any() or not rest:
                break
            alone |= more
        slack = max(mean * bound, noise)
        base = np.where(alone, heaviest, mean * capacities)
        self.mean = mean
        self.limits = base + slack * capacities
        self.settled = base + slack * (settle / bound) * capacities

    def relieve(self, settle: float) -> bool:
        """Let overloaded nodes give; whether anything moved."""
        before = self.takers.copy()
        for limits in (self.settled, self.limits):
            for row in self.overloaded():
                self.shed(row, limits)
        for row in self.overloaded():
            self.improve(row, settle)
        return not np.array_equal(before, self.takers)

    def overloaded(self) -> list[int]:
        """Rows of nodes above their limits, the worst first."""
        over = self.loads - self.limits
        rows = np.flatnonzero((over > 1e-9 * self.mean) & self.table.takes)
        return [int(row) for row in rows[np.argsort(-over[rows], kind="stable")]]

    def shed(self, giver: int, limits: Floats) -> None:
        """Give the heaviest slices away until the node is at its limit, or nobody has room."""
        free, taker = self._slices(giver), -1
        while free and (excess := self.loads[giver] - limits[giver]) > 1e-12:
            rooms = np.where(self.table.takes, limits - self.loads, -1.0)
            rooms[giver] = -1.0
            most = int(rooms.argmax())
            place = bisect_left(free, (excess - 1e-12, -1))  # the lightest slice that is enough
            if place == len(free):
                place -= 1
            if free[place][0] > rooms[most] + 1e-12:
                place = bisect_right(free, (rooms[most] + 1e-12, 1 << 62)) - 1
            if place < 0:
                return
            weight = free[place][0]
            # the same pair again as long as its taker is below the mean: fewer sessions
            if taker < 0 or self.loads[taker] + weight > self.mean * self.table.capacities[taker]:
                taker = most
            self._move(free, place, giver, taker)

    def improve(self, giver: int, settle: float) -> None:
        """Where slices are so large that nobody has room: make the busier of two nodes less busy."""
        for _ in range(len(self._slices(giver))):
            if self.loads[giver] <= self.limits[giver]:
                return
            least = settle * self.mean * self.table.capacities[giver]  # a gain that is worth a move
            if not (self._best_single(giver, least) or self._best_swap(giver)):
                return

    def _best_single(self, giver: int, least: float) -> bool:
        free = self._slices(giver)
        fills = np.where(self.table.takes, self.loads / self.table.capacities, np.inf)
        fills[giver] = np.inf
        taker = int(fills.argmin())
        if not free or not np.isfinite(fills[taker]):
            return False
        difference = self.loads[giver] - self.loads[taker]
        place = bisect_left(free, (difference / 2, -1))
        best, gain = -1, least
        for candidate in (place - 1, place):
            if 0 <= candidate < len(free):
                weight = free[candidate][0]
                fill = (self.loads[taker] + weight) / self.table.capacities[taker]
                gained = min(weight, self.loads[giver] - fill * self.table.capacities[giver])
                if gained > gain:
                    best, gain = candidate, gained
        if best < 0:
            return False
        self._move(free, best, giver, taker)
        return True

    def _best_swap(self, giver: int) -> bool:
        """A heavy slice of the giver for a lighter one of a node with room; both are within their limits then."""
        free = self._slices(giver)
        excess = self.loads[giver] - self.limits[giver]
        rooms = np.where(self.table.takes, self.limits - self.loads, -1.0)
        rooms[giver] = -1.0
        for taker in np.argsort(-rooms, kind="stable")[:_SWAPS_WITH].tolist():
            theirs = self._slices(taker)
            if rooms[taker] < excess or not theirs:
                continue
            for heavy in range(len(free) - 1, -1, -1):
                weight = free[heavy][0]
                light = bisect_left(theirs, (weight - rooms[taker], -1))
                if light < len(theirs) and weight - theirs[light][0] >= excess:
                    back = theirs[light]
                    self._move(free, heavy, giver, taker)
                    self._move(theirs, theirs.index(back), taker, giver)
                    return True
        return False

    def fill_underloaded(self, bound: float, noise: float) -> None:
        """Nodes with little to do, such as those that joined, get what others can spare without becoming so."""
        takes, capacities = self.table.takes, self.table.capacities
        wanted = self.mean * capacities
        low = takes & (self.loads < (1e-12 if self.idle else np.minimum(wanted * _UNDERLOADED, wanted - noise)))
        if self.idle:
            low &= np.bincount(self.takers[self.takers >= 0], minlength=len(takes)) == 0
        for taker in np.flatnonzero(low).tolist():
            self._fill(taker, wanted, bound)

    def _fill(self, taker: int, wanted: Floats, bound: float) -> None:
        passed = ~self.table.takes  # nodes that have nothing to spare
        passed[taker] = True
        while (lack := wanted[taker] * (1 - bound) - self.loads[taker]) > 0:
            fills = np.where(passed, -np.inf, self.loads / self.table.capacities)
            giver = int(fills.argmax())
            if fills[giver] == -np.inf:
                return
            spare = min(self.loads[giver] - wanted[giver] * (1 - bound), wanted[taker] - self.loads[taker])
            if not self.loads[taker]:  # large slices: better one too many than none
                spare = max(spare, self._half(giver, taker))
            free = self._slices(giver)
            place = bisect_left(free, (lack, -1))  # one that is enough, if it can be spared
            if place == len(free) or free[place][0] > spare:
                place = bisect_right(free, (spare + 1e-12, 1 << 62)) - 1
            if place < 0 or spare <= 0:
                passed[giver] = True
                continue
            self._move(free, place, giver, taker)

    def _half(self, giver: int, taker: int) -> float:
        """The weight that makes two nodes equally full."""
        capacities = self.table.capacities
        fill = (self.loads[giver] + self.loads[taker]) / (capacities[giver] + capacities[taker])
        return float(self.loads[giver] - fill * capacities[giver])

    def _slices(self, row: int) -> list[tuple[float, int]]:
        """The slices of a node that may move, by weight, the lightest first."""
        found = self._free.get(row)
        if found is None:
            slices = np.flatnonzero((self.takers == row) & ~self.table.fixed)
            found = self._free[row] = sorted(zip(self.weights[slices].tolist(), slices.tolist(), strict=True))
        return found

    def _move(self, free: list[tuple[float, int]], place: int, giver: int, taker: int) -> None:
        weight, number = free.pop(place)
        self.takers[number] = taker
        self.loads[giver] -= weight
        self.loads[taker] += weight
        if taker in self._free:
            insort(self._free[taker], (weight, number))

    def moves(self) -> list[Move]:
        changed: Integers = np.flatnonzero(self.takers != self.table.owners)
        return moves_of(self.table, changed, self.takers[changed])


def _weights(costs: Floats, idle: bool) -> Floats:
    """Costs with a little for slices without any, which must be spread as well; all alike in an idle group."""
    if idle or not len(costs):
        return np.ones(len(costs))
    return costs + float(_LIGHTEST * costs.mean())
