"""Exec: runs a program for each row, with the content of the row as its standard input. At least once.

A program has failed if it ends with a status other than 0, is killed, or runs longer than its timeout. It is retried
after a pause that doubles; then the row is a dead letter. A program that does not start is not retried.

A broken program must not hold up the stream. One that fails on many consecutive rows gets no retries, and one that
hangs on many gets no more rows of the batch, until it succeeds once.
"""

import time
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipeline.actions.action import Context, Counts
from headrace.pipeline.actions.dead_letters import DeadLetters, counted
from headrace.pipeline.actions.prepared import PreparedRow, Recipe, Sender, SentRow, prepared_batches, rows_in
from headrace.pipeline.actions.program import EndedError, HungError, Program, ProgramError, StartError
from headrace.pipeline.rules.rule import ExecAction

FAILURES_MAX = 3  # consecutive rows; then each row has one attempt
HANGS_MAX = 5  # consecutive attempts; then the rest of the batch is not tried


def perform_programs(
    rows: Iterable[SentRow], performers: Iterable["ExecPerformer"], letters: DeadLetters, name: str, context: Context
) -> dict[Sender, Counts]:
    """Run a program for each row, in this order; return what became of the rows of each sender.

    name: of the file with the dead letters.
    """
    for each in performers:
        each.begin_batch()
    with letters.writing(context, name) as written:

        def run(sender: Sender, row: PreparedRow) -> bool:
            why = row.error or sender.performer.run(row)
            if why is not None:
                written.add(row, why)
            return why is None

        return counted(rows, written, run)


class ExecPerformer:
    """[rule.exec]."""

    def __init__(self, action: ExecAction, name: str, pattern: str | None, letters: DeadLetters) -> None:
        self._action = action
        self.name = name
        self._letters = letters
        self._failures = 0  # consecutive rows
        self._hangs = 0
        self.recipe = Recipe.of_command(action, pattern)

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        self.recipe.check(frame.columns)
        return self.perform_batches(prepared_batches(frame, self.recipe), context)

    def perform_batches(self, batches: Iterable[pa.RecordBatch], context: Context) -> Counts:
        """As `perform`, with prepared rows."""
        sender = Sender(context.rule, self.name, self)
        rows = ((sender, row) for row in rows_in(batches))
        return perform_programs(rows, [self], self._letters, self.name, context).get(sender, Counts())

    def begin_batch(self) -> None:
        self._hangs = 0

    def close(self) -> None:
        """Nothing to end: no program outlives its row."""

    def run(self, row: PreparedRow) -> str | None:
        """Run the program until it succeeds. Return why it did not, or None."""
        if self._hangs >= HANGS_MAX:
            return f"not tried: the program has timed out {HANGS_MAX} times in a row"
        tries = self._action.tries if self._failures < FAILURES_MAX else 1
        pause_s, why = self._action.pause_s, ""
        for number in range(tries):
            if number:
                time.sleep(pause_s)
                pause_s *= 2
            try:
                self._run_once(row)
            except StartError as error:
                why = str(error)
                break
            except ProgramError as error:
                why = f"{row.texts[0]}: {error}"
                self._hangs = self._hangs + 1 if isinstance(error, HungError) else 0
                if self._hangs >= HANGS_MAX:
                    break
            else:
                self._failures = self._hangs = 0
                return None
        self._failures += 1
        return why

    def _run_once(self, row: PreparedRow) -> None:
        end = time.monotonic() + self._action.timeout_s
        program = Program(row.texts, self._action.folder)
        try:
            with suppress(EndedError):  # a program may ignore its input; its status decides
                program.give(row.content, self._action.timeout_s)
            program.close_input()
            try:
                status = program.wait(end - time.monotonic())
            except HungError:
                raise HungError(f"it was still running after {self._action.timeout_s:g} s") from None
            if status != 0:
                raise EndedError(program.end_text())
        finally:
            program.kill()
