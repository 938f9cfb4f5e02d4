"""Rows of a shared query by action: matched and prepared in executors, piled up on the driver.

    products ──Sorter (executors)──► messages: action, prepared rows ──► Pile ──► rows of some actions, by product

A message has rows of one Arrow batch of the source for one action, and the messages of a batch come in the order of the
actions. So a pile is a sequence of rounds, one for each Arrow batch, and rows of several actions are merged by product
round by round: a whole batch need not fit into memory.
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipeline.actions.prepared import (
    PreparedRow,
    Recipe,
    message_of,
    parts_of_message,
    prepared_parts,
    rows_in,
)
from headrace.pipeline.run.matching import selecting

_MESSAGES = "action int, message binary"

NumberedRow = tuple[int, PreparedRow]  # a row, and the number of its action
Spots = dict[int, list[tuple[int, int]]]  # by action: begin and size of messages


class Pile:
    """The prepared rows of a batch, in a file: they may not fit into memory."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._rounds: list[Spots] = []
        self._last = -1  # the action of the last message
        self._end = 0

    def add(self, number: int, message: bytes) -> None:
        if number < self._last or not self._rounds:
            self._rounds.append({})
        self._file.write(message)
        self._rounds[-1].setdefault(number, []).append((self._end, len(message)))
        self._last = number
        self._end += len(message)

    def numbers(self) -> list[int]:
        """The actions that have rows."""
        return sorted({number for spots in self._rounds for number in spots})

    def rows(self, numbers: Collection[int]) -> Iterator[NumberedRow]:
        """The rows of these actions in the order of their products; of one product, in the order of the actions."""
        for spots in self._rounds:
            yield from heapq.merge(
                *(self._rows(number, spots[number]) for number in sorted(numbers) if number in spots),
                key=lambda each: (each[1].sequence or 0, each[0]),
            )

    def _rows(self, number: int, spots: list[tuple[int, int]]) -> Iterator[NumberedRow]:
        for begin, size in spots:
            self._file.seek(begin)
            for row in rows_in(parts_of_message(self._file.read(size))):
                yield number, row


@dataclass(frozen=True, slots=True)
class Sorter:
    """Which rules select a row, and how the row is prepared for their actions. It is sent to executors.

    Rules are numbered in the order of the file. `selections` also has the rules above one with `otherwise`.
    """

    selections: tuple[tuple[int, str], ...]  # by rule
    recipes: tuple[tuple[int, Recipe], ...]  # of the actions, each with the number of its rule
    otherwise: frozenset[int] = frozenset()  # rules that take a row only if no rule with a lower number selects it

    def __call__(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        places = self._places(rows)
        for number, (rule, recipe) in enumerate(self.recipes):
            if rule in places:
                yield number, recipe(rows.take(pa.array(places[rule], pa.int32())))

    def _places(self, rows: pa.RecordBatch) -> dict[int, list[int]]:
        """The rows of each rule that has any."""
        places = defaultdict[int, list[int]](list)
        for place, rules in enumerate(selecting(rows, self.selections)):
            for rule in rules:
                if rule not in self.otherwise or rule == min(rules):
                    places[rule].append(place)
        return places


def sorted_messages(frame: DataFrame, sorter: Sorter) -> Iterator[tuple[int, bytes]]:
    """Prepared rows as messages, each with the number of its action, in the order of the rows."""
    messages = frame.mapInArrow(partial(_sorted, sorter), _MESSAGES)
    for row in messages.rdd.toLocalIterator(prefetchPartitions=True):  # by the RDD: see `prepared_batches`
        yield row.action, bytes(row.message)


def _sorted(sorter: Sorter, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in executors."""
    for batch in batches:
        for number, prepared in sorter(batch):
            messages = [message_of(part) for part in prepared_parts(prepared)]
            numbers = pa.array([number] * len(messages), pa.int32())
            yield pa.RecordBatch.from_arrays([numbers, pa.array(messages, pa.binary())], ["action", "message"])
