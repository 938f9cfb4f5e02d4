"""Slice sets: the slices of a range in as many sets as there are tasks, so that all tasks have about the same to do.

    load of a slice    its weight in the range: payload bytes, and 256 for each product
                       or, with the name of a group, its products in the range times the time that the nodes of the
                       group have taken for a product of this slice

The heaviest slice is placed first, each into the set that has the least so far (longest processing time first). The
fullest set then has at most 4/3 of what the best division has, and nearly always less than one percent more than the
mean, unless a single slice is heavier than that: a slice is never divided. Equal loads are placed by number, so that
equal weights give equal sets.
"""

import heapq
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from headrace.log.weights import Weights
from headrace.queue import AnyQueue


class GroupName(NamedTuple):
    """A group of processing nodes, whose measured costs count."""

    stream: str
    group: str


def slice_sets(loads: Mapping[int, float], count: int) -> list[tuple[int, ...]]:
    """At most `count` sets, none of them empty, each in ascending order."""
    sets: list[list[int]] = [[] for _ in range(min(count, len(loads)))]
    lightest = [(0.0, place) for place in range(len(sets))]
    for number, load in sorted(loads.items(), key=lambda slice_: (-slice_[1], slice_[0])):
        reached, place = lightest[0]
        sets[place].append(number)
        heapq.heapreplace(lightest, (reached + load, place))
    return [tuple(sorted(numbers)) for numbers in sets]


def loads_of(queue: AnyQueue, weights: Weights, group: GroupName | None) -> Mapping[int, float]:
    """What each slice of a range weighs. ShareMissingError: there is no such group."""
    if group is None:
        return weights.slices
    state = queue.share(group.stream, group.group, create=False).state()
    products, busy_ns = state.products.astype(np.float64), state.busy_ns.astype(np.float64)
    if not busy_ns.sum():
        return weights.slices  # the group has measured nothing yet
    mean_ns = float(busy_ns.sum() / max(1.0, products.sum()))
    costs = np.divide(busy_ns, products, out=np.full(len(products), mean_ns), where=products > 0)
    return {
        number: count * float(costs[number] if 0 <= number < len(costs) else mean_ns)
        for number, count in weights.slice_products.items()
    }
