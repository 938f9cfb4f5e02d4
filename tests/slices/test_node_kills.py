"""Nodes, balancers, links and sites that die: see node_chaos.py. Seeds are printed."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.seeds import random_seed

FOLDER = Path(__file__).parent


def play(how: str, folder: Path, seed: int, faults: int) -> None:
    print(how, "seed", seed)
    run = subprocess.run(
        [sys.executable, str(FOLDER / "node_chaos.py"), how, str(folder), str(seed), str(faults)],
        capture_output=True, text=True, env={"PYTHONPATH": str(FOLDER.parent)}, timeout=600, check=False,
    )  # fmt: skip
    print(run.stdout)
    assert run.returncode == 0, run.stderr[-4000:]


@pytest.mark.parametrize("how", ["local", "remote"])
def test_nodes_that_are_killed_stopped_and_cut_off_lose_and_repeat_nothing_else(how: str, shared_memory: Path) -> None:
    play(how, shared_memory, random_seed(), 6 if how == "local" else 4)


def test_a_product_that_ends_every_node_is_blamed_alone(shared_memory: Path) -> None:
    play("deadly", shared_memory, 1, 0)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["local", "remote"])
@pytest.mark.parametrize("turn", range(20))
def test_nodes_lose_nothing_for_long(how: str, turn: int, shared_memory: Path) -> None:
    play(how, shared_memory, random_seed(), 60)
