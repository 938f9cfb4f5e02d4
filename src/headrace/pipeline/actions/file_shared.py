"""Append of many rules to files below one folder, as one append.

Rules that share a query would otherwise each write a record, flush their files and mark a journal: with a thousand of
them, a batch would wait for the disk for a minute. Here a batch has one spool, one record, one flush and one journal
for each folder, whatever the number of rules. The guarantee is that of a single rule (file_append.py).

A row that is refused becomes a dead letter of its rule. If the disk refuses, the batch fails for all rules of the
folder.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from headrace.pipeline.actions.action import Context, Counts
from headrace.pipeline.actions.dead_letters import DeadLetters
from headrace.pipeline.actions.disk import disk_error, make_folder
from headrace.pipeline.actions.file import Targets, spool_rows
from headrace.pipeline.actions.file_append import Spool, append
from headrace.pipeline.actions.journal import Journal, digest


class SharedAppend:
    """All actions [rule.file] with mode "append" of a query and a folder."""

    def __init__(self, folder: Path, letters: DeadLetters) -> None:
        self._folder, self._letters = folder, letters
        self._name = f"append-{digest(str(folder))}"

    def perform(self, rows: Iterable[tuple[str, Iterable[pa.RecordBatch]]], context: Context) -> list[Counts]:
        """Append the prepared rows of each of these rules. Return what became of them, in the order of the rules.

        A batch that was done before is not done again; then the counts are zero.
        """
        journal = Journal(context.state / f"{self._name}.json", {"append": str(self._folder)})
        try:
            make_folder(self._folder)
            spool = Spool(context.state)
        except OSError as error:
            raise disk_error(error, error.filename or self._folder) from error
        try:
            if journal.done(context.batch_id) is not None:
                return [Counts() for _ in rows]
            counts, targets = list[Counts](), Targets(self._folder)
            with self._letters.writing(context, self._name) as letters:
                for rule, batches in rows:
                    before = letters.count
                    letters.rule = rule
                    spooled = spool_rows(batches, spool, targets, letters)
                    counts.append(Counts(spooled, failed=letters.count - before))
            total = Counts(sum(each.rows for each in counts), len(spool.pieces), letters.count)
            append(self._folder, spool, journal, context.batch_id, total)
            return counts
        finally:
            spool.close()
