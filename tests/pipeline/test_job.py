"""Jobs: rules at work on a real Spark, killed and started again; every row once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from headrace import Queue

HEADRACE = str(Path(sys.executable).with_name("headrace"))
REPORT = "METAR K%s %02d%02d%02dZ 180%02dG%02dKT 10SM FEW080 12/M03 A3002="
PATIENCE_S = 120

RULES = """
[pipeline]
queue = "wx.queue"
trigger = "{trigger}"
max_products = {batch}

[[rule]]
name = "metar"
select = "wx/text/metar"
decode = "metar"
sql = "select ident, station, observed, wind_gust from decoded where wind_gust is not null"
table = "metar"
[rule.alert]
when = "wind_gust > 15"
feed = "wx/alert"
ident = "{{ident}}"

[[rule]]
name = "radar"
select = "wx/radar/**"
file = "{{feed}}/{{ident}}.bin"
table = "radar"
"""


def put_reports(queue: Queue, first: int, count: int) -> None:
    """Reports, each different, every tenth one no report at all; and as many radar products."""
    for number in range(first, first + count):
        name = "".join(chr(65 + number // 26**place % 26) for place in range(3))
        text = REPORT % (name, 1 + number % 28, number % 24, number % 60, number % 20, 10 + number % 30)
        payload = text.encode() if number % 10 else b"\xff no report %d" % number
        queue.put(payload, feed="wx/text/metar", ident=f"SAUS70 {number}")
        queue.put(b"radar %d" % number, feed="wx/radar/KFTG", ident=f"L2 {number}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Queue.create(tmp_path / "wx.queue", size="64MiB").close()
    return tmp_path


def write_rules(folder: Path, trigger: str = "available-now", batch: int = 500) -> Path:
    path = folder / "rules.toml"
    path.write_text(RULES.format(trigger=trigger, batch=batch))
    return path


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ds.dataset(folder / "tables" / table, format="parquet").to_table().to_pylist()
    return found


def judge(folder: Path, count: int) -> None:
    """Tables, files, alerts and dead letters have everything that was put, once."""
    numbers = range(count)
    metar = rows(folder, "metar")
    assert sorted(row["ident"] for row in metar) == sorted(f"SAUS70 {number}" for number in numbers if number % 10)
    volumes = sorted(b"radar %d" % number for number in numbers)
    assert sorted(bytes(row["payload"]) for row in rows(folder, "radar")) == volumes
    assert sorted(file.read_bytes() for file in (folder / "files").rglob("*.bin")) == volumes
    letters = rows(folder, "dead_letters")
    assert sorted(row["ident"] for row in letters) == sorted(f"SAUS70 {number}" for number in numbers[::10])
    with Queue.open(folder / "wx.queue") as queue:
        alerts = [product.ident for product in queue.read("oldest", "wx/alert", limit=100_000)]
    assert sorted(alerts) == sorted(row["ident"] for row in metar if row["wind_gust"] > 15)
    assert alerts


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.2)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.soak)])
def test_rules_do_everything_once_however_often_the_job_is_killed(folder: Path, kills: int) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    print(f"\nseed {seed} (repeat with HEADRACE_SEED={seed})")
    chance, put = random.Random(seed), 0
    running = write_rules(folder, "200ms", batch=60)
    for _ in range(kills):
        with Queue.open(folder / "wx.queue") as queue:
            put_reports(queue, put, 100)
        put += 100
        status = folder / "rules.checkpoint" / "status.json"
        status.unlink(missing_ok=True)
        with (folder / "run.log").open("ab") as log:
            job = subprocess.Popen([HEADRACE, "pipeline", "run", str(running), "--master", "local[2]"],
                                   stdout=log, stderr=log, start_new_session=True)  # fmt: skip
        until(status.exists, "the rules run")
        time.sleep(chance.uniform(0, 3))
        assert job.poll() is None, (folder / "run.log").read_text()
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    write_rules(folder)
    done = subprocess.run([HEADRACE, "pipeline", "run", str(folder / "rules.toml"), "--json"],
                          capture_output=True, text=True, check=False, timeout=PATIENCE_S)  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = {rule["rule"]: rule for rule in json.loads(done.stdout)["rules"]}
    assert {rule["state"] for rule in told.values()} == {"done"}
    judge(folder, put)
