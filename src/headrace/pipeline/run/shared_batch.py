"""Micro-batches of a query that rules share, on the driver.

    plain      products ──matched against all rules, prepared (executors)──► pile ──► each action that has rows;
               appends to files in one folder are one action (actions/file_shared.py)
    selected   products, kept ──► decode, SQL and actions of one rule after the other

If a rule fails, the others of its query still handle the batch. Then the query fails, and Spark repeats the batch;
rules that have done it do not do it again. So a rule that cannot write holds up the other rules of its query, and none
of them skips or repeats a row.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions import Counts, DeadLetters
from headrace.pipeline.actions.disk import disk_error
from headrace.pipeline.actions.file_shared import SharedAppend
from headrace.pipeline.actions.prepared import Recipe, message_of, parts_of_message, prepared_parts
from headrace.pipeline.run.checkpoint import flush_entries
from headrace.pipeline.run.micro_batch import BatchHandler
from headrace.product.product import Product
from headrace.selection import Selection
from headrace.selection.table.table import SubscriptionTable
from headrace.units import format_count

_UNINDEXED_MAX = 100_000  # rules are the operator's own, so none is refused
_MESSAGES = "action int, message binary"


class SharedAction(NamedTuple):
    """An action of one of the rules."""

    handler: BatchHandler  # of its rule
    place: int  # among the actions of its rule
    recipe: Recipe
    folder: Path | None  # that it appends to files in


class PlainHandler:
    """Handles the batches of a plain query."""

    def __init__(self, entries: Path, handlers: Sequence[BatchHandler], letters: DeadLetters) -> None:
        self._entries = entries
        self._actions = [
            SharedAction(handler, place, action.recipe, getattr(action, "appends_to", None))
            for handler in handlers
            for place, action in enumerate(handler.prepared())
        ]
        folders = {action.folder for action in self._actions if action.folder is not None}
        self._appends = {folder: SharedAppend(folder, letters) for folder in folders}
        numbers = {id(handler): number for number, handler in enumerate(handlers)}
        recipes = tuple((numbers[id(action.handler)], action.recipe) for action in self._actions)
        self._sorter = Sorter(tuple(str(handler.rule.select) for handler in handlers), recipes)
        self._done = Done()

    def handle(self, frame: DataFrame, batch_id: int) -> None:
        flush_entries(self._entries, batch_id)
        done, failures = self._done.of(batch_id), Failures()
        try:
            with TemporaryFile(dir=self._entries) as file:
                pile = Pile(file)
                for number, message in sorted_messages(frame, self._sorter):
                    pile.add(number, message)
                for numbers in self._in_units(number for number in pile.numbers() if number not in done):
                    with failures.of(self._label(numbers)):
                        done.update(zip(numbers, self._perform(numbers, pile, batch_id), strict=True))
        except OSError as error:
            raise disk_error(error, self._entries) from error
        failures.report()
        self._count(done, batch_id)

    def _in_units(self, numbers: Iterable[int]) -> Iterator[list[int]]:
        """Actions that are done together: all that append to files in one folder; every other one by itself."""
        units: dict[Path | int, list[int]] = {}
        for number in numbers:
            units.setdefault(self._actions[number].folder or number, []).append(number)
        yield from units.values()

    def _perform(self, numbers: list[int], pile: "Pile", batch_id: int) -> list[Counts]:
        first = self._actions[numbers[0]]
        if first.folder is None:
            return [first.handler.perform(first.place, pile.batches(numbers[0]), batch_id)]
        rows = [(self._actions[number].handler.rule.name, pile.batches(number)) for number in numbers]
        context = replace(first.handler.context(batch_id), rule=self._entries.name)
        return self._appends[first.folder].perform(rows, context)

    def _label(self, numbers: list[int]) -> str:
        name = f"rule {self._actions[numbers[0]].handler.rule.name!r}"
        return (
            name if len(numbers) == 1 else f"{name} and {format_count(len(numbers) - 1, 'action')} of the same folder"
        )

    def _count(self, done: Mapping[int, Counts], batch_id: int) -> None:
        counts: dict[BatchHandler, list[Counts]] = defaultdict(list)
        for number in sorted(done):
            counts[self._actions[number].handler].append(done[number])
        for handler, each in counts.items():
            handler.count(each, batch_id)


class SelectedHandler:
    """Handles the batches of rules with the same selection."""

    def __init__(
        self, entries: Path, handlers: Sequence[BatchHandler], rows_of: Callable[[DataFrame, BatchHandler], DataFrame]
    ) -> None:
        self._entries, self._handlers, self._rows_of = entries, handlers, rows_of
        self._done = Done()

    def handle(self, frame: DataFrame, batch_id: int) -> None:
        flush_entries(self._entries, batch_id)
        done, failures = self._done.of(batch_id), Failures()
        frame = frame.persist()
        try:
            for number, handler in enumerate(self._handlers):
                with failures.of(f"rule {handler.rule.name!r}"):
                    if number not in done:
                        handler.handle(self._rows_of(frame, handler), batch_id)
                        done[number] = Counts()
        finally:
            frame.unpersist()
        failures.report()


class Done:
    """What has been done of the batch under way, by number, in this process."""

    def __init__(self) -> None:
        self._batch_id = -1
        self._counts: dict[int, Counts] = {}

    def of(self, batch_id: int) -> dict[int, Counts]:
        if batch_id != self._batch_id:
            self._batch_id, self._counts = batch_id, {}
        return self._counts


class Failures:
    """The failures of rules in one batch: collected, and raised when all rules had their turn."""

    def __init__(self) -> None:
        self._found: dict[str, PipelineError] = {}
        self._label = ""

    def of(self, label: str) -> "Failures":
        """For a `with` block that may raise PipelineError; the label says whose failure it is."""
        self._label = label
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, PipelineError):
            self._found[self._label] = error
            return True
        return False

    def report(self) -> None:
        """Raise the failure of a rule; a permanent one first. TargetError, PipelineError."""
        if not self._found:
            return
        label, error = min(self._found.items(), key=lambda each: isinstance(each[1], TargetError))
        raise type(error)(f"{label}: {error.problem}", error.hint) from error


# --- rows by action ---------------------------------------------------------------------------------


class Pile:
    """The prepared rows of a batch by action, in a file: they may not fit into memory."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._spots: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._end = 0

    def add(self, number: int, message: bytes) -> None:
        self._file.write(message)
        self._spots[number].append((self._end, len(message)))
        self._end += len(message)

    def numbers(self) -> list[int]:
        return sorted(self._spots)

    def batches(self, number: int) -> Iterator[pa.RecordBatch]:
        for begin, size in self._spots[number]:
            self._file.seek(begin)
            yield from parts_of_message(self._file.read(size))


