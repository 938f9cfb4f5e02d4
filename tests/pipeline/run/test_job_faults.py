"""Jobs under faults: after transient ones every row is there once, permanent ones are reported, checkpoints stay intact."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result

from headrace import Queue
from headrace.cli.pipeline import status as status_command
from headrace.errors import ConfigError, RuleError
from headrace.pipeline.rules import check_rules, load_rules
from headrace.pipeline.run.job import Job
from headrace.pipeline.run.status import RuleStatus, load_status
from pipeline.jobs import (
    HEADRACE,
    PATIENCE_S,
    TABLE,
    files_of,
    numbers,
    put,
    run,
    running,
    site,
    until,
    write_rules,
    write_site,
)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of four megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", place]).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Queue.create(tmp_path / "wx.queue", size="4MiB").close()
    return tmp_path


# --- targets ----------------------------------------------------------------------------------------------


def test_a_target_that_cannot_be_written_is_retried_until_it_can(folder: Path, spark: Any) -> None:
    """A file where a folder must be."""
    put(folder, 0, 20)
    (folder / "tables").mkdir()
    (folder / "tables" / "a").write_text("in the way")
    path = write_rules(folder, TABLE.format(name="a") + TABLE.format(name="b"), trigger="200ms")
    with running(path, spark) as job:
        until(lambda: job.statuses[0].retries >= 2, lambda: job.statuses)
        until(lambda: saved_states(path) == ["retrying", "running"], lambda: job.statuses)
        saved = load_status(load_rules(path).pipeline)
        assert saved is not None
        assert "tables/a was not created: File exists; a file that is not a folder" in saved.rules[0].failure
        until(lambda: show(path).return_value == 0, lambda: show(path).output)  # 1 while the status is older than 10 s
        shown = show(path).output
        assert re.search(r"\n  a +retrying ", shown), shown
        assert "rule a is being retried: " in shown
        until(lambda: numbers(folder, "b") == list(range(20)), lambda: job.statuses)
        (folder / "tables" / "a").unlink()
        put(folder, 20, 20)
        until(lambda: len(numbers(folder, "a")) == 40, lambda: job.statuses)
        until(lambda: job.statuses[0].state == "running", lambda: job.statuses)
        assert job.statuses[0].failure == ""
        assert job.statuses[0].rows == 40
    assert numbers(folder, "a") == numbers(folder, "b") == list(range(40))
    assert [status.state for status in job.statuses] == ["stopped", "stopped"]


def saved_states(path: Path) -> list[str]:
    saved = load_status(load_rules(path).pipeline)
    return [status.state for status in saved.rules] if saved else []


def show(path: Path) -> Result:
    return CliRunner().invoke(status_command, [str(path)], standalone_mode=False)


def test_retries_are_limited_with_available_now(folder: Path, spark: Any) -> None:
    put(folder, 0, 5)
    (folder / "tables").mkdir()
    (folder / "tables" / "a").write_text("in the way")
    path = write_rules(folder, TABLE.format(name="a"))
    told = run(path, spark)["a"]
    assert (told.state, told.retries, told.rows) == ("failed", 2, 0)
    assert "tables/a was not created: File exists" in told.failure
    (folder / "tables" / "a").unlink()
    assert run(path, spark)["a"].state == "done"
    assert numbers(folder, "a") == list(range(5))


@pytest.mark.parametrize("full", ["targets", "everything"])
def test_rules_continue_when_a_full_disk_has_room_again(folder: Path, small: Path, spark: Any, full: str) -> None:
    checkpoint = small / "checkpoint" if full == "everything" else folder / "checkpoint"
    places = f'queue = "wx.queue"\ntables = "{small}/tables"\nfiles = "{small}/files"\ncheckpoint = "{checkpoint}"'
    rules = """
