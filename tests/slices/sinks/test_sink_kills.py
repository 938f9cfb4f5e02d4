"""Results are stored once, whatever is killed or stopped when: real processes, and an oracle."""

import subprocess
import sys
from pathlib import Path

import pytest
from sink_bench import KINDS

from support.seeds import random_seed

HERE = Path(__file__).parent


def run(program: str, *words: object) -> str:
    done = subprocess.run(
        [sys.executable, str(HERE / program), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_dies_before_any_step_leaves_each_result_once(shared_memory: Path, kind: str) -> None:
    assert "deaths" in run("sink_kills.py", "everywhere", kind, shared_memory)


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_that_die_or_are_stopped_at_random_store_each_result_once(shared_memory: Path, kind: str) -> None:
    run("sink_kills.py", "random", kind, shared_memory, random_seed(), 8)


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_of_a_group_that_die_or_are_stopped_store_each_result_once(shared_memory: Path, kind: str) -> None:
    assert "each once" in run("sink_nodes.py", kind, shared_memory, random_seed(), 2)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_of_a_group_have_hundreds_of_faults(shared_memory: Path, kind: str) -> None:
    seed = random_seed()
    for number in range(20):
        (shared_memory / str(number)).mkdir()
        run("sink_nodes.py", kind, shared_memory / str(number), seed + number, 15)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_die_or_are_stopped_a_thousand_times(shared_memory: Path, kind: str) -> None:
    seed = random_seed()
    for number in range(25):
        (shared_memory / str(number)).mkdir()
        run("sink_kills.py", "random", kind, shared_memory / str(number), seed + number, 40)
