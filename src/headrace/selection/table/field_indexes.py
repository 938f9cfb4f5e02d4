"""Subscriptions by feed pattern, by the value of one field, and without an index.

FeedIndex is a tree of pattern levels; `*` and `**` have branches of their own beside the names. A look-up follows
the levels of the product's feed and keeps the set of nodes that they can reach, so the cost depends on the levels and
on the wildcards beside them, and not on the patterns of other feeds. A pattern with more than four `**`, each of which
multiplies the reachable nodes, is not indexed. A pattern with alternatives stands in several places, and a feed may
reach more than one of them; only then is a look-up freed of repetitions.

    wx/radar/*      root -wx- o -radar- o -*- o
    wx/**                  `-**- o              stays where it is for any level

FieldIndex is one dictionary from value to subscriptions. Unindexed holds the subscriptions that are found for every
product because no index can tell them apart: those that select everything, which costs nothing to decide, and those
that must be checked each time; the table bounds the number of the latter.

Readers take no lock: what a look-up finds is a tuple that is replaced and never changed, names are looked up in one
atomic step, and a node is linked when it is complete.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from headrace.product.product import Product
from headrace.selection.table.subscription import Subscription

MANY_MAX = 4

Levels = tuple[str, ...]


class _Node:
    __slots__ = ("below", "found", "many", "one")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.one: _Node | None = None  # after *
        self.many: _Node | None = None  # after **
        self.found: tuple[Subscription, ...] = ()

    def next(self, level: str) -> "_Node | None":
        if level == "*":
            return self.one
        return self.many if level == "**" else self.below.get(level)

    def link(self, level: str, node: "_Node | None") -> None:
        if level == "*":
            self.one = node
        elif level == "**":
            self.many = node
        elif node is None:
            del self.below[level]
        else:
            self.below[level] = node

    @property
    def is_empty(self) -> bool:
        return not (self.found or self.below or self.one or self.many)


def levels_of(pattern: str) -> Levels:
    """The levels of a feed pattern, `**` never twice in a row; empty if the pattern has too many `**` to be indexed."""
    levels: list[str] = []
    for level in pattern.split("/"):
        if level != "**" or levels[-1:] != ["**"]:
            levels.append(level)
    return tuple(levels) if levels.count("**") <= MANY_MAX else ()


class FeedIndex:
    """Finds the subscriptions whose pattern fits the feed of a product; see the module."""

    name = "feed pattern"

    def __init__(self) -> None:
        self._root = _Node()
        self._repeated = 0  # places of subscriptions that stand in several

    def __len__(self) -> int:
        """0 if it is empty."""
        return 0 if self._root.is_empty else 1

    def find(self, product: Product) -> list[Subscription]:
        nodes = [self._root]
        many: dict[_Node, None] = {} if self._root.many is None else {self._root.many: None}
        for level in product.feed.split("/"):
            standing = [*nodes, *many]
            nodes = []
            for node in standing:
                if (below := node.below.get(level)) is not None:
                    nodes.append(below)
                if node.one is not None:
                    nodes.append(node.one)
            for node in nodes:
                if node.many is not None:
                    many[node.many] = None
        found = [subscription for node in (*nodes, *many) for subscription in node.found]
        return list(dict.fromkeys(found)) if self._repeated else found

    def load(self, levels: Levels) -> int:
        node: _Node | None = self._root
        for level in levels:
            node = node.next(level) if node is not None else None
        return load_of(node.found) if node is not None else 0

    def add(self, levels: Levels, subscription: Subscription) -> Levels:
        node = self._root
        for level in levels:
            below = node.next(level)
            if below is None:
                below = _Node()
                node.link(level, below)
            node = below
        self._repeated += len(subscription.access.terms) > 1  # first: readers take no lock
        node.found = (*node.found, subscription)
        return levels

    def remove(self, levels: Levels, subscription: Subscription) -> None:
        way = [self._root]
        for level in levels:
            below = way[-1].next(level)
            if below is None:
                return
            way.append(below)
        way[-1].found = tuple(other for other in way[-1].found if other is not subscription)
        self._repeated -= len(subscription.access.terms) > 1
        for level in reversed(levels):
            if not way.pop().is_empty:
                return
            way[-1].link(level, None)


Found = tuple[Subscription, ...]


class FieldIndex:
    """Finds the subscriptions for the product's value of one field: feed, origin or slice."""

    def __init__(self, field: str) -> None:
        self.name = field
        self._value: Callable[[Product], Any] = attrgetter(field)
        self._found: dict[Any, Found] = {}

    def __len__(self) -> int:
        """How many values are indexed."""
        return len(self._found)

    def find(self, product: Product) -> Found:
        return self._found.get(self._value(product), ())

    def load(self, value: Any) -> int:
        return load_of(self._found.get(value, ()))

    def add(self, value: Any, subscription: Subscription) -> Any:
        self._found[value] = (*self._found.get(value, ()), subscription)
        return value

    def remove(self, value: Any, subscription: Subscription) -> None:
        drop(self._found, value, subscription)


def load_of(found: Found) -> int:
    """How many of these must be checked when they are found."""
    return sum(subscription.is_checked for subscription in found)


def drop(places: dict[Any, Found], value: Any, subscription: Subscription) -> None:
    """Remove a subscription from one place, and the place if it is empty then."""
    rest = tuple(other for other in places.get(value, ()) if other is not subscription)
    if rest:
        places[value] = rest
    else:
        places.pop(value, None)


class Unindexed:
    """Finds all its subscriptions for any product."""

    name = "unindexed"

    def __init__(self) -> None:
        self._found: Found = ()

    def __len__(self) -> int:
        return len(self._found)

    def find(self, product: Product) -> Found:
        return self._found

    def load(self, term: None) -> int:
        return load_of(self._found)

    def add(self, term: None, subscription: Subscription) -> None:
        self._found = (*self._found, subscription)

    def remove(self, placed: None, subscription: Subscription) -> None:
        self._found = tuple(other for other in self._found if other is not subscription)
