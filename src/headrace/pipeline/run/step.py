"""Step: what happens to one micro-batch of a rule, on the driver.

    Spark: offsets/N ─► flushed ─► errors: dead letters ─► SQL ─► actions, one after the other ─► Spark: commits/N

A batch comes again with the same number until Spark has noted it. Actions know it by that, so what Spark says of the
batch is flushed before anything is done about it: after a loss of power the number must not stand for other products.
"""

from pathlib import Path

from pyspark.sql import DataFrame

from headrace.pipeline.actions import Context, DeadLetters, Performer
from headrace.pipeline.decoders.decoder import ERROR, PAYLOAD
from headrace.pipeline.rules.rule import Rule
from headrace.pipeline.rules.views import DECODED, PRODUCTS
from headrace.pipeline.run.notes import flush_notes
from headrace.pipeline.run.status import RuleStatus
from headrace.pipeline.source.options import Place


class Step:
    """The work of one rule. Its methods are for `foreachBatch`."""

    def __init__(
        self, rule: Rule, pipeline: str, place: Place, checkpoint: Path, status: RuleStatus, actions: list[Performer],
        letters: DeadLetters,
    ) -> None:  # fmt: skip
        self._rule, self._pipeline, self._place, self._checkpoint = rule, pipeline, place, checkpoint
        self._status, self._actions, self._letters = status, actions, letters
        self._counted: dict[str, int] = {}  # the last batch

    def take(self, frame: DataFrame, batch_id: int) -> None:
        """Rows and errors together."""
        flush_notes(self._checkpoint / self._rule.name, batch_id)
        if self._rule.decode is None:
            self._act(frame if self._rule.sql is None else queried(frame, self._rule), batch_id)
            return
        frame = frame.persist()
        try:
            errors = self._buried(frame.filter(f"{ERROR} is not null"), batch_id)
            rows = good(frame)
            self._act(rows if self._rule.sql is None else queried(rows, self._rule), batch_id)
            self._note_errors(errors, batch_id)
        finally:
            frame.unpersist()

    def take_rows(self, rows: DataFrame, batch_id: int) -> None:
        """Rows of a stream that has its SQL in it, with state."""
        flush_notes(self._checkpoint / self._rule.name, batch_id)
        rows = rows.persist()
        try:
            rows.count()  # Spark fails a batch whose state was not looked at; actions that have done it all do not
            self._act(rows, batch_id)
        finally:
            rows.unpersist()

    def take_errors(self, errors: DataFrame, batch_id: int) -> None:
        """Products of such a stream that could not be decoded."""
        flush_notes(self._checkpoint / errors_name(self._rule), batch_id)
        self._note_errors(self._buried(errors, batch_id), batch_id)

    def _act(self, rows: DataFrame, batch_id: int) -> None:
        shared = len(self._actions) > 1
        if shared:
            rows = rows.persist()
        try:
            counts = [action.perform(rows, self._context(batch_id)) for action in self._actions]
        finally:
            if shared:
                rows.unpersist()
        if self._is_first("rows", batch_id):
            self._status.rows += counts[0].rows
            self._status.failed += sum(each.failed for each in counts)
            self._status.batches += 1

    def _buried(self, errors: DataFrame, batch_id: int) -> int:
        told = errors.selectExpr("sequence", "feed", "ident", f"{PAYLOAD} as payload", f"{ERROR} as error")
        return self._letters.perform(told, self._context(batch_id)).failed

    def _note_errors(self, count: int, batch_id: int) -> None:
        self._status.errors += count if self._is_first("errors", batch_id) else 0

    def _is_first(self, what: str, batch_id: int) -> bool:
        """A batch that was done and could not be noted in the checkpoint comes again, and is counted once."""
        is_first = batch_id > self._counted.get(what, -1)
        self._counted[what] = batch_id
        return is_first

    def _context(self, batch_id: int) -> Context:
        return Context(
            self._rule.name, batch_id, self._place, self._checkpoint / "state" / self._rule.name, self._pipeline
        )


def errors_name(rule: Rule) -> str:
    """Of the query that makes dead letters, if there are two; no rule has a dot in its name."""
    return f"{rule.name}.errors"


def good(frame: DataFrame) -> DataFrame:
    """The rows that were decoded."""
    return frame.filter(f"{ERROR} is null").drop(ERROR, PAYLOAD)


def queried(rows: DataFrame, rule: Rule) -> DataFrame:
    """What the rule's SQL makes of them."""
    rows.createOrReplaceTempView(PRODUCTS if rule.decode is None else DECODED)
    return rows.sparkSession.sql(rule.sql or "")
