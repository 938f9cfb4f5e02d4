"""Pipe: programs that keep running and read rows from standard input as they come. At least once.

Each distinct command line is a program of its own, started on first use and kept from batch to batch. Rules with the
same command line share its program, as entries of LDM's pqact do: two decoders would write to one output file at the
same time. Rows of rules that share a query come in the order of their products; rules with queries of their own take
turns, batch by batch. programs.py decides which actions share, and how many programs run.

    framing   none     contents one after the other
              lines    each content ends with a line feed
              length   each content is preceded by its length, 4 bytes, big-endian

A batch is done when every row has been read by its program to the last byte. command_line.py says what happens if a
program ends or hangs.
"""

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipeline.actions.action import Context, Counts
from headrace.pipeline.actions.command_line import Item
from headrace.pipeline.actions.dead_letters import DeadLetters
from headrace.pipeline.actions.prepared import Recipe, Sender, SentRow, prepared_batches, rows_in
from headrace.pipeline.actions.programs import Group, Programs
from headrace.pipeline.rules.rule import Framing, PipeAction


def framed(content: bytes, framing: Framing) -> bytes:
    if framing == "length":
        return len(content).to_bytes(4) + content
    return content if framing == "none" or content.endswith(b"\n") else content + b"\n"


class PipePerformer:
    """[rule.pipe]. group: the programs that it shares; by default, it has its own."""

    def __init__(
        self, action: PipeAction, name: str, pattern: str | None, letters: DeadLetters, group: Group | None = None
    ) -> None:
        self.action = action
        self.name = name
        self.group = group or Group(Programs(), name)
        self._letters = letters
        self.recipe = Recipe.of_command(action, pattern)

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        self.recipe.check(frame.columns)
        return self.perform_batches(prepared_batches(frame, self.recipe), context)

    def perform_batches(self, batches: Iterable[pa.RecordBatch], context: Context) -> Counts:
        """As `perform`, with prepared rows."""
        sender = Sender(context.rule, self.name, self)
        rows = ((sender, row) for row in rows_in(batches))
        return perform_pipes(rows, self.group, self._letters, self.name, context).get(sender, Counts())

    def close(self) -> None:
        """Close the input of every program of the pipeline, and wait for the end of each, at most for its timeout."""
        self.group.programs.close()


def perform_pipes(
    rows: Iterable[SentRow], group: Group, letters: DeadLetters, name: str, context: Context
) -> dict[Sender, Counts]:
    """Pass rows to the programs of a group, in this order; return what became of the rows of each sender.

    name: of the file with the dead letters.
    """
    given, failed = Counter[Sender](), Counter[tuple[str, str]]()
    with group.lock, letters.writing(context, name) as written:

        def refuse(item: Item, why: str) -> None:
            written.rule, written.action = item.rule, item.action
            written.add(item.row, why)
            failed[item.rule, item.action] += 1

        group.begin_batch()
        for sender, row in rows:
            given[sender] += 1
            action = sender.performer.action
            item = Item(row, framed(row.content, action.framing), sender.rule, sender.action, action)
            if row.error is not None:
                refuse(item, row.error)
            else:
                group.line(tuple(row.texts), action.folder, refuse).add(item, refuse)
        group.drain(refuse)
    return {
        sender: Counts(max(0, count - failed[sender.rule, sender.action]), failed=failed[sender.rule, sender.action])
        for sender, count in given.items()
    }