[[rule]]
name = "table"
select = "wx/text"
table = "all"
[[rule]]
name = "each"
select = "wx/text"
file = { path = "each/{ident}", mode = "each" }
[[rule]]
name = "append"
select = "wx/text"
file = "append"
"""
    path = write_rules(folder, rules, places, "200ms")
    put(folder, 0, 10, 4000)
    with running(path, spark) as job:
        until(lambda: all(status.rows == 10 for status in job.statuses), lambda: job.statuses)
        fill(small / "filler")
        put(folder, 10, 40, 4000)
        until(lambda: all(status.state == "retrying" for status in job.statuses), lambda: job.statuses)
        assert all("o space left on device" in status.failure for status in job.statuses), job.statuses
        (small / "filler").unlink()
        until(lambda: all(status.rows == 50 for status in job.statuses), lambda: job.statuses)
        until(lambda: all(status.state == "running" for status in job.statuses), lambda: job.statuses)
    with Queue.open(folder / "wx.queue") as queue:
        payloads = sorted(bytes(product.payload) for product in queue.read_batch("oldest"))
    assert numbers(small, "all") == list(range(50))
    assert sorted((small / "files" / "append").read_bytes().splitlines(keepends=True)) == payloads
    assert sorted(file.read_bytes() for file in (small / "files" / "each").iterdir()) == payloads


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


# --- the source -------------------------------------------------------------------------------------------


def test_a_job_waits_for_a_site_that_is_unreachable_at_first_or_later(folder: Path, spark: Any) -> None:
    endpoint = write_site(folder)
    path = write_rules(folder, TABLE.format(name="a"), f'site = "{endpoint}"', "200ms")
    put(folder, 0, 20)
    with running(path, spark) as job:
        until(lambda: job.statuses[0].state == "retrying", lambda: job.statuses)
        assert endpoint in job.statuses[0].failure
        with site(folder):
            until(lambda: len(numbers(folder, "a")) == 20, lambda: job.statuses)
        put(folder, 20, 20)
        until(lambda: job.statuses[0].state == "retrying", lambda: job.statuses)
        with site(folder):
            until(lambda: len(numbers(folder, "a")) == 40, lambda: job.statuses)
            until(lambda: job.statuses[0].state == "running", lambda: job.statuses)
            put(folder, 40, 20)
            until(lambda: len(numbers(folder, "a")) == 60, lambda: job.statuses)
    assert numbers(folder, "a") == list(range(60))


def test_evicted_products_stop_a_rule_until_loss_is_allowed(folder: Path, spark: Any) -> None:
    put(folder, 0, 10)
    rules = TABLE.format(name="a")
    assert run(write_rules(folder, rules), spark)["a"].state == "done"
    before = files_of(folder / "rules.checkpoint" / "a")
    for first in range(10, 3010, 100):
        put(folder, first, 100, 4000)
    with Queue.open(folder / "wx.queue") as queue:
        oldest, end = queue.oldest, queue.next
    assert oldest > 11
    told = run(write_rules(folder, rules), spark)["a"]
    assert (told.state, told.retries) == ("failed", 0)
    assert f"products 11-{oldest - 1} of" in told.failure
    assert 'on_loss = "count"' in told.failure
    assert files_of(folder / "rules.checkpoint" / "a") == before
    told = run(write_rules(folder, rules, 'queue = "wx.queue"\non_loss = "count"'), spark)["a"]
    assert (told.state, told.lost) == ("done", oldest - 11)
    assert numbers(folder, "a") == [*range(10), *range(oldest - 1, end - 1)]


def test_another_queue_in_the_same_folder_is_refused(folder: Path, spark: Any) -> None:
    put(folder, 0, 10)
    path = write_rules(folder, TABLE.format(name="a"))
    run(path, spark)
    before = files_of(folder / "rules.checkpoint" / "a")
    shutil.rmtree(folder / "wx.queue")
    Queue.create(folder / "wx.queue", size="4MiB").close()
    put(folder, 0, 5)
    told = run(path, spark)["a"]
    assert (told.state, told.retries) == ("failed", 0)
    assert "is not the queue that the checkpoint belongs to; start with a new checkpoint" in told.failure
    assert files_of(folder / "rules.checkpoint" / "a") == before


# --- rules ------------------------------------------------------------------------------------------------


def test_a_rule_that_fails_does_not_stop_the_others(folder: Path, spark: Any) -> None:
    put(folder, 0, 10)
    rules = (
        '[[rule]]\nname = "a"\nselect = "wx/text"\ntable = "a"\nsql = "select 1 / (sequence - 5) as x from products"\n'
    )
    told = run(write_rules(folder, rules + TABLE.format(name="b")), spark)
    assert (told["a"].state, told["a"].retries) == ("failed", 0)
    assert "DIVIDE_BY_ZERO" in told["a"].failure
    assert told["b"].state == "done"
    assert numbers(folder, "b") == list(range(10))


MISTAKES = {
    'tabel = "b"': "unknown key 'tabel'",
    'table = "b"\nsql = "select idant from products"': "there is no column 'idant'",
    'table = "b"\nsql = "select reversed(ident) as ident from products"': "reversed",  # known to Spark alone
}


def test_an_invalid_rule_is_refused_before_anything_is_written(folder: Path, spark: Any) -> None:
    put(folder, 0, 10)
    run(write_rules(folder, TABLE.format(name="a")), spark)
    before = files_of(folder)
    put(folder, 10, 10)
    for mistake, told in MISTAKES.items():
        path = write_rules(folder, TABLE.format(name="a") + f'[[rule]]\nname = "b"\nselect = "wx/text"\n{mistake}\n')
        complaints = [str(each) for each in check_rules(path)]
        assert any(told in each for each in complaints) or told == "reversed"
        with pytest.raises((ConfigError, RuleError), match=told), running(path, spark):
            pass
        changed = {name for name, held in files_of(folder).items() if before.get(name) != held}
        assert all("wx.queue" in name or name == str(path) for name in changed), changed
    assert numbers(folder, "a") == list(range(10))


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_decoder_with_other_columns_does_not_spoil_a_table(folder: Path, spark: Any, kind: str) -> None:
    (folder / f"mine_{kind}.py").write_text("def rows(product):\n    yield {'number': int(product['ident'][1:])}\n")

    def outcome(schema: str, sql: str = "") -> RuleStatus:
        rule = f'[[rule]]\nname = "a"\nselect = "wx/text"\ndecode = "mine_{kind}:rows"\nschema = "{schema}"\n{sql}\n'
        return run(write_rules(folder, rule + f'table = {{ path = "a", format = "{kind}" }}\n'), spark)["a"]

    put(folder, 0, 5)
    assert outcome("number int").state == "done"
    put(folder, 5, 5)
    before = files_of(folder / "tables") | files_of(folder / "rules.checkpoint" / "state")
    told = outcome("number bigint, unit string")
    assert (told.state, told.retries) == ("failed", 0)
    assert "column 'unit' (string) is new; column 'number' is long, and the table has integer" in told.failure
    assert "select the columns of the table, cast them, allow new ones" in told.failure
    assert files_of(folder / "tables") | files_of(folder / "rules.checkpoint" / "state") == before
    told = outcome("number bigint", 'sql = "select * except (number), cast(number as int) as number from decoded"')
    assert told.state == "done", told
    assert numbers(folder, "a") == list(range(10))


# --- processes --------------------------------------------------------------------------------------------


def test_programs_that_hang_crash_or_are_missing_make_dead_letters_and_do_not_stop_the_stream(
    folder: Path, spark: Any
) -> None:
    commands = (["sleep", "60"], ["sh", "-c", "exit 3"], ["./gone"])
    patience = {"sleep": "500ms", "sh": "30s", "./gone": "30s"}  # a busy machine may take long to start a program
    (folder / "gone").write_text("#!/bin/sh\n")
    (folder / "gone").chmod(0o755)
    actions = "".join(
        f'[[rule.{action}]]\ncommand = {command}\ntimeout = "{patience[command[0]]}"\ntries = 1\n'
        for action in ("exec", "pipe")
        for command in commands
    )
    put(folder, 0, 2)
    path = write_rules(folder, TABLE.format(name="a") + actions)
    job = Job(load_rules(path), spark)
    (folder / "gone").unlink()
    job.start()
    assert job.wait(PATIENCE_S)
    job.stop()
    (told,) = job.statuses
    assert (told.state, told.failed, told.retries) == ("done", 12, 0), told
    assert numbers(folder, "a") == [0, 1]
    letters = ds.dataset(folder / "tables" / "dead_letters", format="parquet").to_table().to_pylist()
    why = {(letter["action"], letter["ident"]): letter["error"] for letter in letters}
    assert len(why) == len(letters) == 12
    for action, text in (
        ("exec-0", "still running after"), ("exec-1", "ended with status 3"), ("exec-2", "does not start"),
        ("pipe-0", "did not read"), ("pipe-1", "ended with status 3"), ("pipe-2", "does not start"),
    ):  # fmt: skip
        assert all(text in why[action, ident] for ident in ("i0", "i1")), why


SLOW = """
import os, time
from pathlib import Path

