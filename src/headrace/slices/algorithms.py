"""The algorithms that come with Headrace, by name.

    FewestMoves   in `fewest_moves.py`: reaches a bound by measured cost per slice, and moves as few slices as possible
    Thresholds    the classification of the thesis: overloaded, normal and underloaded nodes

Write your own as a class with `decide(snapshot)` (`snapshot.py`), and name it `module:name`.
"""

from collections.abc import Callable

import numpy as np

from headrace.errors import OptionError
from headrace.slices.fewest_moves import FewestMoves
from headrace.slices.snapshot import Algorithm, Move, Snapshot, Table, homeless, moves_of, place
from headrace.user_objects import load_object


class Thresholds:
    """Overloaded, normal and underloaded nodes, as in the thesis; overloaded ones give to underloaded ones.

    A node is overloaded if its fill exceeds the mean by more than `above`, and underloaded if it is less than the mean
    by more than `below`. Slices count as equal: a giver that exceeds the mean by a fifth gives a fifth of its slices,
    whichever they are. This suits assignment functions that spread evenly. Where slices differ, it moves more of them
    than `FewestMoves`, and may move the wrong ones.
    """

    def __init__(self, above: float = 0.2, below: float = 0.2) -> None:
        if not (above > 0 and 0 < below < 1):
            raise OptionError(
                f"thresholds above={above:g} and below={below:g} are out of range",
                "use a positive number, and one between 0 and 1",
            )
        self.above, self.below = above, below

    def decide(self, snapshot: Snapshot) -> list[Move]:
        table = Table(snapshot)
        if not table.takes.any():
            return []
        slices = homeless(table)
        if len(slices):
            ones = np.ones(len(table.costs))
            return moves_of(table, slices, place(slices, ones, table.loads_of(ones), table))
        return self._between(table)

    def _between(self, table: Table) -> list[Move]:
        counts = table.counts
        # nothing is measured yet: all slices are alike
        loads = (table.loads if table.loads.sum() > 0 else counts.astype(np.float64)).copy()
        mean = loads.sum() / table.capacities[table.takes].sum()
        fills = np.where(table.takes, loads / table.capacities, mean)
        givers = [int(row) for row in np.argsort(-fills, kind="stable") if fills[row] > mean * (1 + self.above)]
        takers = [int(row) for row in np.argsort(fills, kind="stable") if fills[row] < mean * (1 - self.below)]
        moves = []
        for giver in givers:
            each = loads[giver] / counts[giver]
            free = np.flatnonzero((table.owners == giver) & ~table.fixed).tolist()[: counts[giver] - 1]
            for taker in takers:
                wanted = min(
                    loads[giver] - mean * table.capacities[giver], mean * table.capacities[taker] - loads[taker]
                )
                number = min(int(wanted / each), len(free))
                if number <= 0:
                    continue
                chosen, free = free[:number], free[number:]
                moves.append(Move(int(table.numbers[giver]), int(table.numbers[taker]), tuple(chosen)))
                loads[giver] -= number * each
                loads[taker] += number * each
        return moves


def load_algorithm(name: str) -> Algorithm:
    """The algorithm of this name: `fewest-moves`, `thresholds`, or `module:name` of an object or a class of yours.

    Raises OptionError if there is no such name, or if what it names has no method `decide`.
    """
    known: dict[str, Callable[[], Algorithm]] = {"fewest-moves": FewestMoves, "thresholds": Thresholds}
    if ":" not in name:
        if name not in known:
            raise OptionError(f"algorithm {name!r} is unknown", f"use {', '.join(known)}, or module:name of your own")
        return known[name]()
    found = load_object(name, "algorithm")
    try:
        made: object = found() if isinstance(found, type) else found
    except Exception as error:
        raise OptionError(
            f"algorithm {name!r} fails with {type(error).__name__}: {error}", "it is made without arguments"
        ) from error
    if not isinstance(made, Algorithm):
        raise OptionError(
            f"algorithm {name!r} has no method decide", "write one: decide(snapshot) returns a list of Move"
        )
    return made
