"""Rules that share a query, in a job that is killed again and again: files and tables have every row once, in order;
programs get every row, a row of a batch that was under way perhaps again."""

import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headrace import Queue
from headrace.pipeline.run.sharing import ALONE_MAX
from pipeline.jobs import HEADRACE, PATIENCE_S, numbers, until, write_rules
from support.seeds import random_seed

APPEND = """
[[rule]]
name = "append{number}"
select = "wx/text"
ident = "{number}$"
file = "append{number}.txt"
"""
REST = """
[[rule]]
name = "each"
select = "wx/text"
file = { path = "each/{ident}", mode = "each" }

[[rule]]
name = "pipe"
select = "wx/*"
pipe = ["sh", "-c", "cat >> pipe.txt"]

[[rule]]
name = "table"
select = "wx/text"
table = "table"

[[rule]]
name = "queried"
select = "wx/text"
sql = "select * from products where sequence % 2 = 0"
table = "queried"
file = "queried.txt"
pipe = ["sh", "-c", "cat >> queried-pipe.txt"]
"""
RULES = "".join(APPEND.format(number=number) for number in range(10)) + REST
EXTRA = "".join(  # so that the file has enough rules for queries to be shared
    f'\n[[rule]]\nname = "idle{number}"\nselect = "wx/idle"\nfile = "idle.txt"\n' for number in range(ALONE_MAX)
)
PIPELINE = 'queue = "wx.queue"\nmax_products = 40'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Queue.create(tmp_path / "wx.queue", size="64MiB").close()
    return tmp_path


def put(folder: Path, first: int, count: int) -> None:
    with Queue.open(folder / "wx.queue") as queue:
        each = range(first, first + count)
        queue.put_many([b"<%d>\n" % number for number in each], feed="wx/text", ident=[f"i{number}" for number in each])


def found(path: Path) -> list[int]:
    """The rows in a file; a program that was killed may have written part of one."""
    return [int(number) for number in re.findall(r"<(\d+)>", path.read_text())] if path.exists() else []


@contextmanager
def job(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A running job; in the end every process of it is killed."""
    with (folder / "run.log").open("ab") as log:
        process = subprocess.Popen(
            [HEADRACE, "pipeline", "run", str(folder / "rules.toml"), "--master", "local[2]"],
            stdout=log, stderr=log, start_new_session=True, cwd=folder,
        )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # all of them have ended after their driver
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_sometime(folder: Path, chance: random.Random, is_running: bool) -> None:
    """Start the job and kill it: all of it or the driver alone, in a batch or while it starts."""
    status = folder / "rules.checkpoint" / "status.json"
    status.unlink(missing_ok=True)
    driver_alone = chance.random() < 0.5
    with job(folder) as process:
        if is_running:
            until(lambda: status.exists() or process.poll() is not None, "the rules run")
            time.sleep(chance.uniform(0, 4))
        else:
            time.sleep(chance.uniform(0, 8))
        assert process.poll() is None, (folder / "run.log").read_text()
        if driver_alone:
            process.kill()  # what it has started notices
            process.wait()
            time.sleep(chance.uniform(0, 1))
    print(f"killed {'while it ran' if is_running else 'at its start'}{', the driver first' if driver_alone else ''}")


def judge(folder: Path, count: int) -> None:
    even = [number for number in range(count) if number % 2]  # sequences begin at 1
    for last in range(10):
        assert found(folder / "files" / f"append{last}.txt") == list(range(last, count, 10))
    each = {path.name: path.read_bytes() for path in (folder / "files" / "each").iterdir()}
    assert each == {f"i{number}": b"<%d>\n" % number for number in range(count)}
    assert numbers(folder, "table") == list(range(count))
    assert numbers(folder, "queried") == even == found(folder / "files" / "queried.txt")
    for name, rows in (("pipe.txt", range(count)), ("queried-pipe.txt", even)):
        written = Counter(found(folder / name))
        assert written.keys() == set(rows)
        print(f"{name}: {written.total() - len(written)} of {len(written)} rows again")


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, marks=pytest.mark.timeout(600)),
        pytest.param(40, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_rules_that_share_a_query_keep_their_guarantees_however_often_the_job_is_killed(
    folder: Path, kills: int
) -> None:
    chance = random.Random(random_seed())
    for number in range(kills):
        put(folder, number * 100, 100)
        write_rules(folder, RULES + EXTRA, PIPELINE, "100ms")
        kill_sometime(folder, chance, is_running=number == 0 or chance.random() < 0.6)
    write_rules(folder, RULES + EXTRA, PIPELINE)
    done = subprocess.run([HEADRACE, "pipeline", "run", str(folder / "rules.toml"), "--json"],
                          capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {rule["state"] for rule in json.loads(done.stdout)["rules"]} == {"done"}
    queries = {path.parent.name for path in (folder / "rules.checkpoint").glob("*/offsets")}
    assert queries == {"shared.1", "shared.2"}
    judge(folder, kills * 100)
