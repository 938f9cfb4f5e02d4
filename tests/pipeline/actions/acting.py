"""Helpers for tests of actions: the context of a batch, the dead letters of a folder, and a simulated kill."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from headrace.pipeline.actions import Context
from headrace.pipeline.source.open_queues import QueueAddress


class Killed(BaseException):
    """Raised where a process would be killed; no code catches it, so everything stays as a kill would leave it."""


def killed(*_: Any, **__: Any) -> Any:
    raise Killed


def context_of(root: Path, batch_id: int = 0, queue: str = "q", application: str = "test") -> Context:
    return Context("r", batch_id, QueueAddress(queue, None), root / "state", application)


def letters_in(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
