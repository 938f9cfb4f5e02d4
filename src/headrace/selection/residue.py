"""Residue: subscriptions that are found for every product, because no index can tell them apart.

Two kinds stand here: those that want everything, which costs nothing to decide, and those that must be checked each
time. The table bounds the number of the latter.
"""

from headrace.product.product import Product
from headrace.selection.field_index import Found, crowd
from headrace.selection.subscription import Subscription


class Residue:
    """Finds all its subscriptions, whatever the product."""

    name = "residue"

    def __init__(self) -> None:
        self._found: Found = ()

    def __len__(self) -> int:
        return len(self._found)

    def find(self, product: Product) -> Found:
        return self._found

    def crowd(self, term: None) -> int:
        return crowd(self._found)

    def add(self, term: None, subscription: Subscription) -> None:
        self._found = (*self._found, subscription)

    def remove(self, placed: None, subscription: Subscription) -> None:
        self._found = tuple(other for other in self._found if other is not subscription)
