"""Alert: a product for each row on which a condition holds, with a message or the row as JSON. Once, like publish."""

from pyspark.sql import DataFrame

from headrace.pipeline.actions.action import Context, Counts
from headrace.pipeline.actions.dead_letters import DeadLetters
from headrace.pipeline.actions.publish import Publication, publish
from headrace.pipeline.rules.rule import JSON, AlertAction
from headrace.selection import Selection


class AlertPerformer:
    """[rule.alert]."""

    def __init__(self, action: AlertAction, name: str, select: Selection | None, letters: DeadLetters) -> None:
        self._when = action.when
        self._name = name
        self._letters = letters
        self._publication = Publication(action.feed, action.ident, action.message, JSON, select, action.priority)

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        rows = frame.filter(self._when)
        return publish(rows, self._publication, context.place, context, self._name, self._letters)

    def close(self) -> None:
        """Nothing is open."""
