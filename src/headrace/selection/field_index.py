"""FieldIndex: subscriptions by the value of one header field: feed, origin or slice.

One dictionary from value to the subscriptions that want it. Readers take no lock: a look-up is one atomic step, and
what it finds is a tuple that is replaced and never changed.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from headrace.product.product import Product
from headrace.selection.subscription import Subscription

Found = tuple[Subscription, ...]


class FieldIndex:
    """Finds the subscriptions that name the value which the product has; see the module."""

    def __init__(self, field: str) -> None:
        self.name = field
        self._value: Callable[[Product], Any] = attrgetter(field)
        self._found: dict[Any, Found] = {}

    def __len__(self) -> int:
        """Values known."""
        return len(self._found)

    def find(self, product: Product) -> Found:
        return self._found.get(self._value(product), ())

    def crowd(self, value: Any) -> int:
        return crowd(self._found.get(value, ()))

    def add(self, value: Any, subscription: Subscription) -> Any:
        self._found[value] = (*self._found.get(value, ()), subscription)
        return value

    def remove(self, value: Any, subscription: Subscription) -> None:
        drop(self._found, value, subscription)


def crowd(found: Found) -> int:
    """How many of these have to be checked when they are found."""
    return sum(subscription.is_dear for subscription in found)


def drop(places: dict[Any, Found], value: Any, subscription: Subscription) -> None:
    """Take a subscription away from one place, and the place too when nobody is left."""
    rest = tuple(other for other in places.get(value, ()) if other is not subscription)
    if rest:
        places[value] = rest
    else:
        places.pop(value, None)
