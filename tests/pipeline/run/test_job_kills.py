"""Jobs that are killed again and again: rules on a real Spark, every row once."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from headrace import Queue
from pipeline.jobs import HEADRACE, PATIENCE_S, put_reports, rows, until
from support.seeds import random_seed

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Queue.create(tmp_path / "wx.queue", size="64MiB").close()
    return tmp_path


def write_rules(folder: Path, trigger: str = "available-now", batch: int = 500) -> Path:
    path = folder / "rules.toml"
    path.write_text(RULES.format(trigger=trigger, batch=batch))
    return path


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
        alerts = [product.ident for product in queue.read_batch("oldest", "wx/alert", limit=100_000)]
    assert sorted(alerts) == sorted(row["ident"] for row in metar if row["wind_gust"] > 15)
    assert alerts


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, marks=pytest.mark.timeout(600)),
        pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(3600)]),
    ],
)
def test_every_row_is_handled_once_however_often_the_job_is_killed(folder: Path, kills: int) -> None:
    chance, put = random.Random(random_seed()), 0
    running = write_rules(folder, "200ms", batch=60)
    for number in range(kills):
        put_reports(folder, put, 100)
        put += 100
        status = folder / "rules.checkpoint" / "status.json"
        status.unlink(missing_ok=True)
        with (folder / "run.log").open("ab") as log:
            job = subprocess.Popen([HEADRACE, "pipeline", "run", str(running), "--master", "local[2]"],
                                   stdout=log, stderr=log, start_new_session=True)  # fmt: skip
        if number % 2 == 0 or chance.random() < 0.4:
            until(status.exists, "the rules run")
            time.sleep(chance.uniform(0, 3))
            rules = json.loads(status.read_text())["rules"]
            assert "failed" not in {rule["state"] for rule in rules}, (folder / "run.log").read_text()
        else:
            time.sleep(chance.uniform(0, 8))  # while it starts
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
