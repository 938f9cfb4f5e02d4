"""Rows of a shared query by action: matched and prepared in executors, piled up on the driver.

    products ──Sorter (executors)──► messages ──► Pile (driver, on disk) ──► rows of some actions, by product

A product may be selected by a hundred rules. So its content is made, sent and kept once for each *form* (payload,
payload with metadata, …), whatever the number of actions that use it; each action adds its texts and a place.

    slice of products     at most 10,000 products and 16 MiB, or one product
      contents, form 0    content of every place that an action of this form has
      contents, form 1    …
      index               action, place, sequence, feed, ident, texts, error; by action
      end                 the slice is complete

Rows of several actions are merged by product, slice by slice: neither a batch nor a slice need fit into memory here.
"""

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.decoding import Decoder
from headrace.pipeline.actions.prepared import (
    ORIGIN,
    PreparedRow,
    Recipe,
    message_of,
    origin,
    parts_of_message,
    prepared_parts,
    with_valid_text,
)
from headrace.pipeline.decoders.decoder import NO_PRODUCT
from headrace.pipeline.run.decoding import parted
from headrace.pipeline.run.matching import selecting

SLICE_ROWS = 10_000
SLICE_BYTES = 16 << 20
INDEX, END, FRAGMENTS = -1, -2, -3  # kinds of messages; others are the numbers of forms

_MESSAGES = "kind int, message binary"
_CONTENTS = pa.schema({"place": pa.int32(), "content": pa.binary()})
_INDEX = pa.schema([
    pa.field("action", pa.int32()), pa.field("place", pa.int32()), *ORIGIN, pa.field("texts", pa.list_(pa.string())),
    pa.field("error", pa.string()),
])  # fmt: skip

_FRAGMENTS = pa.schema([pa.field("rule", pa.int32()), *ORIGIN, pa.field("payload", pa.binary())])

Message = tuple[int, bytes]  # kind, and a batch in Arrow's format
NumberedRow = tuple[int, PreparedRow]  # a row, and the number of its action
Spot = tuple[int, int]  # in the file: begin and size


@dataclass(frozen=True, slots=True)
class Sorter:
    """Which rules select a row, and how the row is prepared for their actions. It is sent to executors.

    Rules are numbered in the order of the file. `selections` also has the rules above one with `otherwise`.
    """

    selections: tuple[tuple[int, str], ...]  # by rule
    recipes: tuple[tuple[int, Recipe], ...]  # of the actions, each with the number of its rule
    otherwise: frozenset[int] = frozenset()  # rules that take a row only if no rule with a lower number selects it

    @property
    def forms(self) -> list[Recipe]:
        """The distinct forms of contents, by number."""
        return list(dict.fromkeys(recipe.form for _, recipe in self.recipes))

    def messages(self, rows: pa.RecordBatch) -> Iterator[Message]:
        """The messages of these rows, slice by slice. Fragments of something larger have messages of their own."""
        rows, fragments = parted(rows)
        if fragments.num_rows:
            yield from self._refused(with_valid_text(fragments))
        for part in _slices(rows):
            yield from self._slice(with_valid_text(part))

    def _slice(self, rows: pa.RecordBatch) -> Iterator[Message]:
        places, forms = self._places(rows), self.forms
        numbers = {form: number for number, form in enumerate(forms)}
        used: dict[int, set[int]] = {}  # places, by form
        index: list[pa.RecordBatch] = []
        for action, (rule, recipe) in enumerate(self.recipes):
            if rule in places:
                used.setdefault(numbers[recipe.form], set()).update(places[rule])
                index.append(_indexed(action, places[rule], rows, recipe))
        if not index:
            return
        for number, chosen in used.items():
            taken = pa.array(sorted(chosen), pa.int32())
            contents = forms[number].contents_of(rows.take(taken))
            batch = pa.RecordBatch.from_arrays([taken, contents], schema=_CONTENTS)
            yield from ((number, message_of(part)) for part in prepared_parts(batch))
        whole = pa.Table.from_batches(index).combine_chunks().to_batches()[0]
        yield from ((INDEX, message_of(part)) for part in prepared_parts(whole))
        yield END, b""

    def _refused(self, fragments: pa.RecordBatch) -> Iterator[Message]:
        """Fragments, for each rule that selects them: no action gets them."""
        own = {rule for rule, _ in self.recipes}
        for rule, places in self._places(fragments).items():
            if rule in own:
                chosen = fragments.take(pa.array(places, pa.int32()))
                number = pa.array(np.full(len(places), rule, np.int32))
                columns = [number, *origin(chosen), chosen.column("payload")]
                batch = pa.RecordBatch.from_arrays(columns, schema=_FRAGMENTS)
                yield from ((FRAGMENTS, message_of(part)) for part in prepared_parts(batch))

    def _places(self, rows: pa.RecordBatch) -> dict[int, list[int]]:
        """The rows of each rule that has any."""
        places: dict[int, list[int]] = {}
        for place, rules in enumerate(selecting(rows, self.selections)):
            for rule in rules:
                if rule not in self.otherwise or rule == min(rules):
                    places.setdefault(rule, []).append(place)
        return places


