"""`headrace bench steady`: a pipeline under a steady stream, for as long as you like.

One rule decodes METAR reports, passes them through SQL and writes them to a Parquet table. The job is a process of its
own, with Spark's default settings; this process puts reports at the given rate. Every few seconds it adds up the
private memory of the job, its Java and its Python workers, without the queue that they map. In the end the job
finishes, and the rows of the table are compared with what was put.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as ds

from headrace.bench.process_tree import tree
from headrace.bench.report import Announce, Figure
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
_SAMPLE_S = 5.0
_START_S_MAX = 120.0
_END_S_MAX = 60.0


class Sample(NamedTuple):
    """One look at the job."""

    memory_bytes: int
    behind: int


def run(place: Path, minutes: float, rate: int, announce: Announce) -> Iterator[Figure]:
    """PipelineError: the job did not start, or ended early; the message has the last line of its log."""
    (place / "rules.toml").write_text(_RULES)
    with Queue.create(place / "queue", size="256MiB") as queue, (place / "job.log").open("wb") as log:
        job = subprocess.Popen(_command(place), stdout=log, stderr=log)
        try:
            announce("starting the job")
            _wait_for_start(place, job)
            put, samples = _stream(queue, place, job, minutes, rate, announce)
            _wait_for_rows(place, put)
            job.terminate()
            job.wait(60)
        finally:
            job.kill()
            job.wait()
    rows = sum(1 for _ in (place / "tables" / "metar").rglob("*.parquet")), _rows(place)
    yield from _figures(put, rows, samples)


def _figures(put: int, rows: tuple[int, int], samples: list[Sample]) -> Iterator[Figure]:
    quarter = max(1, len(samples) // 4)
    early, late = (statistics.median(sample.memory_bytes for sample in part)
                   for part in (samples[quarter : 2 * quarter] or samples, samples[-quarter:]))  # fmt: skip
    yield Figure("products", "products put", put, "")
    yield Figure("missing", "rows missing or too many in the table", abs(put - rows[1]), "", 0, True)
    yield Figure("files", "files in the table", rows[0], "")
    yield Figure("memory", "memory of the job, last quarter", late / 2**20, "MiB")
    most = max(sample.memory_bytes for sample in samples)
    yield Figure("memory-max", "memory of the job, maximum", most / 2**20, "MiB")
    yield Figure("growth", "memory, last quarter to second quarter", late / early, "times", 1.05, True)
    yield Figure("behind", "products behind, maximum", max(sample.behind for sample in samples), "")


def _command(place: Path) -> list[str]:
    program = "from headrace.cli.main import main; main()"
    return [sys.executable, "-c", program, "pipeline", "run", str(place / "rules.toml"), "--master", "local[2]"]


def _wait_for_start(place: Path, job: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _START_S_MAX
    while not (place / "rules.checkpoint" / "status.json").exists():
        if time.monotonic() > end or job.poll() is not None:
            raise _ended(place)
        time.sleep(0.2)


def _wait_for_rows(place: Path, put: int) -> None:
    """Wait until the table has all rows, or the timeout passes."""
    end = time.monotonic() + _END_S_MAX
    while _rows(place) < put and time.monotonic() < end:
        time.sleep(0.5)


def _ended(place: Path) -> PipelineError:
    lines = (place / "job.log").read_text(errors="replace").strip().splitlines()
    return PipelineError(
        f"the job of the benchmark ended: {lines[-1] if lines else 'its log is empty'}",
        "check that the machine has enough memory and is not overloaded",
    )


def _stream(
    queue: Queue, place: Path, job: "subprocess.Popen[bytes]", minutes: float, rate: int, announce: Announce
) -> tuple[int, list[Sample]]:
    """Put products at the given rate; return their number, and the samples taken meanwhile."""
    begun, put, samples, announced_s = time.monotonic(), 0, list[Sample](), 0.0
    while (passed := time.monotonic() - begun) < minutes * 60:
        due = int(passed * rate)
        for number in range(put, due):
            queue.put(_report(number), feed="wx/text/metar", ident=f"SAUS70 {number}")
        put = due
        if passed >= (len(samples) + 1) * min(_SAMPLE_S, minutes * 15):
            samples.append(_sample(place, job))
        if passed >= announced_s:
            announced_s += 60
            memory = f", {samples[-1].memory_bytes >> 20} MiB" if samples else ""
            announce(f"{passed / 60:.0f} min: {put:,} products{memory}")
        time.sleep(_TICK_S)
    return put, samples


def _report(number: int) -> bytes:
    name = "".join(chr(65 + number // 26**place % 26) for place in range(3))
    text = _REPORT % (name, 1 + number // 1440 % 28, number // 60 % 24, number % 60, number % 20, 10 + number % 30)
    return f"{text[:-1]} RMK {number}=".encode()


def _sample(place: Path, job: "subprocess.Popen[bytes]") -> Sample:
    if job.poll() is not None:
        raise _ended(place)
    status = json.loads((place / "rules.checkpoint" / "status.json").read_bytes())
    return Sample(sum(_memory(process) for process in tree(job.pid)), status["rules"][0]["behind"])


def _memory(process: int) -> int:
    """Private bytes of a process, with its share of pages that it has in common with others since a fork."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:"))


def _rows(place: Path) -> int:
    if not (place / "tables" / "metar").is_dir():
        return 0
    return int(ds.dataset(place / "tables" / "metar", format="parquet").count_rows())
