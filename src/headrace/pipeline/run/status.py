"""Status: how a pipeline gets on, in a file beside its checkpoints that the job writes and everybody may read."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headrace.pipeline.rules.rule import PipelineTerms

_FILE = "status.json"


class RuleStatus(msgspec.Struct):
    """How a rule is getting on."""

    rule: str
    state: str = "starting"  # running, retrying, done, stopped, failed
    trouble: str = ""  # why it has failed, or is tried again
    retries: int = 0  # how often it was begun again
    batches: int = 0
    rows: int = 0  # given to actions
    errors: int = 0  # dead letters
    failed: int = 0  # by actions
    batch_s: float = 0.0  # the last one
    products_per_s: float = 0.0
    behind: int = 0  # sequences that the queue has and the rule has not
    lost: int = 0


class JobStatus(msgspec.Struct):
    """What `headrace pipeline status` shows."""

    path: str
    updated_ns: int
    rules: list[RuleStatus]


_STATUS = msgspec.json.Decoder(JobStatus)


def save_status(terms: PipelineTerms, path: Path, rules: Sequence[RuleStatus]) -> None:
    file = _file(terms)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(JobStatus(str(path), time.time_ns(), list(rules))))
    part.replace(file)


def load_status(terms: PipelineTerms) -> JobStatus | None:
    """What was written last; None if there never was anything, or nothing that can be read."""
    try:
        return _STATUS.decode(_file(terms).read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _file(terms: PipelineTerms) -> Path:
    assert terms.checkpoint is not None
    return terms.checkpoint / _FILE


def note_progress(status: RuleStatus, progress: Any) -> None:
    """From what Spark tells after each batch."""
    told: dict[str, Any] = msgspec.json.decode(progress.json)
    source = (told.get("sources") or [{}])[0]
    end, latest = (_offset(source.get(name)) for name in ("endOffset", "latestOffset"))
    status.behind = max(0, latest.get("sequence", 0) - end.get("sequence", 0))
    status.lost = end.get("lost", 0)
    status.products_per_s = float(told.get("processedRowsPerSecond") or 0.0)
    status.batch_s = float((told.get("durationMs") or {}).get("triggerExecution", 0)) / 1000


def _offset(told: object) -> dict[str, int]:
    if isinstance(told, str):
        told = msgspec.json.decode(told)
    return told if isinstance(told, dict) else {}
