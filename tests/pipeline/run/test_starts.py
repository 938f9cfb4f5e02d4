"""Rules that start at the same moment, on a machine that is busy."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Queue
from headrace.pipeline import register
from pipeline.jobs import numbers, put, run, write_rules

SELECTIONS = ["wx/text", "wx/*", "wx/**", "*/text", "**", "wx/text priority 0.."]  # different ones: six queries
RULES = [f"rule{number}" for number in range(len(SELECTIONS))]
RULE = """
[[rule]]
name = "{}"
select = "{}"
table = "{}"
"""
STARTS = int(os.environ.get("HEADRACE_STARTS", "200"))
BUSY = "while True: pass"


@pytest.fixture
def busy() -> Iterator[None]:
    """As many processes as the machine has processors, each of which keeps one busy."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    yield
    for process in processes:
        process.kill()
        process.wait()


def test_streams_that_start_at_once_share_an_environment_that_threads_can_change(spark: Any) -> None:
    """With a HashMap, two starts at the same moment can make every task of every stream unreadable."""
    register(spark)
    source = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("headrace")
    environment = source.dataSourceCls().envVars()
    assert environment.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_no_start_of_six_rules_fails_on_a_busy_machine(tmp_path: Path, spark: Any, busy: None) -> None:
    """Every start has an environment of its own, as in a new process. HEADRACE_STARTS sets how many there are."""
    Queue.create(tmp_path / "wx.queue", size="4MiB").close()
    retried = 0
    for start in range(STARTS):
        put(tmp_path, start * 10, 10)
        register(spark)
        rules = "".join(RULE.format(name, select, name) for name, select in zip(RULES, SELECTIONS, strict=True))
        statuses = run(write_rules(tmp_path, rules), spark)
        assert {status.state for status in statuses.values()} == {"done"}, (start, statuses)
        retried += sum(status.retries for status in statuses.values())
        print(f"start {start + 1} of {STARTS}: none failed, {retried} retried so far", flush=True)
    for name in RULES:
        assert numbers(tmp_path, name) == list(range(STARTS * 10))
