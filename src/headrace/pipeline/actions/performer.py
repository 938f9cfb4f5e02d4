"""The performer of an action, by the struct that a rule has for it."""

from headrace.pipeline.actions.action import Performer
from headrace.pipeline.actions.alert import AlertPerformer
from headrace.pipeline.actions.dead_letters import DeadLetters
from headrace.pipeline.actions.exec import ExecPerformer
from headrace.pipeline.actions.file import FilePerformer
from headrace.pipeline.actions.pipe import PipePerformer
from headrace.pipeline.actions.publish import PublishPerformer
from headrace.pipeline.actions.table import TablePerformer
from headrace.pipeline.rules.rule import Action, AlertAction, ExecAction, FileAction, PipeAction, PublishAction
from headrace.selection import Selection


def performer(action: Action, name: str, select: Selection | None, letters: DeadLetters) -> Performer:
    """`name` is the action's own within its rule and stays the same over restarts ("file-0"), `select` the rule's
    selection, `letters` the table for rows that cannot be dealt with.
    """
    pattern = None if select is None else select.ident
    if isinstance(action, FileAction):
        return FilePerformer(action, name, pattern, letters)
    if isinstance(action, PublishAction):
        return PublishPerformer(action, name, select, letters)
    if isinstance(action, AlertAction):
        return AlertPerformer(action, name, select, letters)
    if isinstance(action, ExecAction):
        return ExecPerformer(action, name, pattern, letters)
    if isinstance(action, PipeAction):
        return PipePerformer(action, name, pattern, letters)
    return TablePerformer(action, name, letters)
