"""`headrace bench steady`: a job of the pipeline under a steady stream, for as long as you like.

One rule: METAR reports are decoded, go through SQL, and into a Parquet table. The job is a process of its own, with
Spark as it comes; this process puts reports at the given rate. Every few seconds the memory of the job, its Java and
its Python workers is added up: what is theirs alone, without the queue that they map. In the end the job may finish,
and the rows of the table are counted against what was put.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as ds

from headrace.bench.report import Figure
from headrace.errors import PipelineError
from headrace.queue import Queue

NOT_MEASURED = ["state of windows and watermarks, which grows with what the SQL keeps", "other rates, other actions"]
_REPORT = "METAR K%s %02d%02d%02dZ 180%02dG%02dKT 10SM FEW080 12/M03 A3002="
_RULES = """
[pipeline]
queue = "queue"

[[rule]]
name = "metar"
select = "wx/text/metar"
decode = "metar"
sql = "select ident, station, observed, wind_gust from decoded"
table = "metar"
"""
_TICK_S = 0.1
_LOOK_S = 5.0
_START_S_MAX = 120.0
_END_S_MAX = 60.0

Progress = Callable[[str], None]


class Look(NamedTuple):
    """At the job, once in a while."""

    memory_bytes: int
    behind: int


def run(place: Path, minutes: float, rate: int, progress: Progress) -> Iterator[Figure]:
    """PipelineError: the job did not start, or ended by itself; its last words are in the message."""
    (place / "rules.toml").write_text(_RULES)
    with Queue.create(place / "queue", size="256MiB") as queue, (place / "job.log").open("wb") as log:
        job = subprocess.Popen(_command(place), stdout=log, stderr=log)
        try:
            progress("starting the job")
            _wait_for_start(place, job)
            put, looks = _stream(queue, place, job, minutes, rate, progress)
            _wait_for_rows(place, put)
            job.terminate()
            job.wait(60)
        finally:
            job.kill()
            job.wait()
    rows = sum(1 for _ in (place / "tables" / "metar").rglob("*.parquet")), _rows(place)
    yield from _figures(put, rows, minutes, looks)


def _figures(put: int, rows: tuple[int, int], minutes: float, looks: list[Look]) -> Iterator[Figure]:
    quarter = max(1, len(looks) // 4)
    early, late = (statistics.median(look.memory_bytes for look in part)
                   for part in (looks[quarter : 2 * quarter] or looks, looks[-quarter:]))  # fmt: skip
    yield Figure("products", "products put", put, "")
    yield Figure("missing", "rows missing or too many in the table", abs(put - rows[1]), "", 0, True)
    yield Figure("files", "files of the table", rows[0], "")
    yield Figure("memory", "memory of the job, last quarter", late / 2**20, "MiB")
    yield Figure("memory-max", "the same, at most", max(look.memory_bytes for look in looks) / 2**20, "MiB")
    yield Figure("growth", "last quarter to second quarter", late / early, "times", 1.05, True)
    yield Figure("behind", "sequences behind, at most", max(look.behind for look in looks), "")


def _command(place: Path) -> list[str]:
    words = "from headrace.cli.main import main; main()"
    return [sys.executable, "-c", words, "pipeline", "run", str(place / "rules.toml"), "--master", "local[2]"]


def _wait_for_start(place: Path, job: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _START_S_MAX
    while not (place / "rules.checkpoint" / "status.json").exists():
        if time.monotonic() > end or job.poll() is not None:
            raise _ended(place)
        time.sleep(0.2)


def _wait_for_rows(place: Path, put: int) -> None:
    """Until they are there, or it is clear that they will not come."""
    end = time.monotonic() + _END_S_MAX
    while _rows(place) < put and time.monotonic() < end:
        time.sleep(0.5)


def _ended(place: Path) -> PipelineError:
    words = (place / "job.log").read_text(errors="replace").strip().splitlines()
    return PipelineError(
        f"the job of the benchmark has ended: {words[-1] if words else 'without a word'}",
        "see that the machine has memory and time for Spark",
    )


def _stream(
    queue: Queue, place: Path, job: "subprocess.Popen[bytes]", minutes: float, rate: int, progress: Progress
) -> tuple[int, list[Look]]:
    """How many were put, and what was seen meanwhile."""
    begun, put, looks, told = time.monotonic(), 0, list[Look](), 0.0
    while (passed := time.monotonic() - begun) < minutes * 60:
        due = int(passed * rate)
        for number in range(put, due):
            queue.put(_report(number), feed="wx/text/metar", ident=f"SAUS70 {number}")
        put = due
        if passed >= (len(looks) + 1) * min(_LOOK_S, minutes * 15):
            looks.append(_look(place, job))
        if passed >= told:
            told += 60
            memory = f", {looks[-1].memory_bytes >> 20} MiB" if looks else ""
            progress(f"{passed / 60:.0f} min: {put:,} products{memory}")
        time.sleep(_TICK_S)
    return put, looks


def _report(number: int) -> bytes:
    name = "".join(chr(65 + number // 26**place % 26) for place in range(3))
    text = _REPORT % (name, 1 + number // 1440 % 28, number // 60 % 24, number % 60, number % 20, 10 + number % 30)
    return f"{text[:-1]} RMK {number}=".encode()


def _look(place: Path, job: "subprocess.Popen[bytes]") -> Look:
    if job.poll() is not None:
        raise _ended(place)
    status = json.loads((place / "rules.checkpoint" / "status.json").read_bytes())
    return Look(sum(_memory(process) for process in _family(job.pid)), status["rules"][0]["behind"])


def _family(head: int) -> list[int]:
    """A process and all that come from it."""
    family = [head]
    for parent in family:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                family += [int(child) for child in task.read_text().split()]
            except OSError:
                continue  # it has just ended
    return family


def _memory(process: int) -> int:
    """Bytes that are its own, or its share of what it has in common with others by a fork."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:"))


def _rows(place: Path) -> int:
    if not (place / "tables" / "metar").is_dir():
        return 0
    return int(ds.dataset(place / "tables" / "metar", format="parquet").count_rows())