def rows(product):
    mark = Path({mark!r})
    if not mark.exists():
        mark.with_suffix(".part").write_text(str(os.getpid()))
        mark.with_suffix(".part").replace(mark)
        time.sleep(60)
    yield {{"number": int(product["ident"][1:])}}
"""


def test_a_python_worker_that_is_killed_is_replaced(folder: Path, spark: Any) -> None:
    mark = folder / "mark"
    (folder / "slow_rows.py").write_text(SLOW.format(mark=str(mark)))
    rules = '[[rule]]\nname = "a"\nselect = "wx/text"\ndecode = "slow_rows:rows"\nschema = "number int"\ntable = "a"\n'
    put(folder, 0, 10)
    with running(write_rules(folder, rules), spark) as job:
        until(mark.exists, lambda: job.statuses)
        worker = int(mark.read_text())
        assert os.getpid() in ancestors(worker)
        os.kill(worker, signal.SIGKILL)
        assert job.wait(PATIENCE_S)
    (told,) = job.statuses
    assert (told.state, told.retries, told.rows) == ("done", 0, 10)
    assert numbers(folder, "a") == list(range(10))


def test_a_killed_process_of_the_source_is_replaced(folder: Path, spark: Any) -> None:
    put(folder, 0, 10)
    others = source_processes()
    with running(write_rules(folder, TABLE.format(name="a"), trigger="200ms"), spark) as job:
        until(lambda: len(numbers(folder, "a")) == 10, lambda: job.statuses)
        for process in source_processes() - others:
            os.kill(process, signal.SIGKILL)
        put(folder, 10, 10)
        until(lambda: len(numbers(folder, "a")) == 20, lambda: job.statuses)
        assert job.statuses[0].retries == 1
    assert numbers(folder, "a") == list(range(20))


def test_a_signal_to_all_processes_of_a_pipeline_stops_it_without_a_failure(folder: Path) -> None:
    """As a service manager does, which tells Java as well."""
    path = write_rules(folder, TABLE.format(name="a"), trigger="200ms")
    put(folder, 0, 10)
    with (folder / "run.log").open("wb") as log:
        job = subprocess.Popen(
            [HEADRACE, "pipeline", "run", str(path), "--master", "local[2]"], stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    until(lambda: len(numbers(folder, "a")) == 10, (folder / "run.log").read_text)
    os.killpg(job.pid, signal.SIGTERM)
    assert job.wait(PATIENCE_S) == 0, (folder / "run.log").read_text()


@pytest.mark.soak
def test_a_java_that_dies_is_reported_and_the_next_run_continues(folder: Path, spark: Any) -> None:
    put(folder, 0, 10)
    path = write_rules(folder, TABLE.format(name="a"), trigger="200ms")
    with (folder / "run.log").open("wb") as log:
        job = subprocess.Popen([HEADRACE, "pipeline", "run", str(path), "--master", "local[2]"], stdout=log, stderr=log)
    until(lambda: len(numbers(folder, "a")) == 10, (folder / "run.log").read_text)
    (java,) = [pid for pid in processes() if ancestors(pid)[:1] == [job.pid] and b"java" in command_of(pid)]
    os.kill(java, signal.SIGKILL)
    assert job.wait(PATIENCE_S) == 3
    told = (folder / "run.log").read_text()
    assert "headrace: the Java process of Spark has ended" in told
    assert "try: start the pipeline again" in told
    put(folder, 10, 10)
    assert run(write_rules(folder, TABLE.format(name="a")), spark)["a"].state == "done"
    assert numbers(folder, "a") == list(range(20))


def processes() -> set[int]:
    return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()}


def source_processes() -> set[int]:
    """Python processes in which Spark runs the driver's side of a stream's source, of this test's Spark."""
    of_sources = {pid for pid in processes() if b"python_streaming_source_runner" in command_of(pid)}
    return {pid for pid in of_sources if os.getpid() in ancestors(pid)}


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def ancestors(pid: int) -> list[int]:
    """The parent, its parent, and so on."""
    found = []
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(pid)
    return found
