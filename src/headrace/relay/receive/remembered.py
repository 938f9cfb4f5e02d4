"""Remembered: which products have arrived lately, also those that the queue has evicted since.

A queue recognises a product by its signature as long as it holds it. A queue that is smaller than that of a standby
evicts products that the standby still lists, and a queue without signatures recognises none; both would store them
again. So a receiver with fail-over remembers, of about the last half million products, who put them, as which number
and when (messages/inventory.py): 16 bytes each, as sorted arrays. New products are appended, and sorted in when
somebody asks; small arrays are merged, and the oldest array is forgotten at the limit. Forgetting is safe: a product
that is not remembered is stored again, and never left out.

Threads may share it.
"""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.relay.messages.inventory import Identities, Numbers, keys_of

PRODUCTS_MAX = 1 << 19
_ARRAYS = 8  # full ones

_Rows = tuple[Any, ...]  # columns: origin, sequence there, when created
_Sorted = tuple[Numbers, Numbers]  # keys in order, and when each was created


class Remembered:
    """The latest `products_max` products, about."""

    def __init__(self, products_max: int = PRODUCTS_MAX) -> None:
        self._products_max = products_max
        self._arrays: list[_Sorted] = []  # the oldest first
        self._fresh: list[tuple[list[_Rows], Sequence[str]]] = []  # not in order yet, by the names that they use
        self._fresh_count = 0
        self._lock = threading.Lock()

    def add(self, columns: Any, names: Sequence[str]) -> None:
        """Rows as a Batch has them, with the names that their numbers mean. Only what is needed of them is kept."""
        kept = tuple(columns[field].copy() for field in ("origin", "origin_sequence", "created_ns"))
        with self._lock:
            if not self._fresh or self._fresh[-1][1] is not names:
                self._fresh.append(([], names))
            self._fresh[-1][0].append(kept)
            self._fresh_count += len(columns)
            if self._fresh_count > self._products_max // _ARRAYS:
                self._sort_in()

    def knows(self, products: Identities) -> npt.NDArray[np.bool_]:
        """Which of these have been added and not been forgotten."""
        known = np.zeros(len(products), np.bool_)
        with self._lock:
            self._sort_in()
            for keys, created in self._arrays:
                places = np.minimum(np.searchsorted(keys, products.keys), len(keys) - 1)
                known |= (keys[places] == products.keys) & (created[places] == products.created)
        return known

    def __len__(self) -> int:
        with self._lock:
            return self._fresh_count + sum(len(keys) for keys, _ in self._arrays)

    def _sort_in(self) -> None:
        """Each array is at least twice as long as the next one, or full."""
        if not self._fresh_count:
            return
        self._arrays.append(_sorted([_named(rows, names) for rows, names in self._fresh]))
        self._fresh, self._fresh_count = [], 0
        full = self._products_max // _ARRAYS
        while len(self._arrays) > 1 and len(self._arrays[-2][0]) < min(full, 2 * len(self._arrays[-1][0])):
            self._arrays[-2:] = [_sorted(self._arrays[-2:])]
        while sum(len(keys) for keys, _ in self._arrays[1:]) >= self._products_max:
            del self._arrays[0]


def _named(rows: list[_Rows], names: Sequence[str]) -> _Sorted:
    origins, sequences, created = (np.concatenate(columns) for columns in zip(*rows, strict=True))
    return keys_of(origins, sequences, names), created


def _sorted(parts: list[_Sorted]) -> _Sorted:
    keys, created = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(keys, kind="stable")
    return keys[order], created[order]
