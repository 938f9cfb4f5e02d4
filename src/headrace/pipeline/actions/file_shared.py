"""Files of many rules below one folder, as one action.

Rules that share a query may write to the same files. Their rows come in the order of the products, so that a file has
the bytes that it would have if the products had been handled one after the other, as by LDM's pqact.

`append`: rules would otherwise each write a record, flush their files and mark a journal: with a thousand of them, a
batch would wait for the disk for a minute. Here a batch has one spool, one record, one flush and one journal for each
folder, whatever the number of rules. The guarantee is that of a single rule (file_append.py).

`each` and `overwrite`: as for a single rule (file.py); of all rules, the last row wins.

A row that is refused becomes a dead letter of its rule. If the disk refuses, the batch fails for all rules of the
folder.
"""

from collections.abc import Iterable
from pathlib import Path

from headrace.pipeline.actions.action import Context, Counts
from headrace.pipeline.actions.dead_letters import DeadLetters, counted
from headrace.pipeline.actions.disk import disk_error, make_folder
from headrace.pipeline.actions.file import RefusedError, Targets, part_name, spool_row
from headrace.pipeline.actions.file_append import Spool, append
from headrace.pipeline.actions.journal import Journal, digest
from headrace.pipeline.actions.prepared import PreparedRow, Sender, SentRow


class SharedAppend:
    """All actions [rule.file] with mode "append" of a query and a folder."""

    def __init__(self, folder: Path, letters: DeadLetters) -> None:
        self._folder, self._letters = folder, letters
        self._name = f"append-{digest(str(folder))}"

    def perform(self, rows: Iterable[SentRow], context: Context) -> dict[Sender, Counts]:
        """Append rows in this order. A batch that was done before is not done again; then there are no counts."""
        journal = Journal(context.state / f"{self._name}.json", {"append": str(self._folder)})
        try:
            make_folder(self._folder)
            spool = Spool(context.state)
        except OSError as error:
            raise disk_error(error, error.filename or self._folder) from error
        try:
            if journal.done(context.batch_id) is not None:
                return {}
            targets = Targets(self._folder)
            with self._letters.writing(context, self._name) as letters:
                counts = counted(rows, letters, lambda _, row: spool_row(row, spool, targets, letters))
            total = Counts(sum(each.rows for each in counts.values()), len(spool.pieces), letters.count)
            append(self._folder, spool, journal, context.batch_id, total)
            return counts
        finally:
            spool.close()


class SharedPlacing:
    """All actions [rule.file] with mode "each" or "overwrite" of a query and a folder."""

    def __init__(self, folder: Path, letters: DeadLetters) -> None:
        self._folder, self._letters = folder, letters
        self._name = f"place-{digest(str(folder))}"

    def perform(self, rows: Iterable[SentRow], context: Context) -> dict[Sender, Counts]:
        """Write a file for each row, in this order."""
        try:
            make_folder(self._folder)
        except OSError as error:
            raise disk_error(error, self._folder, "created") from error
        targets, part = Targets(self._folder), part_name(context, self._name)
        with self._letters.writing(context, self._name) as letters:

            def put(sender: Sender, row: PreparedRow) -> bool:
                try:
                    sender.performer.put(row, targets, part)
                except RefusedError as error:
                    letters.add(row, str(error))
                    return False
                return True

            return counted(rows, letters, put)
