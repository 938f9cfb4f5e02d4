"""Results are stored once, whatever is killed or stopped when: real processes, and an oracle."""

import subprocess
import sys
from pathlib import Path

import pytest
from sink_bench import KINDS

from support.seeds import random_seed

PROGRAM = Path(__file__).with_name("sink_kills.py")


def run(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, words)], capture_output=True, text=True, timeout=600, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_dies_before_any_step_leaves_each_result_once(shared_memory: Path, kind: str) -> None:
    assert "deaths" in run("everywhere", kind, shared_memory)


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_that_die_or_are_stopped_at_random_store_each_result_once(shared_memory: Path, kind: str) -> None:
    run("random", kind, shared_memory, random_seed(), 10)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_die_or_are_stopped_a_thousand_times(shared_memory: Path, kind: str) -> None:
    seed = random_seed()
    for number in range(25):
        (shared_memory / str(number)).mkdir()
        run("random", kind, shared_memory / str(number), seed + number, 40)