def _slices(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if rows.num_rows <= 1 or (rows.num_rows <= SLICE_ROWS and rows.nbytes <= SLICE_BYTES):
        yield rows
        return
    half = rows.num_rows // 2
    yield from _slices(rows.slice(0, half))
    yield from _slices(rows.slice(half))


def _indexed(action: int, places: list[int], rows: pa.RecordBatch, recipe: Recipe) -> pa.RecordBatch:
    taken = pa.array(places, pa.int32())
    chosen = rows.take(taken)
    texts, errors = recipe.texts_of(chosen)
    listed = pa.array([list(each) for each in zip(*texts, strict=True)], _INDEX.field("texts").type)
    number = pa.array(np.full(len(places), action, np.int32))
    return pa.RecordBatch.from_arrays([number, taken, *origin(chosen), listed, errors], schema=_INDEX)


# --- on the driver ----------------------------------------------------------------------------------

_Entry = tuple[int, int | None, str | None, str | None, list[str | None], str | None]  # place, origin, texts, error
_encode = msgspec.msgpack.Encoder().encode
_ENTRIES: Decoder[list[_Entry]] = Decoder(list[_Entry])


class _Slice:
    """Where the rows of a slice are in the file."""

    def __init__(self) -> None:
        self.contents: dict[int, dict[int, Spot]] = {}  # by form and place
        self.entries: dict[int, list[Spot]] = {}  # by action: lists of entries


class Pile:
    """The prepared rows of a batch, in a file. forms: of each action."""

    def __init__(self, file: Any, forms: list[int]) -> None:
        self._file, self._forms = file, forms
        self._slices: list[_Slice] = []
        self._is_open = False  # more messages of the last slice may come
        self._end = 0

    def add(self, kind: int, message: bytes) -> None:
        """Add the next message."""
        if not self._is_open:
            self._slices.append(_Slice())
        self._is_open = kind != END
        last = self._slices[-1]
        for batch in parts_of_message(message) if self._is_open else ():
            if kind == INDEX:
                self._add_entries(batch, last.entries)
            else:
                places, contents = (column.to_pylist() for column in batch.columns)
                spots = (self._write(content) for content in contents)
                last.contents.setdefault(kind, {}).update(zip(places, spots, strict=True))

    def _add_entries(self, batch: pa.RecordBatch, entries: dict[int, list[Spot]]) -> None:
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        for action, each in groupby(rows, itemgetter(0)):
            entries.setdefault(action, []).append(self._write(_encode([row[1:] for row in each])))

    def _write(self, data: bytes) -> Spot:
        self._file.write(data)
        spot = (self._end, len(data))
        self._end += len(data)
        return spot

    def _read(self, spot: Spot) -> bytes:
        self._file.seek(spot[0])
        data: bytes = self._file.read(spot[1])
        return data

    def numbers(self) -> list[int]:
        """The actions that have rows."""
        return sorted({action for each in self._slices for action in each.entries})

    def rows(self, numbers: Collection[int]) -> Iterator[NumberedRow]:
        """The rows of these actions in the order of their products; of one product, in the order of the actions."""
        for each in self._slices:
            actions = [number for number in sorted(numbers) if number in each.entries]
            merged = heapq.merge(*(self._entries(number, each.entries[number]) for number in actions))
            for place, number, (_, sequence, feed, ident, texts, error) in merged:
                content = self._read(each.contents[self._forms[number]][place])
                yield number, PreparedRow(texts, content, error, sequence, feed, ident)  # type: ignore[arg-type]

    def _entries(self, number: int, spots: list[Spot]) -> Iterator[tuple[int, int, _Entry]]:
        for spot in spots:
            for entry in _ENTRIES.decode(self._read(spot)):
                yield entry[0], number, entry


def refused_rows(message: bytes) -> Iterator[NumberedRow]:
    """The fragments in a message, each with the number of its rule."""
    for batch in parts_of_message(message):
        for rule, sequence, feed, ident, payload in zip(*(each.to_pylist() for each in batch.columns), strict=True):
            yield rule, PreparedRow([], payload, NO_PRODUCT, sequence, feed, ident)


def sorted_messages(frame: DataFrame, sorter: Sorter) -> Iterator[Message]:
    """The messages of a batch, in the order of its rows."""
    messages = frame.mapInArrow(partial(_sorted, sorter), _MESSAGES)
    for row in messages.rdd.toLocalIterator(prefetchPartitions=True):  # by the RDD: see `prepared_batches`
        yield row.kind, bytes(row.message)


def _sorted(sorter: Sorter, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in executors."""
    for batch in batches:
        for kind, message in sorter.messages(batch):
            yield pa.RecordBatch.from_arrays(
                [pa.array([kind], pa.int32()), pa.array([message], pa.binary())], ["kind", "message"]
            )
