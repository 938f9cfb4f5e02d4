"""Actions: what is done with the rows of a rule. `performer` makes what does it."""

from headrace.pipeline.actions.action import Context, Counts, Performer
from headrace.pipeline.actions.dead_letters import DeadLetters
from headrace.pipeline.actions.performer import performer

__all__ = ["Context", "Counts", "DeadLetters", "Performer", "performer"]
