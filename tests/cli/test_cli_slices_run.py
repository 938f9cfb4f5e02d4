"""headrace slices run and balance: nodes and balancers as programs."""

import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Queue
from headrace.cli.slices_idle import Idle
from headrace.share.interface import Marks, Progress
from headrace.slices import NodeStatistics, ProcessingNode
from support.commandline import PROGRAM, Run, fill, objects
from support.waiting import until

WORK = """
import time

def work(product):
    if product.ident == "ident 3":
        raise ValueError("bad")
    return product.ident

def row(product):
    return (product.sequence, product.ident)

def many(batch):
    return [product.ident for product in batch]

tried = []

def slow_and_bad_once(product):
    time.sleep(0.6)
    tried.append(product.ident)
    if tried.count(product.ident) == 1:
        raise ValueError("bad")

def hang(product):
    time.sleep(1000)

number = 3
"""


@pytest.fixture
def stream(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with Queue.open(path) as queue:
        queue.channel("surface", "wx/**", slices=8)
    (tmp_path / "slices_run_work.py").write_text(WORK)
    monkeypatch.chdir(tmp_path)
    return path


def node(run: Run, stream: Path, work: str, *options: object) -> Any:
    words = ("slices", "run", f"slices_run_work:{work}", stream, "--stream", "surface", "--timeout", "300ms")
    return run(*words, "--retry", "10ms", *options)


def put_results(path: Path) -> list[bytes]:
    with Queue.open(path) as queue:
        return sorted(bytes(product.payload) for product in queue.read("oldest", "out"))


def test_a_node_works_on_everything_publishes_and_ends_when_idle(run: Run, stream: Path) -> None:
    fill(stream, 9, "wx/a")
    result = node(run, stream, "work", "--publish", "out", "--name", "one", "--json")
    (told,) = objects(result.stdout)
    assert (result.exit_code, told["node"], told["products"], told["parked"]) == (1, "one", 8, 1)
    assert "parked product 3" in result.stderr
    assert put_results(stream) == [b"ident %d" % n for n in range(1, 10) if n != 3]


def test_results_go_to_a_sink_and_batches_to_a_function_of_batches(run: Run, stream: Path, tmp_path: Path) -> None:
    fill(stream, 5, "wx/a")
    with sqlite3.connect(tmp_path / "out.db") as database:
        database.execute("CREATE TABLE readings (sequence INTEGER, ident TEXT)")
    assert node(run, stream, "row", "--sink", "sqlite:out.db:readings").stdout.endswith(" has left: 5 products done\n")
    assert database.execute("SELECT count(*), count(DISTINCT sequence) FROM readings").fetchall() == [(5, 5)]
    assert node(run, stream, "many", "--batches", "--group", "second", "--publish", "out").exit_code == 0
    assert len(put_results(stream)) == 5


def test_a_node_does_not_end_while_a_product_is_in_work_or_is_tried_again(run: Run, stream: Path) -> None:
    fill(stream, 1, "wx/a")
    result = node(run, stream, "slow_and_bad_once", "--timeout", "100ms", "--retry", "500ms", "--json")
    (told,) = objects(result.stdout)
    assert (result.exit_code, told["products"], told["failed"], told["undone"]) == (0, 1, 1, 0)


def test_a_node_that_leaves_products_undone_says_how_many(
    run: Run, stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.slices_idle._EXPECT_S", 0.0)
    fill(stream, 5, "wx/a")
    fill(stream, 2, "other")
    result = node(run, stream, "row", "--no-balance", "--timeout", "100ms")
    assert (result.exit_code, "0 products done, 5 not done" in result.stdout) == (1, True)
    assert "5 products not done, and no other node is alive; start a node" in result.stderr


def test_a_node_is_idle_only_when_its_slices_are_confirmed_up_to_the_end(stream: Path) -> None:
    with Queue.open(stream) as queue:
        share = queue.share("surface")
        seat = share.join("one")
        share.give(0, seat.number, np.arange(8, dtype=np.uint32), "hand")
        idle, now = Idle(share, 1.0, 0.0), NodeStatistics(slices=8)
        fill(stream, 1, "wx/a")
        assert not idle.has_ended("one", now, 5.0)
        held = seat.exchange(Progress()).holding
        assert held is not None
        end = np.full(8, queue.next, np.uint64)
        seat.exchange(Progress(confirm=Marks(held.slices, held.epochs, end)))
        fill(stream, 1, "other")
        assert idle.has_ended("one", now, 6.0)
        assert not idle.has_ended("two", now, 7.0)
        assert not idle.has_ended("one", NodeStatistics(slices=8, waiting=1), 8.0)


@pytest.mark.parametrize(
    ("work", "options", "text"),
    [
        ("nothing", [], "has no 'nothing'"),
        ("number", [], "'slices_run_work:number' is not a function"),
        ("work", ["--sink", "sqlite:out.db"], "sink 'sqlite:out.db' is invalid"),
        ("work", ["--sink", "slices_run_work:number"], "'slices_run_work:number' is no sink"),
        ("work", ["--sink", "nosuchmodule:x"], "module 'nosuchmodule'"),
        ("work", ["--sink", "nosuchmodule:x"], "a sink is sqlite:FILE:TABLE, or MODULE:NAME"),
        ("work", ["--sink", "parquet:x"], "a ParquetSink needs a schema"),
        ("work", ["--sink", "queue:x"], "--publish FEED"),
        ("work", ["--only", "0-9"], "slice 9 is out of range"),
        ("work", ["--dead-after", "1ms"], "dead_after"),
        ("work", ["--stream", "nope"], "has no channel 'nope'"),
        ("work", ["--slices", "9"], "stream 'surface' has 8 slices, not 9"),
    ],
)
def test_an_error_names_the_option_and_the_remedy(
    run: Run, stream: Path, work: str, options: list[str], text: str
) -> None:
    result = node(run, stream, work, *options)
    assert text in result.stderr
    assert "\n  try: " in result.stderr
    assert result.exit_code in (2, 3)


def test_a_group_with_other_terms_is_refused(run: Run, stream: Path) -> None:
    assert node(run, stream, "row", "--tries-max", 5).exit_code == 0
    assert "exists on other terms" in node(run, stream, "row", "--tries-max", 6).stderr
    assert "it has all slices, not only 0-3" in node(run, stream, "row", "--only", "0-3").stderr
    assert node(run, stream, "row", "--only", "0-7").exit_code == 0


def test_a_start_of_a_group_that_exists_has_no_effect_and_says_so(run: Run, stream: Path) -> None:
    assert "--from" not in node(run, stream, "row", "--from", "next").stderr
    result = node(run, stream, "row", "--from", "oldest")
    assert (result.exit_code, "goes on at its positions: --from has no effect" in result.stderr) == (0, True)


def test_a_name_that_is_taken_is_refused(run: Run, stream: Path) -> None:
    with Queue.open(stream) as queue, ProcessingNode(queue, "surface", lambda _: None, name="one") as other:
        until(lambda: other.statistics().slices > 0)
        result = node(run, stream, "row", "--name", "one")
        assert (result.exit_code, result.stdout) == (3, "")
        assert "group 'main' has a node 'one'" in result.stderr


@pytest.mark.processes
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_node_that_is_told_to_end_leaves_its_group(stream: Path, start: Any, number: int, code: int) -> None:
    words = ("slices", "run", "slices_run_work:row", stream, "--stream", "surface", "--processes", "--name", "one")
    process = start(*words)
    fill(stream, 5, "wx/a")
    with Queue.open(stream) as queue:
        until(lambda: "surface" in {each for each, _ in queue.shares()})
        share = queue.share("surface")
        until(lambda: share.state().products.sum() == 5)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out, err.strip()) == (code, b"one has left: 5 products done\n", b"")
        assert share.state().nodes == []


@pytest.mark.processes
def test_a_node_leaves_if_the_program_that_runs_it_sends_the_signal_to_its_group_as_well(stream: Path) -> None:
    command = ["timeout", "600", *PROGRAM, "slices", "run", "slices_run_work:row", str(stream), "--stream", "surface"]
    node = subprocess.Popen([*command, "--name", "one"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    fill(stream, 5, "wx/a")
    with Queue.open(stream) as queue:
        until(lambda: "surface" in {each for each, _ in queue.shares()})
        share = queue.share("surface")
        until(lambda: share.state().products.sum() == 5)
        node.terminate()
        assert node.communicate(timeout=240) == (b"one has left: 5 products done\n", b"")
        assert share.state().nodes == []


@pytest.mark.processes
def test_a_node_that_is_told_to_end_twice_does_not_claim_that_it_has_left(stream: Path, start: Any) -> None:
    process = start("slices", "run", "slices_run_work:hang", stream, "--stream", "surface", "--name", "one")
    fill(stream, 1, "wx/a")
    with Queue.open(stream) as queue:
        until(lambda: "surface" in {each for each, _ in queue.shares()})
        share = queue.share("surface")
        until(lambda: any(node.load.in_work for node in share.state().nodes))
        process.terminate()
        until(lambda: share.state().nodes[0].draining)
        time.sleep(0.2)  # at once, it would be the same request
        process.terminate()
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (143, b"")
    assert b"one ends without leaving; its slices go to other nodes after 3" in err


@pytest.mark.processes
def test_a_balancer_is_a_program_and_its_standby_takes_over(stream: Path, start: Any) -> None:
    words = ("slices", "balance", stream, "--stream", "surface", "--nodes-min", "2", "--lease", "500ms")
    first = start(*words, "--name", "first")
    assert first.stdout.readline().startswith(b"first.")
    second = start(*words, "--name", "second")
    assert second.stdout.readline().endswith(b" stands by\n")
    first.terminate()
    assert b" leads, term " in second.stdout.readline()
    second.send_signal(signal.SIGINT)
    assert (first.wait(60), second.wait(60)) == (143, 130)


def test_bounds_of_a_balancer_are_checked(run: Run, stream: Path) -> None:
    result = run("slices", "balance", stream, "--stream", "surface", "--full", "0.9")
    assert (result.exit_code, "full=0.9 and crowded=0.8 are out of range" in result.stderr) == (2, True)
    result = run("slices", "balance", stream, "--stream", "surface", "--algorithm", "quick")
    assert (result.exit_code, "algorithm 'quick' is unknown" in result.stderr) == (2, True)
