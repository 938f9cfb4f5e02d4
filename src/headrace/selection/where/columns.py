"""Fields: the names of an expression as columns over some products of a batch.

A Column has for each product the kind of its value and, by kind, the value itself: numbers and moments in one NumPy
array, texts in an Arrow array, truth values in another. Columns of one element stand for all products.

Properties lie in the records as blocks of entries (`headrace.product.properties`). All blocks are walked together, the
n-th entries of all products at once, so that the cost is a few NumPy operations per entry and none per product. A
malformed block gives no values.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.product.batch import Batch
from headrace.product.product import NO_SLICE
from headrace.selection.where.expression import FIELDS, Name

NULL, NUMBER, TEXT, TRUTH, MOMENT = range(5)
EXACT_MAX = 1 << 53  # whole numbers up to here are exact as floats too

Kinds = npt.NDArray[np.uint8]
Places = npt.NDArray[np.intp]

_INT, _FLOAT, _STR, _BOOL = 1, 2, 3, 4  # kinds in a block
_HEADER_BYTES = 4
_ROW_FIELDS = {
    "priority": "priority", "slice": "slice", "size": "payload_bytes", "sequence": "sequence",
    "origin_sequence": "origin_sequence", "created": "created_ns", "inserted": "inserted_ns", "expiry": "expires_ns",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """Values of some products; what `kinds` does not announce is not looked at."""

    kinds: Kinds
    numbers: Any = None  # int64, float64, or Python numbers where neither is exact
    texts: Any = None  # Arrow
    truths: Any = None

    @property
    def is_true(self) -> npt.NDArray[np.bool_]:
        return (self.kinds == TRUTH) & self.truths if self.truths is not None else np.zeros(len(self.kinds), np.bool_)


class Fields:
    """Columns over the products at `places` of a batch, made when they are asked for."""

    def __init__(self, batch: Batch, places: Places) -> None:
        self._batch = batch
        self.places = places
        self._columns: dict[Name, Column] = {}

    def __len__(self) -> int:
        return len(self.places)

    def column(self, name: Name) -> Column:
        if name not in self._columns:
            self._columns[name] = self._field(name.name) if name.is_field else self._blocks.column(name.name)
        return self._columns[name]

    def _field(self, name: str) -> Column:
        if FIELDS[name] == "text":
            texts = self._batch.ident_column() if name == "ident" else self._batch.name_column(name)
            return Column(np.full(len(self), TEXT, np.uint8), texts=texts.take(pa.array(self.places)))
        numbers = self._batch.columns[_ROW_FIELDS[name]][self.places].astype(np.int64)
        kinds = np.full(len(self), MOMENT if FIELDS[name] == "moment" else NUMBER, np.uint8)
        if name == "slice":
            kinds[numbers == NO_SLICE] = NULL
        elif name == "expiry":
            kinds[numbers == 0] = NULL
        return Column(kinds, numbers=numbers)

    @cached_property
    def _blocks(self) -> "_Blocks":
        return _Blocks([self._batch.property_block(place) for place in self.places.tolist()])


class _Blocks:
    """Property blocks of many products, one behind the other."""

    def __init__(self, blocks: list[bytes]) -> None:
        self._data = b"".join(blocks)
        self._bytes = np.frombuffer(self._data + bytes(_HEADER_BYTES + 255 + 8), np.uint8)
        ends = np.cumsum([len(block) for block in blocks], dtype=np.int64)
        self._ends = ends
        self._starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(blocks) else ends

    def column(self, name: str) -> Column:
        kinds, values, lengths = self._find(name.encode("utf-8", "replace"))
        found = np.full(len(kinds), NULL, np.uint8)
        numbers = self._numbers(kinds, values, lengths, found)
        texts = self._texts(kinds, values, lengths, found)
        is_bool = (kinds == _BOOL) & (lengths == 1)
        found[is_bool] = TRUTH
        truths = self._bytes[values] != 0 if is_bool.any() else None
        return Column(found, numbers, texts, truths)

    def _find(self, name: bytes) -> tuple[Kinds, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Kind (0 = none), place and length of the value of each product's entry of that name."""
        count = len(self._ends)
        kinds, values, lengths = np.zeros(count, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64)
        wanted = np.frombuffer(name, np.uint8)
        active = np.flatnonzero(self._starts < self._ends)
        places = self._starts[active]
        while len(active):
            name_bytes = self._bytes[places + 1].astype(np.int64)
            value_bytes = self._bytes[places + 2].astype(np.int64) | self._bytes[places + 3].astype(np.int64) << 8
            after = places + _HEADER_BYTES + name_bytes
            hit = (name_bytes == len(name)) & (after + value_bytes <= self._ends[active])
            if hit.any():
                there = self._bytes[places[hit, None] + _HEADER_BYTES + np.arange(len(name))]
                hit[hit] = (there == wanted).all(axis=1)
                kinds[active[hit]] = self._bytes[places[hit]]
                values[active[hit]], lengths[active[hit]] = after[hit], value_bytes[hit]
            places = after + value_bytes
            going = ~hit & (places < self._ends[active])
            active, places = active[going], places[going]
        return kinds, values, lengths

    def _numbers(self, kinds: Kinds, values: Any, lengths: Any, found: Kinds) -> Any:
        is_int, is_float = (kinds == _INT) & (lengths == 8), (kinds == _FLOAT) & (lengths == 8)
        if not is_int.any() and not is_float.any():
            return None
        raw = np.ascontiguousarray(self._bytes[values[:, None] + np.arange(8)])
        whole, real = raw.view("<i8").ravel(), raw.view("<f8").ravel()
        is_float &= ~np.isnan(real)  # NaN is NULL
        found[is_int | is_float] = NUMBER
        if not is_float.any():
            return np.where(is_int, whole, 0)
        if not is_int.any():
            return np.where(is_float, real, 0.0)
        if magnitude(whole[is_int]) <= EXACT_MAX:
            return np.where(is_float, real, np.where(is_int, whole, 0))
        mixed = np.zeros(len(kinds), object)
        mixed[is_int], mixed[is_float] = whole[is_int].tolist(), real[is_float].tolist()
        return mixed

    def _texts(self, kinds: Kinds, values: Any, lengths: Any, found: Kinds) -> Any:
        is_text = kinds == _STR
        if not is_text.any():
            return None
        found[is_text] = TEXT
        data = self._data
        spans = zip(is_text.tolist(), values.tolist(), (values + lengths).tolist(), strict=True)
        return pa.array(
            [data[begin:end].decode("utf-8", "replace") if text else None for text, begin, end in spans], pa.string()
        )


def magnitude(numbers: npt.NDArray[np.int64]) -> int:
    """The largest distance from zero."""
    return max(int(numbers.max()), -int(numbers.min())) if numbers.size else 0
