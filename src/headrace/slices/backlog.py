"""Backlog: products that a node has read and not begun, in the order of each slice.

Rows of a batch stay together as a Portion, with a column of slices and one of sequences, so that a thousand products
cost a few array operations. Products of one slice are taken in the order of their sequences; those of different slices
may pass each other: a slice that may not go on now (in work, or waiting to be tried again) holds up nobody.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.product.batch import Batch
from headrace.product.product import Product
from headrace.share.interface import Flags, Positions, Slices

FOREVER = np.uint64(0xFFFF_FFFF_FFFF_FFFF)  # a position behind every product


class Portion(NamedTuple):
    """Some rows of one batch."""

    batch: Batch
    places: npt.NDArray[np.uint32]  # of the rows in the batch, growing
    slices: Slices
    sequences: Positions

    def where(self, chosen: Flags) -> "Portion":
        return Portion(self.batch, self.places[chosen], self.slices[chosen], self.sequences[chosen])

    def __len__(self) -> int:
        return len(self.places)

    @property
    def payload_bytes(self) -> int:
        return int(self.batch.sizes[self.places].sum(dtype=np.uint64))

    def products(self) -> Iterator[Product]:
        if len(self.places) == len(self.batch):
            return iter(self.batch)
        return (self.batch[place] for place in self.places.tolist())


class Backlog:
    """Portions, the oldest first."""

    def __init__(self) -> None:
        self._portions: deque[Portion] = deque()
        self.products = 0
        self.bytes = 0

    def __len__(self) -> int:
        return self.products

    def add(self, portion: Portion) -> None:
        """Products that were read after all others of their slices."""
        self._count(portion, 1)
        self._portions.append(portion)

    def put_back(self, portion: Portion) -> None:
        """Products that were taken, and stand before all others of their slices."""
        self._count(portion, 1)
        self._portions.appendleft(portion)

    def take(self, count: int, blocked: Flags, stops: Positions | None = None) -> list[Portion]:
        """Up to `count` products of slices that are not blocked, in order, and before the stop of their slice."""
        taken: list[Portion] = []
        passed: list[Portion] = []
        blocked = blocked.copy()
        while self._portions and count > 0:
            portion = self._portions.popleft()
            free = _free(portion, blocked, stops)
            if np.count_nonzero(free) > count:
                free[np.flatnonzero(free)[count:]] = False
            if free.all():
                taken.append(portion)
                count -= len(portion)
                continue
            if free.any():
                taken.append(portion.where(free))
                count -= len(taken[-1])
                portion = portion.where(~free)
            blocked[portion.slices] = True  # what is left of a slice stands before its later products
            passed.append(portion)
        self._portions.extendleft(reversed(passed))
        for portion in taken:
            self._count(portion, -1)
        return taken

    def drop(self, unwanted: Flags) -> None:
        """Forget the products of some slices: others will read them."""
        self._keep(lambda portion: ~unwanted[portion.slices])

    def cut(self, keep: int, slices: int) -> Positions:
        """Forget all but the first `keep` products of each slice; by slice, the first one forgotten, or FOREVER."""
        before, first = np.zeros(slices, np.int64), np.full(slices, FOREVER, np.uint64)

        def stays(portion: Portion) -> Flags:
            chosen: Flags = before[portion.slices] + _ranks(portion.slices) < keep
            np.add.at(before, portion.slices, 1)
            np.minimum.at(first, portion.slices[~chosen], portion.sequences[~chosen])
            return chosen

        self._keep(stays)
        return first

    def _keep(self, stays: Callable[[Portion], Flags]) -> None:
        """Forget the other rows of each portion."""
        kept: deque[Portion] = deque()
        for portion in self._portions:
            chosen = stays(portion)
            left = portion if chosen.all() else portion.where(chosen)
            if len(left):
                kept.append(left)
            if left is not portion:
                self._count(portion, -1)
                self._count(left, 1)
        self._portions = kept

    def slices(self, slices: int) -> Flags:
        """Of which slices there are products, of so many."""
        found = np.zeros(slices, np.bool_)
        for portion in self._portions:
            found[portion.slices] = True
        return found

    def discard(self, slice_number: int, sequence: int) -> None:
        """Forget one product: it was given up."""
        for place, portion in enumerate(self._portions):
            found = (portion.slices == slice_number) & (portion.sequences == sequence)
            if found.any():
                self._count(portion, -1)
                left = portion.where(~found)
                self._count(left, 1)
                if len(left):
                    self._portions[place] = left
                else:
                    del self._portions[place]
                return

    def has(self, blocked: Flags, stops: Positions | None = None) -> bool:
        """Whether there is something to take."""
        return any(bool(_free(portion, blocked, stops).any()) for portion in self._portions)

    def lower(self, positions: Positions) -> None:
        """Lower each slice's position to its first product here."""
        for portion in self._portions:
            np.minimum.at(positions, portion.slices, portion.sequences)

    def _count(self, portion: Portion, sign: int) -> None:
        self.products += sign * len(portion)
        self.bytes += sign * portion.payload_bytes


def _free(portion: Portion, blocked: Flags, stops: Positions | None) -> Flags:
    free: Flags = ~blocked[portion.slices]
    return free if stops is None else free & (portion.sequences < stops[portion.slices])


def _ranks(slices: Slices) -> npt.NDArray[np.int64]:
    """Of each row, how many of its slice stand before it."""
    order = np.argsort(slices, kind="stable")
    ordered = slices[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    ranks = np.empty(len(slices), np.int64)
    ranks[order] = np.arange(len(slices)) - np.repeat(begins, np.diff(np.append(begins, len(slices))))
    return ranks
