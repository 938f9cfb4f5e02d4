"""`headrace bench` in a process of its own."""

import json
import subprocess
import sys
from typing import Any


def run_bench(*words: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "headrace", "bench", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)


def report_of(*words: object) -> dict[str, Any]:
    """The report of a benchmark as JSON; it says what was not measured."""
    done = run_bench(*words, "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["not_measured"]
    return report
