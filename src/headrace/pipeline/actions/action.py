"""What an action is to the runner: something that is given the rows of a micro-batch, and does its part with them.

Spark repeats a batch, with the same id and the same rows, if the process was killed before the batch was noted in the
checkpoint. A performer makes that once in effect; docs/actions.md says for each how, and which two cannot.

Where it runs: on the driver, inside `foreachBatch`, one batch of a rule at a time. A performer is made once and used
for every batch of its action."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame

from headrace.pipeline.source.open_queues import QueueAddress


@dataclass(frozen=True, slots=True)
class Context:
    """The batch, and whose it is."""

    rule: str
    batch_id: int
    place: QueueAddress  # of the pipeline
    state: Path  # the rule's own folder for journals; it belongs to the checkpoint, and goes with it
    application: str  # the name of the pipeline, the same after a restart


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of a batch."""

    rows: int = 0  # that were dealt with
    files: int = 0  # that were written
    failed: int = 0  # rows that are dead letters
    is_repeated: bool = False  # everything had been done when the batch came, and nothing was done again


class Performer(Protocol):
    """One action of one rule."""

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        """Do it with these rows: after the return it is done. PipelineError: it was not, and may be tried again."""

    def close(self) -> None:
        """End what may still run."""
