"""Entering: products of one call that are not stored yet, as a function of a user sees them.

Such a function assigns the slices of a channel (channel/assigner.py). It gets a sequence of products that are made when
they are looked at, so a function that looks at a few, or at none, costs little. What only the log gives is missing:
sequence and insertion time are 0, and so are other numbers that the caller did not give; the origin is then empty.
"""

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from headrace.log.columns import FACTS, Columns
from headrace.log.seams import Entering
from headrace.product.batch import Batch
from headrace.product.product import NO_SLICE, PRIORITY_DEFAULT, MadeProduct, Product
from headrace.product.properties import decode_properties
from headrace.product.put import PLAIN, Put


def entering_one(payload: Any, feed: str, ident: str, facts: Put) -> Entering:
    """The product of a `put`."""
    given = {name: value for name in FACTS if (value := getattr(facts, name)) != getattr(PLAIN, name)}
    products = Unstored([payload], Columns(feed, ident, given))
    return Entering(products, [feed], np.array([facts.slice], np.uint16))


def entering_many(payloads: list[Any], columns: Columns) -> Entering:
    """The products of a `put_many`."""
    count = len(payloads)
    feeds = [columns.feed] * count if isinstance(columns.feed, str) else columns.feed
    given = columns.facts.get("slice", np.array([NO_SLICE], np.uint16))
    return Entering(Unstored(payloads, columns), feeds, _filled(given, count))


def entering_batch(batch: Batch) -> Entering:
    """All products of a batch, also those that are not kept."""
    return Entering(_Stored(batch), [product.feed for product in batch], batch.columns["slice"].astype(np.uint16))


def _filled(numbers: npt.NDArray[Any], count: int) -> npt.NDArray[np.uint16]:
    return np.full(count, numbers[0], np.uint16) if len(numbers) != count else numbers.astype(np.uint16)


class Unstored(Sequence[Product]):
    """The products of payloads and their columns, made one by one."""

    def __init__(self, payloads: Sequence[Any], columns: Columns) -> None:
        self._payloads, self._columns = payloads, columns

    def __len__(self) -> int:
        return len(self._payloads)

    @overload
    def __getitem__(self, place: int) -> Product: ...
    @overload
    def __getitem__(self, place: slice) -> list[Product]: ...
    def __getitem__(self, place: int | slice) -> Product | list[Product]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        columns = self._columns
        number = self._fact("slice", place, NO_SLICE)
        expiry = self._fact("expiry", place, 0)
        return MadeProduct(
            feed=columns.feed if isinstance(columns.feed, str) else columns.feed[place],
            ident=columns.ident if isinstance(columns.ident, str) else columns.ident[place],
            payload=memoryview(self._payloads[place]).cast("B"),
            sequence=0,
            signature=self._fact("signature", place, None) or b"",
            origin=self._fact("origin", place, ""),
            origin_sequence=int(self._fact("origin_sequence", place, 0)),
            previous=int(self._fact("previous", place, 0)) or None,
            created_ns=int(self._fact("created", place, 0)),
            inserted_ns=0,
            priority=int(self._fact("priority", place, PRIORITY_DEFAULT)),
            expiry_ns=int(expiry) or None if not isinstance(expiry, str) else None,
            slice=None if number == NO_SLICE else int(number),
            properties=decode_properties(self._fact("properties", place, b"")),
        )

    def _fact(self, name: str, place: int, default: Any) -> Any:
        value = self._columns.facts.get(name)
        if isinstance(value, list):
            return value[place]
        if isinstance(value, np.ndarray):
            return value[place if len(value) == len(self) else 0]
        return default if value is None else value


class _Stored(Sequence[Product]):
    """The products of a batch, as a Sequence with slices."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch)

    @overload
    def __getitem__(self, place: int) -> Product: ...
    @overload
    def __getitem__(self, place: slice) -> list[Product]: ...
    def __getitem__(self, place: int | slice) -> Product | list[Product]:
        if isinstance(place, slice):
            return [self._batch[each] for each in range(*place.indices(len(self)))]
        return self._batch[place]
