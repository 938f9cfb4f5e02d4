"""Micro-batches: what the driver does with each batch of a rule, and why every row is handled once.

    Spark: offsets/N ─► flushed ─► errors: dead letters ─► SQL ─► actions, one after the other ─► Spark: commits/N

Spark repeats a batch with the same number until it has recorded its end. Actions recognise a repeated batch by that
number. Therefore Spark's entry for the batch is flushed before anything is done with it: after a power failure the
number must not stand for other products.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from headrace.pipeline.actions import Context, Counts, DeadLetters, Performer
from headrace.pipeline.actions.dead_letters import add_causes
from headrace.pipeline.decoders.decoder import ERROR, PAYLOAD
from headrace.pipeline.rules.rule import Rule
from headrace.pipeline.rules.views import DECODED, PRODUCTS
from headrace.pipeline.run.checkpoint import flush_entries
from headrace.pipeline.run.status import RuleStatus
from headrace.pipeline.source.open_queues import QueueAddress

READ = "read"  # what dead letters have as their action if no action and no decoder got the product

log = logging.getLogger("headrace.pipeline")


class BatchHandler:
    """Handles the batches of one rule; its methods are passed to `foreachBatch`.

    query: the name of the query that the rule runs in. state: the folder for the journals of its actions.
    """

    def __init__(
        self, rule: Rule, query: str, pipeline: str, address: QueueAddress, checkpoint: Path, status: RuleStatus,
        actions: list[Performer], letters: DeadLetters, state: Path,
    ) -> None:  # fmt: skip
        self.rule, self._pipeline, self._address, self._checkpoint = rule, pipeline, address, checkpoint
        self.status, self.actions, self._letters = status, actions, letters
        self._is_shared = query != rule.name
        self._state = state
        self._counted: dict[str, int] = {}  # the last batch

    def handle(self, frame: DataFrame, batch_id: int) -> None:
        """Handle rows and errors together: products that could not be decoded, and fragments."""
        if not self._is_shared:
            flush_entries(self._checkpoint / self.rule.name, batch_id)
        is_held = self._is_shared and self.rule.decode is None  # by the query
        frame = frame if is_held else frame.persist()
        try:
            errors = self._write_dead_letters(frame.filter(f"{ERROR} is not null"), batch_id)
            rows = decoded_rows(frame)
            self._act(rows if self.rule.sql is None else queried(rows, self.rule), batch_id)
            self.count_errors(errors, batch_id)
        finally:
            if not is_held:
                frame.unpersist()

    def handle_rows(self, rows: DataFrame, batch_id: int) -> None:
        """Handle rows of a stream that contains the rule's SQL, with state."""
        flush_entries(self._checkpoint / self.rule.name, batch_id)
        rows = rows.persist()
        try:
            rows.count()  # Spark fails a batch whose state was not read, and an action reads nothing if it is done
            self._act(rows, batch_id)
        finally:
            rows.unpersist()

    def handle_errors(self, errors: DataFrame, batch_id: int) -> None:
        """Handle products of such a stream that are refused."""
        flush_entries(self._checkpoint / errors_name(self.rule), batch_id)
        self.count_errors(self._write_dead_letters(errors, batch_id), batch_id)

    def _act(self, rows: DataFrame, batch_id: int) -> None:
        shared = len(self.actions) > 1
        if shared:
            rows = rows.persist()
        try:
            counts = [action.perform(rows, self.context(batch_id)) for action in self.actions]
        finally:
            if shared:
                rows.unpersist()
        self.count(counts, batch_id)

    def count(self, counts: Sequence[Counts], batch_id: int) -> None:
        """Add what became of a batch, by action, to the status."""
        self.status.removed += sum(each.removed for each in counts)
        if self._is_first("rows", batch_id):
            self.status.rows += counts[0].rows
            self.status.failed += sum(each.failed for each in counts)
            self.status.batches += 1

    def _write_dead_letters(self, errors: DataFrame, batch_id: int) -> Counts:
        """Write dead letters; return their number, and how many by cause."""
        letters = errors.selectExpr("sequence", "feed", "ident", f"{PAYLOAD} as payload", f"{ERROR} as error")
        return self._letters.perform(letters, self.context(batch_id))

    def count_errors(self, counts: Counts, batch_id: int) -> None:
        """Add the products of a batch that no action got, by cause, to the status."""
        if not self._is_first("errors", batch_id):
            return
        self.status.errors += counts.failed
        causes = dict(self.status.causes)
        for cause in add_causes(causes, counts.causes):
            who = "the rule" if self.rule.decode is None else "the decoder"
            log.warning(
                "rule %s: %s refuses products, which become dead letters: %s (%d so far)",
                self.rule.name, who, cause, causes[cause],
            )  # fmt: skip
        self.status.causes = causes  # replaced, never changed: another thread writes the status

    def _is_first(self, what: str, batch_id: int) -> bool:
        """Whether the batch was not counted yet: one whose end Spark could not record comes again."""
        is_first = batch_id > self._counted.get(what, -1)
        self._counted[what] = batch_id
        return is_first

    def context(self, batch_id: int) -> Context:
        return Context(self.rule.name, batch_id, self._address, self._state, self._pipeline)


def errors_name(rule: Rule) -> str:
    """The name of the query that writes dead letters, where a rule has two; names of rules contain no dot."""
    return f"{rule.name}.errors"


def decoded_rows(frame: DataFrame) -> DataFrame:
    """The rows without a decoding error."""
    return frame.filter(f"{ERROR} is null").drop(ERROR, PAYLOAD)


def queried(rows: DataFrame, rule: Rule) -> DataFrame:
    """The result of the rule's SQL on these rows."""
    rows.createOrReplaceTempView(PRODUCTS if rule.decode is None else DECODED)
    return rows.sparkSession.sql(rule.sql or "")
