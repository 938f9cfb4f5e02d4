"""A cluster: a real master and two workers on this machine, one of which may die; every row once."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest

from headrace import Queue
from headrace.pipeline.spark.java import java_home
from pipeline.jobs import (
    HEADRACE,
    PASSWORD,
    PATIENCE_S,
    files_with,
    put_reports,
    rows,
    site,
    until,
    write_guarded_site,
    write_site,
)
from support.fleet import free_port
from support.seeds import random_seed

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
HERE = "127.0.0.1"

RULES = """
[pipeline]
{place}
trigger = "{trigger}"
max_products = {batch}

[[rule]]
name = "metar"
select = "wx/text/metar"
decode = "metar"
sql = "select ident, station, observed, wind_gust from decoded"
table = "metar"

[[rule]]
name = "radar"
select = "wx/radar/**"
table = "radar"

[spark]
driver.host = "127.0.0.1"
driver.bindAddress = "127.0.0.1"
executor.memory = "1g"
"""


@dataclass
class Cluster:
    """Processes of Spark, each the leader of a process group that contains its executors."""

    folder: Path
    master: str = ""
    status: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, workers: int) -> None:
        port, web = free_port(), free_port()
        self.master, self.status = f"spark://{HERE}:{port}", f"http://{HERE}:{web}/json/"
        self.run("master.Master", "--port", str(port), "--webui-port", str(web))
        for number in range(workers):
            self.run("worker.Worker", "--port", str(free_port()), "--webui-port", str(free_port()), "--cores", "1",
                     "--memory", "1g", "--work-dir", str(self.folder / f"work{number}"), self.master)  # fmt: skip
        until(lambda: self.alive() == workers, "workers come")

    def run(self, name: str, *arguments: str) -> None:
        known = {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": HERE, "PATH": "/usr/bin:/bin"}
        with (self.folder / f"{name}.{len(self.processes)}.log").open("wb") as log:
            command = [SPARK_CLASS, f"org.apache.spark.deploy.{name}", "--host", HERE, *arguments]
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=known, start_new_session=True))

    def alive(self) -> int:
        try:
            with urllib.request.urlopen(self.status, timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:
            return 0

    def kill_worker(self, number: int) -> None:
        os.killpg(self.processes[1 + number].pid, signal.SIGKILL)
        self.processes[1 + number].wait()

    def end(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Cluster(folder)
    try:
        made.start(2)
        yield made
    finally:
        made.end()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Queue.create(tmp_path / "wx.queue", size="64MiB").close()
    return tmp_path


def write_rules(
    folder: Path, trigger: str = "available-now", batch: int = 500, place: str = 'queue = "wx.queue"'
) -> Path:
    path = folder / "rules.toml"
    path.write_text(RULES.format(trigger=trigger, batch=batch, place=place))
    return path


def judge(folder: Path, count: int) -> None:
    """The tables have exactly what was put."""
    assert sorted(row["ident"] for row in rows(folder, "metar")) == sorted(
        f"SAUS70 {n}" for n in range(count) if n % 10
    )
    assert sorted(bytes(row["payload"]) for row in rows(folder, "radar")) == sorted(
        b"radar %d" % n for n in range(count)
    )
    letters = sorted(row["ident"] for row in rows(folder, "dead_letters"))
    assert letters == sorted(f"SAUS70 {n}" for n in range(count) if n % 10 == 0)
    with Queue.open(folder / "wx.queue") as queue:
        assert queue.check() == []


def run(rules: Path, master: str, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [HEADRACE, "pipeline", "run", str(rules), "--master", master, "--json", *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                          env={**os.environ, **environment})  # fmt: skip


@pytest.mark.soak
@pytest.mark.spark
def test_rules_run_on_a_cluster(folder: Path, cluster: Cluster) -> None:
    put_reports(folder, 0, 600)
    done = run(write_rules(folder), cluster.master)
    assert done.returncode == 0, done.stderr
    assert {rule["state"] for rule in json.loads(done.stdout)["rules"]} == {"done"}
    judge(folder, 600)


@pytest.mark.soak
@pytest.mark.spark
def test_executors_log_in_to_a_guarded_site(folder: Path, cluster: Cluster) -> None:
    put_reports(folder, 0, 200)
    endpoint = write_guarded_site(folder)
    login = '[pipeline.tls]\nauthority = "certs/authority.crt"\n[pipeline.user]\nname = "ann"\n'
    rules = write_rules(folder, place=f'site = "{endpoint}"')
    rules.write_text(rules.read_text() + login + 'password_file = "ann.password"\n')
    with site(folder):
        done = run(rules, cluster.master)
    assert done.returncode == 0, done.stderr
    judge(folder, 200)
    assert PASSWORD not in done.stdout + done.stderr
    assert files_with(folder, PASSWORD, "users", "ann.password") == []  # the folder of the cluster, too


def test_ship_is_refused_in_local_mode(folder: Path) -> None:
    done = run(write_rules(folder), "local[2]", "--ship")
    assert done.returncode == 2
    assert "--ship is for the executors of a cluster" in done.stderr


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("place", ["site", "queue"])
def test_a_killed_worker_loses_no_row(folder: Path, cluster: Cluster, place: str) -> None:
    """Executors map the queue, or read from the site, as those on other machines do."""
    chance = random.Random(random_seed())
    endpoint = write_site(folder)
    where = f'site = "{endpoint}"' if place == "site" else 'queue = "wx.queue"'
    with site(folder):
        kill_one_of_two(folder, cluster, write_rules(folder, "200ms", 100, where), chance)
    judge(folder, 1500)


def kill_one_of_two(folder: Path, cluster: Cluster, rules: Path, chance: random.Random) -> None:
    put_reports(folder, 0, 1000)
    with (folder / "run.log").open("wb") as log:
        job = subprocess.Popen([HEADRACE, "pipeline", "run", str(rules), "--master", cluster.master],
                               stdout=log, stderr=log, start_new_session=True)  # fmt: skip
    try:
        until(lambda: rows(folder, "metar") and rows(folder, "radar"), "both rules write")
        time.sleep(chance.uniform(0, 2))
        assert len(rows(folder, "radar")) < 1000, "the job was done before the worker was killed"
        cluster.kill_worker(chance.randrange(2))
        put_reports(folder, 1000, 500)
        until(lambda: len(rows(folder, "metar")) >= 1350 and len(rows(folder, "radar")) >= 1500, "the rest is written")
        assert job.poll() is None
        assert cluster.processes[0].poll() is None
        job.terminate()
        assert job.wait(PATIENCE_S) == 0, (folder / "run.log").read_text()
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


@pytest.mark.soak
@pytest.mark.spark
def test_executors_run_the_shipped_environment_and_the_second_run_does_not_pack_again(
    folder: Path, cluster: Cluster
) -> None:
    (folder / "where.py").write_text(
        "import sys, headrace\n"
        "def where(product):\n"
        "    return [{'python': sys.prefix, 'code': headrace.__file__}]\n"
    )  # fmt: skip
    rules = folder / "rules.toml"
    text = write_rules(folder).read_text()
    text = text.replace('decode = "metar"', 'decode = "where:where"\nschema = "python string, code string"')
    rules.write_text(text.replace("station, observed, wind_gust", "python, code"))
    for turn, told in enumerate(("packed in", "is in the cache")):
        put_reports(folder, 100 * turn, 100)
        done = run(rules, cluster.master, "--ship", XDG_CACHE_HOME=str(folder / "cache"))
        assert done.returncode == 0, done.stderr
        assert told in done.stderr
    found = rows(folder, "metar")
    assert len(found) == 200
    for row in found:
        assert Path(row["python"]).is_relative_to(cluster.folder)
        assert Path(row["code"]).is_relative_to(row["python"])


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("module", ["own.py", "own/decoders.py"], ids=["module", "package"])
def test_executors_get_the_decoders_beside_the_rules(folder: Path, cluster: Cluster, module: str) -> None:
    """Executors do not need the folder: it is removed before the first of them starts."""
    if "/" in module:
        (folder / "own").mkdir()
        (folder / "own" / "__init__.py").touch()
    (folder / module).write_text("def size(product):\n    yield {'size': len(product['payload'])}\n")
    name = module.removesuffix(".py").replace("/", ".")
    text = write_rules(folder, "200ms").read_text().replace("station, observed, wind_gust", "size")
    text = text.replace('decode = "metar"', f'decode = "{name}:size"\nschema = "size int"')
    (folder / "rules.toml").write_text(text)
    command = [HEADRACE, "pipeline", "run", str(folder / "rules.toml"), "--master", cluster.master]
    with (folder / "run.log").open("wb") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        until((folder / "rules.checkpoint" / "status.json").exists, "the rules run")
        shutil.rmtree(folder / "own", ignore_errors=True)
        (folder / "own.py").unlink(missing_ok=True)
        put_reports(folder, 0, 50)
        until(lambda: len(rows(folder, "metar")) >= 50, (folder / "run.log").read_text)
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