@dataclass(frozen=True, slots=True)
class Sorter:
    """Which rules select a row, and how the row is prepared for their actions. It is sent to executors."""

    selections: tuple[str, ...]  # of the rules
    recipes: tuple[tuple[int, Recipe], ...]  # of the actions, each with the number of its rule

    def __call__(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        places = self._places(rows)
        for number, (rule, recipe) in enumerate(self.recipes):
            if rule in places:
                yield number, recipe(rows.take(pa.array(places[rule], pa.int32())))

    def _places(self, rows: pa.RecordBatch) -> dict[int, list[int]]:
        """The rows of each rule that has any."""
        table, places = _table(self.selections), defaultdict[int, list[int]](list)
        names = ("feed", "ident", "origin", "priority", "slice")
        columns = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
        for place, (feed, ident, origin, priority, slice_) in enumerate(columns):
            product = Product(feed, ident, _NOTHING, 0, b"", origin, 0, None, 0, 0, priority, None, slice_)
            for rule in table.matches(product):
                places[rule].append(place)  # type: ignore[index]  # keys are numbers of rules
        return places


_NOTHING = memoryview(b"")  # no selection of a plain rule looks at the payload


@lru_cache(4)  # a worker is used again for the next batch
def _table(selections: tuple[str, ...]) -> SubscriptionTable:
    table = SubscriptionTable(unindexed_max=_UNINDEXED_MAX)
    for number, select in enumerate(selections):
        table.add(number, Selection.parse(select) if select else Selection())
    return table


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
