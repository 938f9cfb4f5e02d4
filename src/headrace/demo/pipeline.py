"""The pipeline of a demonstration: what `headrace pipeline run` does, on the queue of the second site.

The rules run while products arrive. At the command STOP each rule reads to the end of the queue. A rule that has failed
by then is started again and continues at its checkpoint: on a machine under load, Spark sometimes gives up a Python
worker that took ten seconds to start. The output of Spark and Java goes to a file beside the rules.

The rules are written as a user writes them, to a file that can be kept. Some stations report so often that their
observation times run ahead, by a seventh of the time that has passed; the watermark is late enough for the others.
"""

import math
import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from headrace.demo.plan import ALERT_FEED, Plan, observed_hours
from headrace.demo.processes import REPORT_S, Report, child_process
from headrace.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.run.job import Job

_MASTER = "local[2]"
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for a short run on few cores
GUST = 12.0  # m/s
METAR_FEED, RADAR_SELECT = "wx/text/metar", "wx/radar/**"
_AHEAD_SHARE = 0.2
_LATE_MIN = 12  # bulletins collect reports, and corrections come later

_RULES = """\
[pipeline]
queue = "{queue}"
trigger = "2s"

[[rule]]
name = "metar"
select = "{metar}"
decode = "metar"
table = "metar"
[rule.alert]
when = "wind_gust > {gust}"
feed = "{alert}"
ident = "{{station}} {{sequence}} {{report}}"
message = "{{station}}: gusts of {{wind_gust:.1}} m/s at {{observed:%H:%M}}"

[[rule]]
name = "hourly"
select = "{metar}"
decode = "metar"
watermark = "{watermark_min}min"
sql = '''
    select window.start as hour, station, count(*) as reports, avg(temperature) as temperature,
           min(temperature) as coldest, max(temperature) as warmest, max(wind_gust) as gust
    from decoded group by window(observed, '1 hour'), station'''
table = "hourly"

[[rule]]
name = "radar"
select = "{radar}"
[rule.file]
path = "{{feed}}/{{sequence:08}} {{ident}}"
mode = "each"

[spark]
local.dir = "{scratch}"
"""


def run_pipeline(plan: Plan, pipe: Connection) -> None:
    """Run the rules until the command STOP, then to the end of the queue."""
    with child_process(pipe):
        signal.signal(signal.SIGTERM, _exit)
        rules = write_rules(plan)
        _redirect_output(plan.pipeline / "spark.log")
        os.environ["JAVA_TOOL_OPTIONS"] = f"{_JAVA} {os.environ.get('JAVA_TOOL_OPTIONS', '')}"

        from headrace.pipeline.rules.load import load_rules
        from headrace.pipeline.run.job import Job
        from headrace.pipeline.source.session import spark_session

        file = load_rules(rules)
        spark = spark_session("headrace demo", _MASTER, dict(file.spark))
        try:
            job = Job(file, spark)
            _follow(job, spark, pipe)
            if any(status.failure for status in job.statuses):
                rest = msgspec.structs.replace(file.pipeline, trigger="available-now")
                job = Job(msgspec.structs.replace(file, pipeline=rest), spark)
                _run_to_end(job)
            _check(job)
            pipe.send(msgspec.structs.replace(_report(job), done=True))
        finally:
            spark.stop()


def _follow(job: "Job", spark: "SparkSession", pipe: Connection) -> None:
    """Follow the queue until STOP. A rule that fails here is started again later, at its checkpoint."""
    from pyspark.errors import StreamingQueryException

    job.start()
    try:
        while not pipe.poll(REPORT_S):
            pipe.send(_report(job))
        pipe.recv()
        for query in spark.streams.active:
            with suppress(StreamingQueryException):
                query.processAllAvailable()
            pipe.send(_report(job))
    finally:
        job.stop()


def _run_to_end(job: "Job") -> None:
    job.start()
    try:
        job.wait()
    finally:
        job.stop()


def _check(job: "Job") -> None:
    for status in job.statuses:
        if status.failure:
            raise PipelineError(
                f"rule {status.rule} has failed: {status.failure}",
                "run the demo with --keep, and read pipeline/spark.log in its folder",
            )


def _report(job: "Job") -> Report:
    rows = ", ".join(f"{status.rule} {status.rows:,}" for status in job.statuses)
    return Report(sum(status.rows for status in job.statuses), state=rows)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _redirect_output(log: Path) -> None:
    """Redirect the output of this process, and of those that it starts, to `log`."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)


# --- the rules ------------------------------------------------------------------------------------


def write_rules(plan: Plan) -> Path:
    """Write the rules to the directory of the pipeline."""
    plan.pipeline.mkdir(parents=True, exist_ok=True)
    file = plan.pipeline / "rules.toml"
    file.write_text(
        _RULES.format(
            queue=plan.second,
            metar=METAR_FEED,
            radar=RADAR_SELECT,
            alert=ALERT_FEED,
            gust=GUST,
            watermark_min=watermark_min(plan.seconds),
            scratch=plan.records,
        )
    )
    return file


def watermark_min(seconds: float) -> int:
    """How late a report may be, in minutes."""
    return _LATE_MIN + math.ceil(_AHEAD_SHARE * 60 * observed_hours(seconds))
