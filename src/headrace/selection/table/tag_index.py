"""TagIndex: subscriptions by the properties that must have certain values.

    tag=7                       one pair
    station=KFTG, kind=hail …   up to any number of pairs, all of which must hold

A tree. A node holds decided subscriptions, all of whose pairs were compared on the way, loose ones, whose other pairs
are compared one by one, and branches: by one name, a dictionary from value to the node below. When more than two are
loose, they are parted by the name in which they differ most. A product goes down wherever its own values lead, so what
it costs depends on its properties and on the depth, which is at most the number of pairs and usually one to three, and
not on the subscriptions of other values.

A node is a tuple and never changes, except that dictionaries by value get and lose entries in place, each in one
atomic step. A subscription therefore moves down in the single step that puts the new node in the place of the old one,
and readers need no lock.
"""

from collections.abc import ItemsView, Mapping
from sys import intern
from typing import Any, NamedTuple

from headrace.product.product import Product
from headrace.product.properties import PropertyValue
from headrace.selection.table.field_indexes import Found, load_of
from headrace.selection.table.subscription import Subscription

LOOSE_MAX = 2

Pairs = dict[str, PropertyValue]
Loose = tuple[tuple[ItemsView[str, PropertyValue], Subscription], ...]  # with the pairs still to be compared
Branches = Mapping[str, dict[Any, "Node"]]  # name -> value -> node
Node = tuple[Found, Loose, Branches]

_EMPTY: Node = ((), (), {})
_NOWHERE: dict[Any, Node] = {}


class TagIndex:
    """Finds the subscriptions whose pairs a product has; see the module."""

    name = "tags"

    def __init__(self) -> None:
        self._root = _EMPTY

    def __len__(self) -> int:
        """0 when there is nothing."""
        return sum(map(len, self._root))

    def find(self, product: Product) -> list[Subscription]:
        properties = product.properties
        found: list[Subscription] = []
        nodes = [self._root]
        for decided, loose, branches in nodes:  # grows while it is walked
            if decided:
                found += decided
            for pairs, subscription in loose:
                if pairs <= properties.items():
                    found.append(subscription)
            if not branches:
                continue
            if len(branches) <= len(properties):
                for name, by_value in branches.items():
                    node = by_value.get(properties.get(name))
                    if node is not None:
                        nodes.append(node)
            else:
                for name, value in properties.items():
                    node = branches.get(name, _NOWHERE).get(value)
                    if node is not None:
                        nodes.append(node)
        return found

    def load(self, pairs: Pairs) -> int:
        return load_of(_descend(self._root, pairs).node[0])

    def add(self, pairs: Pairs, subscription: Subscription) -> Pairs:
        above, value, node, used = _descend(self._root, pairs)
        node = _with(node, {intern(name): pairs[name] for name in pairs if name not in used}, subscription)
        if above is None:
            self._root = node
        else:
            above[value] = node
        return pairs

    def remove(self, pairs: Pairs, subscription: Subscription) -> None:
        self._root = _without(self._root, pairs, subscription) or self._root


class _Spot(NamedTuple):
    """Where certain pairs lead: the last dictionary on the way and the key in it, the node there, the names used up."""

    above: dict[Any, Node] | None
    value: PropertyValue | None
    node: Node
    used: frozenset[str]


def _descend(node: Node, pairs: Pairs) -> _Spot:
    """Go down as far as branches lead, always by the oldest: few names per node are few ways for a product."""
    spot = _Spot(None, None, node, frozenset())
    while (name := next((name for name in spot.node[2] if name in pairs), None)) is not None:
        by_value, value = spot.node[2][name], pairs[name]
        spot = _Spot(by_value, value, by_value.get(value, _EMPTY), spot.used | {name})
    return spot


def _with(node: Node, pairs: Pairs, subscription: Subscription) -> Node:
    """A node with one more, of which these pairs are still to be compared."""
    decided, loose, branches = node
    if not pairs:
        return (*decided, subscription), loose, branches
    return _parted(decided, (*loose, (pairs.items(), subscription)), branches)


def _parted(decided: Found, loose: Loose, branches: Branches) -> Node:
    """A node of these; as long as too many are loose, those that have one more name in common go down by it."""
    while len(loose) > LOOSE_MAX:
        name = _widest(loose)
        by_value: dict[Any, Node] = {}
        rest = []
        for items, subscription in loose:
            pairs = dict(items)
            if name in pairs:
                value = pairs.pop(name)
                by_value[value] = _with(by_value.get(value, _EMPTY), pairs, subscription)
            else:
                rest.append((items, subscription))
        loose, branches = tuple(rest), {**branches, name: by_value}
    return decided, loose, branches


def _widest(loose: Loose) -> str:
    """The name that has the most different values here."""
    values: dict[str, set[PropertyValue]] = {}
    for pairs, _ in loose:
        for name, value in pairs:
            values.setdefault(name, set()).add(value)
    return max(values, key=lambda name: len(values[name]))


def _without(node: Node, pairs: Pairs, subscription: Subscription) -> Node | None:
    """What takes the place of a node when one is taken out of it or from below; None if it is not there."""
    decided, loose, branches = node
    still_decided = tuple(other for other in decided if other is not subscription)
    still_loose = tuple(some for some in loose if some[1] is not subscription)
    if len(still_decided) < len(decided) or len(still_loose) < len(loose):
        return still_decided, still_loose, branches
    for name in pairs:
        by_value = branches.get(name, _NOWHERE)
        below = by_value.get(pairs[name])
        changed = _without(below, pairs, subscription) if below is not None else None
        if changed is None:
            continue
        if any(changed):
            by_value[pairs[name]] = changed
            return node
        del by_value[pairs[name]]
        return node if by_value else (decided, loose, {other: branches[other] for other in branches if other != name})
    return None
