"""FeedIndex: subscriptions by feed pattern.

A tree of pattern levels; `*` and `**` have branches of their own beside the names. A product goes down along its own
levels and holds the set of nodes that its levels so far can stand at, so the cost depends on the levels and on how many
wildcards branch off along them, and not on the patterns of other feeds. A pattern with more than four `**`, each of
which lets it stand at many places at once, is not taken.

    wx/radar/*      root -wx- o -radar- o -*- o
    wx/**                  `-**- o              stays where it is for any level

Readers take no lock: the subscriptions of a node are a tuple that is replaced in one step, names are looked up in one
step, and a node is linked when it is complete.
"""

from headrace.product.product import Product
from headrace.selection.field_index import crowd
from headrace.selection.subscription import Subscription

MANY_MAX = 4

Levels = tuple[str, ...]


class _Node:
    __slots__ = ("below", "found", "many", "one")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.one: _Node | None = None  # behind *
        self.many: _Node | None = None  # behind **
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
    """The levels of a feed pattern, `**` never twice in a row; none if the pattern is too wild to stand here."""
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

    def __len__(self) -> int:
        """0 when there is nothing."""
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
        return [subscription for node in (*nodes, *many) for subscription in node.found]

    def crowd(self, levels: Levels) -> int:
        node: _Node | None = self._root
        for level in levels:
            node = node.next(level) if node is not None else None
        return crowd(node.found) if node is not None else 0

    def add(self, levels: Levels, subscription: Subscription) -> Levels:
        node = self._root
        for level in levels:
            below = node.next(level)
            if below is None:
                below = _Node()
                node.link(level, below)
            node = below
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
        for level in reversed(levels):
            if not way.pop().is_empty:
                return
            way[-1].link(level, None)
