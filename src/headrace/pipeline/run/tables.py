"""The tables of a pipeline that is not running: old rows are removed, and small files are merged.

A table has one writer, so the checkpoint is locked meanwhile: a pipeline that runs refuses this, and cannot start until
it is done. Dead letters have many writers and a lock of their own (actions/dead_letter_files.py).
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from headrace.errors import OptionError, PipelineError
from headrace.pipeline.actions.dead_letter_files import compact_letters
from headrace.pipeline.actions.table_care import TableCare
from headrace.pipeline.rules.rule import RuleFile, TableAction
from headrace.pipeline.run.checkpoint import locked_checkpoint

DEAD_LETTERS = "dead letters"


class TableReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a table."""

    rule: str
    path: str
    fewer_files: int = 0  # because small ones were merged
    removed_rows: int = 0  # because they were older than `keep`
    removed_files: int = 0
    failure: str = ""  # why the table stays as it was


def compact_tables(file: RuleFile, rules: Sequence[str], show: Callable[[str], None]) -> Iterator[TableReport]:
    """Care for the tables of these rules; without any, for all tables and the dead letters. A failure ends one table.

    show: called with the path of each table before it. OptionError: a rule is unknown, or has no table. PipelineError:
    the pipeline runs.
    """
    terms = file.pipeline
    assert terms.checkpoint is not None
    assert terms.tables is not None
    tables = [(rule.name, action) for rule in file.rules for action in rule.table if not rules or rule.name in rules]
    for name in rules:
        if name not in [rule for rule, _ in tables]:
            known = ", ".join(dict.fromkeys(rule.name for rule in file.rules if rule.table)) or "none"
            raise OptionError(f"{file.path} has no rule {name!r} with a table", f"rules with tables are: {known}")
    remedy = 'stop it first, or let it compact its tables itself: compact = "1h" in [rule.table]'
    with locked_checkpoint(terms.checkpoint, remedy):
        for rule, action in tables:
            if Path(action.path).is_dir():
                show(action.path)
                yield _cared(rule, action)
        letters = terms.tables / terms.dead_letters
        if not rules and letters.is_dir():
            show(str(letters))
            yield _compacted_letters(letters)


def _cared(rule: str, action: TableAction) -> TableReport:
    care = TableCare(action)
    try:
        removed = care.expire()
        fewer = care.compact()
    except PipelineError as error:
        return TableReport(rule=rule, path=action.path, failure=str(error))
    return TableReport(
        rule=rule, path=action.path, fewer_files=fewer, removed_rows=removed.rows, removed_files=removed.files
    )


def _compacted_letters(table: Path) -> TableReport:
    try:
        return TableReport(rule=DEAD_LETTERS, path=str(table), fewer_files=compact_letters(table))
    except PipelineError as error:
        return TableReport(rule=DEAD_LETTERS, path=str(table), failure=str(error))
