"""Nodes, balancers, links and sites that die: see node_chaos.py. Seeds are printed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Queue
from support.commandline import PROGRAM, environment, is_alive
from support.seeds import random_seed
from support.waiting import until

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


@pytest.mark.parametrize("call", ["time.sleep(600)", "ctypes.PyDLL(None).sleep(600)"], ids=["python", "native"])
def test_work_that_hangs_in_a_worker_process_ends_with_its_node(tmp_path: Path, call: str) -> None:
    """The native call does not even let another thread of the process run."""
    told = tmp_path / "pid"
    code = f"import ctypes, os, pathlib, time\n\ndef work(product):\n    TOLD.write_text(f'{{os.getpid()}}\\n')\n    {call}\n"
    (tmp_path / "hanging.py").write_text(code + f"\nTOLD = pathlib.Path({str(told)!r})\n")
    with Queue.create(tmp_path / "q", size="4MiB") as queue:
        queue.channel("s", "x", slices=4)
        queue.put(b"x", feed="x", ident="1")
        command = ["slices", "run", "hanging:work", str(queue.path), "--stream", "s", "--processes"]
        node = subprocess.Popen([*PROGRAM, *command], env=environment(PYTHONPATH=str(tmp_path)))
        try:
            until(lambda: told.exists() and told.read_text().endswith("\n"))
            worker = int(told.read_text())
            assert is_alive(worker)
        finally:
            node.send_signal(signal.SIGKILL)
            node.wait()
        until(lambda: not is_alive(worker))


@pytest.mark.soak
@pytest.mark.parametrize("how", ["local", "remote"])
@pytest.mark.parametrize("turn", range(20))
def test_nodes_lose_nothing_for_long(how: str, turn: int, shared_memory: Path) -> None:
    play(how, shared_memory, random_seed(), 60)
