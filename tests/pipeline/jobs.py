"""Helpers for tests of jobs: put products, write rules and run them on the session's Spark, read tables."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from headrace import Queue
from headrace.pipeline.rules import load_rules
from headrace.pipeline.run.job import Job
from headrace.pipeline.run.status import RuleStatus
from support import waiting
from support.fleet import free_port
from support.links import make_certs

HEADRACE = str(Path(sys.executable).with_name("headrace"))
REPORT = "METAR K%s %02d%02d%02dZ 180%02dG%02dKT 10SM FEW080 12/M03 A3002="
PATIENCE_S = 240
TABLE = """
[[rule]]
name = "{name}"
select = "wx/text"
table = "{name}"
"""


def put(folder: Path, first: int, count: int, size: int = 0) -> None:
    with Queue.open(folder / "wx.queue") as queue:
        numbers = range(first, first + count)
        payloads = [b"%d %s\n" % (number, os.urandom(size // 2).hex().encode()) for number in numbers]
        queue.put_many(payloads, feed="wx/text", ident=[f"i{number}" for number in numbers])


def write_rules(folder: Path, rules: str, pipeline: str = 'queue = "wx.queue"', trigger: str = "available-now") -> Path:
    path = folder / "rules.toml"
    path.write_text(f'[pipeline]\n{pipeline}\ntrigger = "{trigger}"\n{rules}')
    return path


def run(path: Path, spark: Any) -> dict[str, RuleStatus]:
    """Run the rules over the whole queue; return the status of each."""
    with running(path, spark) as job:
        assert job.wait(PATIENCE_S), job.statuses
    return {status.rule: status for status in job.statuses}


@contextmanager
def running(path: Path, spark: Any) -> Iterator[Job]:
    job = Job(load_rules(path), spark)
    try:
        job.start()
        yield job
    finally:
        job.stop()


def until(condition: Callable[[], object], what: Callable[[], object] | str) -> None:
    """Wait until a condition holds, with a limit for jobs of Spark."""
    waiting.until(condition, what, PATIENCE_S)


def numbers(folder: Path, table: str) -> list[int]:
    """The numbers of the products in a table, in order."""
    files = [str(path) for path in (folder / "tables" / table).glob("part-*.parquet")]
    idents = ds.dataset(files, format="parquet").to_table().column("ident").to_pylist() if files else []
    return sorted(int(ident[1:]) for ident in idents)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def put_reports(folder: Path, first: int, count: int) -> None:
    """Put different METAR reports, of which every tenth is invalid, and as many radar products."""
    with Queue.open(folder / "wx.queue") as queue:
        for number in range(first, first + count):
            name = "".join(chr(65 + number // 26**place % 26) for place in range(3))
            text = REPORT % (name, 1 + number % 28, number % 24, number % 60, number % 20, 10 + number % 30)
            payload = text.encode() if number % 10 else b"\xff no report %d" % number
            queue.put(payload, feed="wx/text/metar", ident=f"SAUS70 {number}")
            queue.put(b"radar %d" % number, feed="wx/radar/KFTG", ident=f"L2 {number}")


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    path = folder / "tables" / table
    if not path.exists():
        return []
    found: list[dict[str, Any]] = ds.dataset(path, format="parquet").to_table().to_pylist()
    return found


def write_site(folder: Path) -> str:
    """Write the file of a site for the queue; return its endpoint."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    (folder / "site.toml").write_text(f'[site]\nqueue = "wx.queue"\nlisten = ["{endpoint}"]\n')
    return endpoint


PASSWORD = "deep-secret-of-ann"


def write_guarded_site(folder: Path) -> str:
    """As `write_site`, for a site with TLS that admits only ann, and the files that she needs; return its endpoint."""
    make_certs(folder / "certs", "site")
    (folder / "users").write_text(f"ann:{PASSWORD}\n")
    (folder / "ann.password").write_text(f"{PASSWORD}\n")
    endpoint = f"tls/127.0.0.1:{free_port()}"
    (folder / "site.toml").write_text(
        f'[site]\nqueue = "wx.queue"\nlisten = ["{endpoint}"]\n[users]\ndictionary_file = "users"\n'
        '[tls]\nauthority = "certs/authority.crt"\ncertificate = "certs/site.crt"\nkey = "certs/site.key"\n'
        "mutual = false\n"
    )
    return endpoint


def files_with(folder: Path, secret: str, *but: str) -> list[str]:
    """All files below a folder that contain a secret, except those that must."""
    found = [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    return sorted(str(path.relative_to(folder)) for path in found if path.name not in but)


@contextmanager
def site(folder: Path) -> Iterator[None]:
    """Run the site; kill it in the end."""
    process = subprocess.Popen([HEADRACE, "serve", str(folder / "site.toml"), "--json"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b"endpoints" in process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()
