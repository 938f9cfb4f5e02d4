"""What the runner knows of an action: a performer that takes the rows of a micro-batch and does its part with them.

Spark repeats a batch, with the same number and the same rows, if the process was killed before the checkpoint recorded
the batch. A performer makes that exactly once in effect, except `exec` and `pipe`, which are at least once;
docs/actions.md says for each action how.

Where it runs: on the driver, inside `foreachBatch`, one batch of a rule at a time. A performer is created once and used
for every batch of its action.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
from pyspark.sql import DataFrame

from headrace.pipeline.source.open_queues import QueueAddress


@dataclass(frozen=True, slots=True)
class Context:
    """The batch, and the rule and pipeline that it belongs to."""

    rule: str
    batch_id: int
    address: QueueAddress  # of the queue that the pipeline reads
    state: Path  # the folder of the rule for journals; part of the checkpoint, and removed with it
    application: str  # the name of the pipeline, the same after a restart


class Counts(msgspec.Struct, frozen=True):
    """What became of a batch. A repeated batch that was done has the counts of its first run."""

    rows: int = 0  # processed
    files: int = 0  # written
    failed: int = 0  # rows that are dead letters
    removed: int = 0  # rows that a table kept long enough
    causes: dict[str, int] = {}  # of dead letters that a decoder refused, and how many each


class Performer(Protocol):
    """One action of one rule."""

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        """Process these rows; after return the batch is done. PipelineError: it is not, and may be retried."""

    def close(self) -> None:
        """End everything that may still run."""
