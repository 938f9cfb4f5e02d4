"""Access: how a subscription is found.

The terms under which it stands in one index, and the clauses of its selection that are decided by being found there. A
`Check` decides the others: it takes a product and the time now, in nanoseconds.

Not here: which ways a selection offers (`ways.py`), and which of them is taken (`table.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.product.product import Product

Check = Callable[[Product, int], bool]


@dataclass(frozen=True, slots=True)
class Access:
    """A way in; see the module."""

    index: str
    terms: tuple[Any, ...]
    decides: frozenset[str] = frozenset()
