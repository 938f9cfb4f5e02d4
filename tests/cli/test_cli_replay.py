"""`headrace replay`: shown, onto a feed, commanded, killed and continued."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace import Lost, Queue
from headrace.cli import replay_keys, replay_run
from headrace.cli.replay_control import command, controlled, obey
from headrace.testing import MockClock
from headrace.timing.replay.run import KEPT_MAX, Run, RunFile, folder, forget_old, held, read_runs
from support.commandline import PROGRAM, fill, objects
from support.commandline import Run as Runs
from support.waiting import until

S = 1_000_000_000
START = 1_700_000_000 * S


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    Queue.create(tmp_path / "t", size="4MiB", origin="there").close()
    yield tmp_path / "t"
    with Queue.open(tmp_path / "t") as queue:
        assert queue.check() == []


def sparse(path: Path, seconds: int = 3600) -> None:
    """Three products, each an hour after the one before."""
    clock = MockClock(START)
    with Queue.open(path, clock=clock) as queue:
        for number in range(3):
            queue.put(b"%d" % number, feed="wx/text", ident=str(number))
            clock.advance(seconds)


def payloads(path: Path, selection: str = "**") -> list[bytes]:
    with Queue.open(path) as queue:
        return [bytes(product.payload) for product in queue.read("oldest", selection)]


@contextmanager
def replaying(*words: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and its run."""
    process = subprocess.Popen(
        [*PROGRAM, "replay", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    known = {run.run for run in read_runs()} if folder().exists() else set()
    try:
        until(lambda: {run.run for run in read_runs()} - known != set(), "the run begins")
        (new,) = {run.run for run in read_runs()} - known
        until(lambda: (folder() / f"{new}.control").exists(), "it takes commands")
        yield process, int(new, 16)
    finally:
        process.kill()
        process.communicate(timeout=240)


def test_without_a_target_products_are_shown(run: Runs, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 5)
    lines = run("replay", path, "--speed", "max", "--from", "2", "--to", "4", "--json").stdout
    assert [each["sequence"] for each in objects(lines)] == [2, 3]
    assert "ident 5" in run("replay", path, "--speed", "max", "--ident", "5$").stdout
    monkeypatch.setenv("HEADRACE_QUEUE", str(path))
    assert "ident 5" in run("replay", "--speed", "max").stdout


def test_onto_a_feed_products_are_marked_and_the_run_is_known(run: Runs, path: Path, target: Path) -> None:
    fill(path, 5)
    result = run("replay", path, target, "--speed", "max", "--onto", "test/**")
    assert result.stdout == "5 products, 5 new, 0 duplicates\n"
    (known,) = objects(run("replay", "--runs", "--json").stdout)[0]["runs"]
    assert (known["complete"], known["position"], known["stored"], known["onto"]) == (True, 6, 5, "test/**")
    (line, *_) = objects(run("watch", target, "--from", "oldest", "--count", "1", "--json").stdout)
    assert (line["feed"], line["replay"]) == ("test/wx/text", {"run": known["run"], "sequence": 1})
    assert "(replay)" in run("watch", target, "--from", "oldest", "--count", "1").stdout
    assert "complete" in run("replay", "--runs").stdout
    again = run("replay", "--run", "last").stdout
    assert again.endswith("is complete, and nothing was done now; its result: 5 products, 5 new, 0 duplicates\n")


def test_a_run_is_paused_sought_and_sped_up_by_commands_and_ends(path: Path, target: Path, run: Runs) -> None:
    sparse(path)
    with replaying(path, target, "--json") as (process, number):
        until(lambda: payloads(target) == [b"0"], "the first product")
        word = f"{number:016x}"
        assert "paused" in run("replay", "--run", word, "--control", "pause").stdout
        assert objects(run("replay", "--run", "last", "--control", "status", "--json").stdout)[0]["paused"] is True
        assert run("replay", "--run", word, "--control", "seek never").exit_code == 2
        assert command(number, "seek 3")["paused"]
        command(number, "speed max")
        command(number, "resume")
        lines = objects(process.communicate(timeout=240)[0])
        assert process.returncode == 0
    assert payloads(target) == [b"0", b"2"]
    assert lines[-1]["result"]["complete"] is True
    assert run("replay", "--run", word, "--control", "pause").exit_code == 3


def test_a_seek_while_paused_says_where_the_replay_is_now(path: Path, target: Path, run: Runs) -> None:
    sparse(path)
    with replaying(path, target) as (_, number):
        until(lambda: payloads(target) == [b"0"], "the first product")
        command(number, "pause")
        for place, words in ((3, "before product 3  "), (1, "before the first product  ")):
            assert command(number, f"seek {place}")["position"] == place
            shown = run("replay", "--run", "last", "--control", "status")
            assert (shown.stdout.startswith(words), "paused" in shown.stdout) == (True, True), shown
        assert run("replay", "--run", "last", "--control", "seek 4").stdout.startswith("at the end  ")


def test_a_distance_of_a_seek_without_a_unit_is_named_with_its_sign(path: Path) -> None:
    with Queue.open(path) as queue, queue.replay() as replay:
        with pytest.raises(ValueError, match="seek '-50' is not a distance in time") as caught:
            obey(replay, "seek -50")
        assert '"-50s"' in str(caught.value)
        assert "a sequence has no sign" in str(caught.value)


def test_a_run_that_is_killed_continues_and_stores_nothing_twice(path: Path, target: Path, run: Runs) -> None:
    """Killed in its spacing, then while it puts as fast as it can."""
    sparse(path)
    with Queue.open(path) as queue:
        queue.put_many([b"x" * 2000] * 1500, feed="wx/more")
    with replaying(path, target) as (process, number):
        until(lambda: payloads(target) == [b"0"], "the first product")
        assert run("replay", "--run", f"{number:016x}").exit_code == 3  # another process has it
        process.kill()
        process.wait()
    with replaying_again(number) as process:
        until(lambda: len(payloads(target)) > 3, "it goes on")
        process.kill()
        process.wait()
    result = run("replay", "--run", "last", "--speed", "max")
    assert (result.exit_code, "1,503 products, 1,503 new, 0 duplicates\n" in result.stdout) == (0, True)
    with Queue.open(target) as queue:
        marks = [product.options.replay for product in queue.read()]
    assert [mark.sequence for mark in marks if mark] == list(range(1, 1504))


@contextmanager
def replaying_again(number: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*PROGRAM, "replay", "--run", f"{number:016x}", "--speed", "max"], stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_killed_run_stores_nothing_twice_in_a_target_that_recognises_no_duplicates(
    path: Path, tmp_path: Path, run: Runs
) -> None:
    """As if it was killed after the put and before the save: the file is one product behind."""
    fill(path, 5)
    Queue.create(tmp_path / "none", size="4MiB", dedup="none").close()
    run("replay", path, tmp_path / "none", "--speed", "max", "--to", "4")
    known = read_runs()[-1]
    RunFile(known).save(is_complete=False, position=2, stop=6, products=1, stored=1, target_next=2)
    assert run("replay", "--run", "last").stdout == "5 products, 5 new, 0 duplicates\n"
    assert payloads(tmp_path / "none") == [b"product %d" % number for number in range(1, 6)]


def test_ctrl_c_in_a_batch_that_was_put_in_part_stores_nothing_twice_either(
    path: Path, tmp_path: Path, run: Runs, start: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    """The first pieces of the batch are stored; the next one waits for a blocking station."""
    with Queue.open(path) as queue:
        queue.put_many([bytes([number]) * 100_000 for number in range(16)], feed="wx")
    with Queue.create(tmp_path / "none", size="1MiB", dedup="none") as target:
        station = target.station("full", "**", blocking=True, capacity=1)
        process = start("replay", path, tmp_path / "none", "--speed", "max")
        until(lambda: target.next > 1, "a piece is stored")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=240) == 130
        assert 1 < target.next < 17
        station.remove()
        assert run("replay", "--run", "last").exit_code == 0
        assert target.next == 17


def test_two_kills_before_a_save_store_nothing_twice_either(path: Path, tmp_path: Path, run: Runs) -> None:
    """The file is two products behind. The next process is killed at once, and one after it does the rest."""
    fill(path, 5)
    Queue.create(tmp_path / "none", size="4MiB", dedup="none").close()
    run("replay", path, tmp_path / "none", "--speed", "max", "--to", "4")
    RunFile(read_runs()[-1]).save(is_complete=False, position=2, stop=6, products=1, stored=1, target_next=2)
    command = [*PROGRAM, "replay", "--run", "last", "--speed", "0.001x"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: read_runs()[-1].speed == "0.001x", "it goes on")
        process.kill()
    assert run("replay", "--run", "last", "--speed", "max").exit_code == 0
    assert payloads(tmp_path / "none") == [b"product %d" % number for number in range(1, 6)]


def test_products_come_again_after_a_seek_back(path: Path, target: Path, run: Runs) -> None:
    sparse(path)
    with replaying(path, target, "--speed", "max", "--to", "live") as (process, number):
        until(lambda: len(payloads(target)) == 3, "all products")
        command(number, "seek 2")
        until(lambda: read_runs()[-1].lap == 1, "the lap is saved")
        process.kill()
        process.wait()
    assert payloads(target) == [b"0", b"1", b"2", b"1", b"2"]


def test_ctrl_c_ends_it_and_tells_how_to_continue(path: Path, target: Path) -> None:
    sparse(path)
    with replaying(path, target) as (process, number):
        until(lambda: payloads(target) == [b"0"], "the first product")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=240)
        assert process.returncode == 130
    assert "1 product, 1 new, 0 duplicates" in out
    assert f"headrace replay --run {number:016x}" in out


def test_what_was_put_counts_and_not_what_was_handed_out(
    path: Path, target: Path, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put of the second batch fails: the run continues before it."""
    sparse(path, seconds=0)
    real, calls = replay_run.MarkedBatch.put, []

    def put(batch: Any, *arguments: Any) -> Any:
        calls.append(batch)
        if len(calls) == 2:
            raise OSError(5, "the disk fails")
        return real(batch, *arguments)

    monkeypatch.setattr("headrace.timing.replay.source.CHUNK_PRODUCTS", 1)
    monkeypatch.setattr("headrace.queue.queue.CHUNK_PRODUCTS", 1)
    monkeypatch.setattr(replay_run.MarkedBatch, "put", put)
    assert run("replay", path, target, "--speed", "max").exit_code == 3
    assert read_runs()[-1].position == 2
    assert run("replay", "--run", "last").exit_code == 0
    assert payloads(target) == [b"0", b"1", b"2"]


def test_what_was_lost_is_reported_and_the_exit_code_says_so(run: Runs, path: Path, target: Path) -> None:
    with Queue.open(path) as queue:
        for _ in range(300):
            queue.put(bytes(50_000), feed="a")
        oldest = queue.oldest
    assert oldest > 1
    result = run("replay", path, target, "--from", "1", "--to", oldest + 2, "--speed", "max")
    assert result.exit_code == 1
    assert f"2 products, 2 new, 0 duplicates, {oldest - 1} lost" in result.stdout
    assert str(Lost(1, oldest - 1)) in result.stderr


def test_a_source_that_was_created_again_is_refused(run: Runs, path: Path, target: Path) -> None:
    fill(path, 3)
    run("replay", path, target, "--speed", "max")
    known = read_runs()[-1]
    RunFile(known).save(is_complete=False, position=2)
    Queue.remove(path)
    Queue.create(path, size="4MiB", origin="here").close()
    fill(path, 3)
    result = run("replay", "--run", "last")
    assert (result.exit_code, "another queue" in result.stderr) == (3, True)


def test_a_source_that_was_created_again_with_fewer_products_is_refused_for_that_reason(
    run: Runs, path: Path, target: Path
) -> None:
    fill(path, 10)
    run("replay", path, target, "--speed", "max")
    RunFile(read_runs()[-1]).save(is_complete=False, position=8)
    Queue.remove(path)
    Queue.create(path, size="4MiB", origin="here").close()
    result = run("replay", "--run", "last")
    assert (result.exit_code, "another queue" in result.stderr) == (3, True)


def test_a_target_that_was_created_again_is_refused(run: Runs, path: Path, target: Path) -> None:
    """It lacks what the run has put: going on would leave it incomplete in silence."""
    fill(path, 5)
    run("replay", path, target, "--speed", "max")
    RunFile(read_runs()[-1]).save(is_complete=False, position=3, products=2, stored=2)
    Queue.remove(target)
    Queue.create(target, size="4MiB", origin="there").close()
    result = run("replay", "--run", "last")
    assert result.exit_code == 3
    assert "has put 2 products into: it was deleted and created again" in result.stderr
    assert "start a new run" in result.stderr
    assert payloads(target) == []


def test_the_file_of_a_run_from_before_the_target_was_noted_continues(
    run: Runs, path: Path, target: Path, state: Path
) -> None:
    fill(path, 5)
    run("replay", path, target, "--speed", "max")
    RunFile(read_runs()[-1]).save(is_complete=False, position=3, products=2, stored=2)
    (file,) = state.glob("*.json")
    kept = json.loads(file.read_text())
    del kept["target_identity"]
    file.write_text(json.dumps(kept))
    assert run("replay", "--run", "last").stdout == "5 products, 5 new, 0 duplicates\n"


def test_products_that_a_killed_process_has_stored_count_as_new_once(run: Runs, path: Path, target: Path) -> None:
    """Killed after the put of four products and before the save of the last three."""
    fill(path, 5)
    run("replay", path, target, "--speed", "max", "--to", "5")
    RunFile(read_runs()[-1]).save(is_complete=False, position=2, stop=6, products=1, stored=1)
    assert run("replay", "--run", "last").stdout == "5 products, 5 new, 0 duplicates\n"
    assert len(payloads(target)) == 5


def test_a_complete_run_keeps_the_exit_code_of_its_losses(run: Runs, path: Path, target: Path) -> None:
    fill(path, 3)
    run("replay", path, target, "--speed", "max")
    RunFile(read_runs()[-1]).save(lost=4)
    result = run("replay", "--run", "last")
    assert (result.exit_code, "nothing was done now" in result.stdout) == (1, True)


def test_a_table_is_replayed_too(run: Runs, path: Path, target: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from headrace.pipeline.source.columns import arrow_of

    fill(path, 5)
    with Queue.open(path) as queue:
        pq.write_table(pa.Table.from_batches([arrow_of(queue.read_batch())]), tmp_path / "table.parquet")
    result = run("replay", tmp_path / "table.parquet", target, "--speed", "max")
    assert result.stdout == "5 products, 5 new, 0 duplicates\n"
    known = read_runs()[-1]
    RunFile(known).save(is_complete=False, position=known.start)
    assert run("replay", "--run", "last").exit_code == 0
    assert len(payloads(target)) == 5
    Queue.create(tmp_path / "none", size="4MiB", dedup="none").close()
    run("replay", tmp_path / "table.parquet", tmp_path / "none", "--speed", "max")
    RunFile(read_runs()[-1]).save(is_complete=False, position=known.start, products=0, stored=0, target_next=1)
    assert run("replay", "--run", "last").stdout == "5 products, 0 new, 5 duplicates\n"
    assert run("replay", tmp_path / "table.parquet", target, "--to", "live").exit_code == 2


def test_old_runs_are_forgotten_and_those_that_are_not_complete_stay() -> None:
    with held(1):
        pass
    for number in range(KEPT_MAX + 5):
        run = Run(f"{number + 1:016x}", "a", "b", "", "**", 1, 2, "inserted", "**", False, "1x", 1)
        RunFile(run).save(is_complete=number != 0)
        os.utime(folder() / f"{run.run}.json", ns=(number, number))
    (folder() / "damaged.json").write_text("{")  # hides nothing else
    forget_old()
    assert len(read_runs()) == KEPT_MAX + 1
    assert read_runs()[0].run.endswith("01")


def test_keys_command_a_replay(path: Path) -> None:
    fill(path, 5)
    with Queue.open(path) as queue:
        replay = queue.replay(speed=1)
        replay_keys.press(replay, b"\x1b[C")  # before the first product: nothing
        next(replay)
        for key, expected in ((b" ", (True, 1.0)), (b"+", (True, 2.0)), (b"-", (True, 1.0)), (b" ", (False, 1.0))):
            replay_keys.press(replay, key)
            assert (replay.progress().is_paused, replay.progress().speed) == expected
        for key in (b"x", b"m", b"-", b"\x1b[D", b"\x1b[A"):
            replay_keys.press(replay, key)
        assert replay.progress().speed == 1.0
        replay_keys.press(replay, b"q")
        assert list(replay) == []


def test_commands_that_are_none_are_refused(path: Path) -> None:
    with Queue.open(path) as queue:
        replay = queue.replay()
        assert json.dumps(obey(replay, "status"))
        for wrong in ("", "seek", "speed", "pause now", "speed warp", "rm -rf"):
            with pytest.raises(ValueError, match="invalid"):
                obey(replay, wrong)


def test_keys_on_a_terminal_and_a_bar(path: Path, target: Path) -> None:
    sparse(path)
    ours, theirs = pty.openpty()
    words = [*PROGRAM, "replay", str(path), str(target)]
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        words,
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=partial(_take_terminal, theirs),
    )
    shown = b""
    while b"1 product" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, b" ")
    while b"paused" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, b"q")
    drain = threading.Thread(target=_drain, args=(ours,), daemon=True)
    drain.start()
    out, _ = process.communicate(timeout=240)
    assert (process.returncode, "is not complete" in out) == (0, True)
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    drain.join()
    os.close(ours)


def _take_terminal(terminal: int) -> None:
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def _drain(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 4096):
            pass


def test_the_command_that_ends_a_replay_gets_its_reply(path: Path) -> None:
    """The replay ends as soon as it goes on, and its process waits until the command knows."""
    fill(path, 3)
    told: list[dict[str, Any]] = []
    with Queue.open(path) as queue, queue.replay("oldest", "next") as replay:
        resume, is_over = replay.resume, threading.Event()

        def resume_and_end() -> None:
            resume()
            is_over.set()
            caller.join(0.5)  # time for a process that does not wait

        replay.resume = resume_and_end  # type: ignore[method-assign]
        with controlled(replay, 7):
            caller = threading.Thread(target=lambda: told.append(command(7, "resume")))
            caller.start()
            assert is_over.wait(240)
        is_replied = [thread for thread in threading.enumerate() if thread.name == "headrace-control"] == []
        caller.join(240)
    assert is_replied
    assert told[0]["products"] == 0
