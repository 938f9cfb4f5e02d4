"""Status: how the rules of a pipeline are doing, in a file beside its checkpoints.

The job replaces the file once a second; anybody may read it. `headrace pipeline status` shows it.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace.decoding import Decoder
from headrace.errors import PipelineError
from headrace.files import read_regular
from headrace.log.documents import UNREADABLE, replace_file
from headrace.pipeline.rules.rule import PipelineTerms
from headrace.pipeline.source.backlog import behind_of

_FILE = "status.json"


class RuleStatus(msgspec.Struct):
    """How one rule is doing."""

    rule: str
    state: str = "starting"  # running, retrying, done, stopped, failed
    failure: str = ""  # why it failed, or is being retried
    retries: int = 0  # restarts of its queries
    batches: int = 0
    rows: int = 0  # passed to actions
    errors: int = 0  # products that became dead letters: they could not be decoded, or are fragments
    causes: dict[str, int] = {}  # of these errors, and how many products each
    failed: int = 0  # rows that became dead letters because an action failed
    removed: int = 0  # rows that its tables have kept long enough
    batch_s: float = 0.0  # duration of the last batch
    products_per_s: float = 0.0
    behind: int = 0  # products that its query selects and has not read
    behind_s: float = 0.0  # age of the oldest of them
    lost: int = 0

    @property
    def dead_letters(self) -> int:
        """All rows that it has written to the table of dead letters."""
        return self.errors + self.failed


class JobStatus(msgspec.Struct):
    """What `headrace pipeline status` shows."""

    path: str
    updated_ns: int
    rules: list[RuleStatus]


_STATUS: Decoder[JobStatus] = Decoder(JobStatus, encoding="json")


def save_status(terms: PipelineTerms, path: Path, rules: Sequence[RuleStatus]) -> None:
    """Replace the status file of the rules at `path`; OSError."""
    file = _file(terms)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, msgspec.json.encode(JobStatus(str(path), time.time_ns(), list(rules))), None)


def load_status(terms: PipelineTerms) -> JobStatus | None:
    """The last status; None if the pipeline has never run. PipelineError: the file is damaged."""
    path = _file(terms)
    try:
        return _STATUS.decode(read_regular(path))
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        raise PipelineError(f"{path} is damaged: {error}", "start the pipeline: it replaces the file") from None


def _file(terms: PipelineTerms) -> Path:
    assert terms.checkpoint is not None
    return terms.checkpoint / _FILE


def update_from_spark(statuses: Sequence[RuleStatus], progress: Any) -> None:
    """Update the status of the rules of a query from Spark's report after a batch."""
    report: dict[str, Any] = msgspec.json.decode(progress.json)
    source = (report.get("sources") or [{}])[0]
    behind = behind_of(source.get("latestOffset"))
    for status in statuses:
        if behind is not None:
            status.behind, status.behind_s = behind.products, behind.seconds
        status.lost = _lost(source.get("endOffset"))
        status.products_per_s = float(report.get("processedRowsPerSecond") or 0.0)
        status.batch_s = float((report.get("durationMs") or {}).get("triggerExecution", 0)) / 1000


def _lost(offset: object) -> int:
    if isinstance(offset, str):
        offset = msgspec.json.decode(offset)
    return int(offset.get("lost", 0)) if isinstance(offset, dict) else 0
