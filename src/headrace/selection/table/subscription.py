"""Subscription: one distinct selection in a table, the keys that have it, and where it stands.

A thousand subscribers with the same selection are one subscription with a thousand keys: it is found once and
evaluated once. `Access` says how it is found: the terms under which it stands in one index, and the clauses that being
found there decides. `check` decides the others, from a product and the time in nanoseconds; it is None if nothing is
left to decide.

Readers take `keys_now or refresh()` without a lock. `keys_now` is an immutable copy of the keys; a change drops it and
the next reader makes it again, so that adding and removing cost the same however many keys there are.

Every check is timed and charged to the subscription. The counts are exact on one thread; two threads that count at the
same instant may lose one.

Not here: which accesses a selection offers (plan.py), and which one is chosen (table.py).
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from threading import Lock
from time import perf_counter_ns
from typing import Any

from headrace.product.product import Product
from headrace.selection.selection import Selection

Check = Callable[[Product, int], bool]


@dataclass(frozen=True, slots=True)
class Access:
    """One way to find a subscription; see the module."""

    index: str
    terms: tuple[Any, ...]
    decides: frozenset[str] = frozenset()


class Subscription:
    """See the module. The table owns `keys`, under its lock."""

    __slots__ = (
        "_failed_before", "_lock", "_turn", "access", "check", "checked", "every", "is_checked", "keys", "keys_now",
        "placed", "selection", "spent_ns", "wanted",
    )  # fmt: skip

    def __init__(self, selection: Selection, access: Access, check: Check | None, lock: Lock) -> None:
        self.selection = selection
        self.access = access
        self.placed: list[Any] = []  # where its index has put it
        self.is_checked = check is not None
        self.every = selection.every
        self.check = check if check is not None or self.every == 1 else _always
        self.keys: dict[Hashable, Hashable] = {}  # key -> owner
        self.keys_now: tuple[Hashable, ...] | None = None
        self.checked = self.wanted = self.spent_ns = 0
        self._failed_before = selection.function_failures
        self._turn = count(1)
        self._lock = lock

    @property
    def failed(self) -> int:
        """Products that were not selected because a function raised."""
        return self.selection.function_failures - self._failed_before

    def refresh(self) -> tuple[Hashable, ...]:
        """The keys as they are now."""
        with self._lock:
            self.keys_now = tuple(self.keys)
            return self.keys_now

    def wants(self, product: Product, now_ns: int) -> bool:
        """Whether the rest of the selection holds; timed, counted, and prescaled."""
        begun = perf_counter_ns()
        wanted = self.check is None or self.check(product, now_ns)
        self.spent_ns += perf_counter_ns() - begun
        self.checked += 1
        if not wanted:
            return False
        self.wanted += 1
        return self.every == 1 or next(self._turn) % self.every == 0


def _always(product: Product, now_ns: int) -> bool:
    return True
