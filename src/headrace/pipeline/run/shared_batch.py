"""Micro-batches of a query that rules share, on the driver.

    plain      products ──matched against all rules, prepared (executors)──► pile ──► each action that has rows;
               those that write to files in one folder, or share programs, get their rows together, by product
    selected   products, kept ──► decode, SQL and actions of one rule after the other

If a rule fails, the others of its query still handle the batch. Then the query fails, and Spark repeats the batch;
rules that have done it do not do it again. So a rule that cannot write holds up the other rules of its query, and none
of them skips or repeats a row.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from pyspark.sql import DataFrame

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions import Context, Counts, DeadLetters
from headrace.pipeline.actions.disk import disk_error
from headrace.pipeline.actions.exec import ExecPerformer, perform_programs
from headrace.pipeline.actions.file import FilePerformer
from headrace.pipeline.actions.file_shared import SharedAppend, SharedPlacing
from headrace.pipeline.actions.pipe import PipePerformer, perform_pipes
from headrace.pipeline.actions.prepared import Sender
from headrace.pipeline.decoders.decoder import NO_PRODUCT
from headrace.pipeline.rules.rule import Rule
from headrace.pipeline.run.checkpoint import flush_entries
from headrace.pipeline.run.micro_batch import READ, BatchHandler
from headrace.pipeline.run.pile import FRAGMENTS, Message, Pile, Sorter, refused_rows, sorted_messages
from headrace.units import format_count

Plain = FilePerformer | ExecPerformer | PipePerformer  # performers of a plain rule


class PlainHandler:
    """Handles the batches of a plain query."""

    def __init__(
        self, entries: Path, handlers: Sequence[BatchHandler], letters: DeadLetters, rules: Sequence[Rule]
    ) -> None:
        """rules: all enabled rules of the file, in its order."""
        self._entries, self._letters = entries, letters
        actions = [(handler, action) for handler in handlers for action in _plain(handler)]
        self._senders = [Sender(handler.rule.name, action.name, action) for handler, action in actions]  # by number
        self._handlers = [handler for handler, _ in actions]
        self._sorter = _sorter([handler.rule for handler in handlers], self._senders, rules)
        numbers = {form: number for number, form in enumerate(self._sorter.forms)}
        self._forms = [numbers[recipe.form] for _, recipe in self._sorter.recipes]  # by action
        places = {rule.name: place for place, rule in enumerate(rules)}
        self._members = {places[handler.rule.name]: handler for handler in handlers}  # by number of the rule
        self._done = Done()

    def handle(self, frame: DataFrame, batch_id: int) -> None:
        flush_entries(self._entries, batch_id)
        done, failures = self._done.of(batch_id), Failures()
        try:
            with TemporaryFile(dir=self._entries) as file:
                pile = Pile(file, self._forms)
                refused = self._pile_up(sorted_messages(frame, self._sorter), pile, batch_id)
                for numbers in self._in_units(number for number in pile.numbers() if number not in done):
                    with failures.of(self._label(numbers)):
                        counts = self._perform(numbers, pile, batch_id)
                        done |= {number: counts.get(self._senders[number], Counts()) for number in numbers}
        except OSError as error:
            raise disk_error(error, self._entries) from error
        failures.report()
        self._count(done, batch_id)
        for number, count in refused.items():
            self._members[number].count_errors(Counts(failed=count, causes={NO_PRODUCT: count}), batch_id)

    def _pile_up(self, messages: Iterable[Message], pile: Pile, batch_id: int) -> Counter[int]:
        """Pile the rows up. Fragments become dead letters instead; return their number by rule."""
        refused = Counter[int]()
        with self._letters.writing(self._context(batch_id), READ) as letters:
            for kind, message in messages:
                if kind != FRAGMENTS:
                    pile.add(kind, message)
                    continue
                for number, row in refused_rows(message):
                    letters.rule = self._members[number].rule.name
                    letters.add(row, NO_PRODUCT)
                    refused[number] += 1
        return refused

    def _context(self, batch_id: int) -> Context:
        return replace(self._handlers[0].context(batch_id), rule=self._entries.name)

    def _in_units(self, numbers: Iterable[int]) -> Iterator[list[int]]:
        """Actions that are done together, because they may write to the same files or programs."""
        units: dict[Hashable, list[int]] = {}
        for number in numbers:
            units.setdefault(_unit_of(self._senders[number].performer), []).append(number)
        yield from units.values()

    def _perform(self, numbers: list[int], pile: Pile, batch_id: int) -> Mapping[Sender, Counts]:
        """Perform the actions of a unit."""
        rows = ((self._senders[number], row) for number, row in pile.rows(numbers))
        context = self._context(batch_id)
        first = self._senders[numbers[0]].performer
        if isinstance(first, FilePerformer):
            shared = SharedAppend if first.appends else SharedPlacing
            return shared(first.folder, self._letters).perform(rows, context)
        if isinstance(first, PipePerformer):
            return perform_pipes(rows, first.group, self._letters, f"pipe-{first.group.name}", context)
        performers = [self._senders[number].performer for number in numbers]
        return perform_programs(rows, performers, self._letters, "exec", context)

    def _label(self, numbers: list[int]) -> str:
        first = self._senders[numbers[0]]
        what = "of the same folder" if isinstance(first.performer, FilePerformer) else "that run programs"
        others = "" if len(numbers) == 1 else f" and {format_count(len(numbers) - 1, 'action')} {what}"
        return f"rule {first.rule!r}{others}"

    def _count(self, done: Mapping[int, Counts], batch_id: int) -> None:
        counts: dict[BatchHandler, list[Counts]] = defaultdict(list)
        for number in sorted(done):
            counts[self._handlers[number]].append(done[number])
        for handler, each in counts.items():
            handler.count(each, batch_id)


def _sorter(members: Sequence[Rule], senders: Sequence[Sender], rules: Sequence[Rule]) -> Sorter:
    """For the rules of a query, and those above one with `otherwise`."""
    places = {rule.name: place for place, rule in enumerate(rules)}
    otherwise = frozenset(places[rule.name] for rule in members if rule.otherwise)
    names = {rule.name for rule in members} | {rule.name for rule in rules[: max(otherwise, default=0)]}
    selections = tuple((place, str(rule.select)) for place, rule in enumerate(rules) if rule.name in names)
    return Sorter(selections, tuple((places[each.rule], each.performer.recipe) for each in senders), otherwise)


def _plain(handler: BatchHandler) -> list[Plain]:
    return [action for action in handler.actions if isinstance(action, Plain)]


def _unit_of(performer: Plain) -> Hashable:
    if isinstance(performer, FilePerformer):
        return performer.folder, performer.appends
    return performer.group if isinstance(performer, PipePerformer) else ExecPerformer


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
