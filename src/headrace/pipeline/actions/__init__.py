"""Actions: what a rule does with its rows, each batch once in effect.

action.py        what the runner knows of an action: Performer, Context, Counts
journal.py       exactly once: the last batch that an action has done
prepared.py      rows with filled-in templates and contents, made in executors
file.py          [rule.file];    file_append.py appends to files, file_shared.py is for many rules at once
table.py         [rule.table];   table_staging.py, table_schema.py, table_home.py, table_delta.py;
                 table_care.py between batches: table_compaction.py, table_replaced.py, table_keep.py, and for Delta
                 table_delta_compaction.py, table_delta_keep.py, table_delta_commits.py, table_delta_statistics.py
publish.py       [rule.publish] and [rule.alert]
exec.py          [rule.exec], which runs program.py for each row
pipe.py          [rule.pipe], whose programs keep running: command_line.py, programs.py
dead_letters.py  rows that an action cannot process; dead_letter_files.py
disk.py          errors of the operating system, folders that are on disk
"""

from headrace.pipeline.actions.action import Context, Counts, Performer
from headrace.pipeline.actions.dead_letters import DeadLetters
from headrace.pipeline.actions.exec import ExecPerformer
from headrace.pipeline.actions.file import FilePerformer
from headrace.pipeline.actions.pipe import PipePerformer
from headrace.pipeline.actions.programs import Group
from headrace.pipeline.actions.publish import PublishPerformer
from headrace.pipeline.actions.table import TablePerformer
from headrace.pipeline.rules.rule import Action, AlertAction, ExecAction, FileAction, PipeAction, PublishAction
from headrace.selection import Selection

__all__ = ["Context", "Counts", "DeadLetters", "Performer", "performer"]


def performer(
    action: Action, name: str, select: Selection | None, letters: DeadLetters, group: Group | None = None
) -> Performer:
    """The performer of an action.

    name: identifies the action within its rule, the same after a restart ("file-0").
    select: the selection of the rule.
    letters: the table for rows that the action cannot process.
    group: for a pipe, the programs that it shares with other actions.
    """
    pattern = None if select is None else select.ident
    if isinstance(action, FileAction):
        return FilePerformer(action, name, pattern, letters)
    if isinstance(action, PublishAction | AlertAction):
        return PublishPerformer(action, name, select, letters)
    if isinstance(action, ExecAction):
        return ExecPerformer(action, name, pattern, letters)
    if isinstance(action, PipeAction):
        return PipePerformer(action, name, pattern, letters, group)
    return TablePerformer(action, name, letters)
