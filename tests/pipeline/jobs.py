"""What tests of jobs call: products put, rules written and run on the session's Spark, tables read."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from headrace import Queue
from headrace.pipeline.job import Job
from headrace.pipeline.rules import load_rules
from headrace.pipeline.status import RuleStatus

PATIENCE_S = 60
TABLE = """
[[rule]]
name = "{name}"
select = "wx/text"
table = "{name}"
"""


def put(folder: Path, first: int, count: int, size: int = 0) -> None:
    with Queue.open(folder / "wx.queue") as queue:
        numbers = range(first, first + count)
        payloads = [b"%d %s\n" % (number, os.urandom(size // 2).hex().encode()) for number in numbers]
        queue.put_many(payloads, feed="wx/text", ident=[f"i{number}" for number in numbers])


def write_rules(folder: Path, rules: str, pipeline: str = 'queue = "wx.queue"', trigger: str = "available-now") -> Path:
    path = folder / "rules.toml"
    path.write_text(f'[pipeline]\n{pipeline}\ntrigger = "{trigger}"\n{rules}')
    return path


def run(path: Path, spark: Any) -> dict[str, RuleStatus]:
    """All that there is; how each rule got on."""
    with running(path, spark) as job:
        assert job.wait(PATIENCE_S), job.statuses
    return {status.rule: status for status in job.statuses}


@contextmanager
def running(path: Path, spark: Any) -> Iterator[Job]:
    job = Job(load_rules(path), spark)
    try:
        job.start()
        yield job
    finally:
        job.stop()


def until(condition: Callable[[], object], what: Callable[[], object] | str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"in vain: {what() if callable(what) else what}"
        time.sleep(0.1)


def numbers(folder: Path, table: str) -> list[int]:
    """Of the products in a table, in their order."""
    files = [str(path) for path in (folder / "tables" / table).glob("part-*.parquet")]
    idents = ds.dataset(files, format="parquet").to_table().column("ident").to_pylist() if files else []
    return sorted(int(ident[1:]) for ident in idents)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
