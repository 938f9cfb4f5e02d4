"""The pipeline of a demonstration: what `headrace pipeline run` does, on the queue of the second site.

Rules run while products come. Once the stage says that everything is there, each reads to the end of the queue. A rule
that has failed until then is started again, and goes on at its checkpoint: on a machine with too much to do, Spark now
and then gives up a Python worker that took ten seconds to start.

What Spark and Java have to say goes to a file beside the rules.
"""

import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from headrace.demo.actors import REPORT_S, Report, acting
from headrace.demo.plan import Plan
from headrace.demo.rules import write_rules
from headrace.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline.run.job import Job

_MASTER = "local[2]"
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for a short life on few cores


def run_pipeline(plan: Plan, pipe: Connection) -> None:
    """Until word comes through the pipe, and then to the end of the queue."""
    with acting(pipe):
        signal.signal(signal.SIGTERM, _leave)
        rules = write_rules(plan)
        _hush(plan.pipeline / "spark.log")
        os.environ["JAVA_TOOL_OPTIONS"] = f"{_JAVA} {os.environ.get('JAVA_TOOL_OPTIONS', '')}"

        from headrace.pipeline.rules.load import load_rules
        from headrace.pipeline.run.job import Job
        from headrace.pipeline.source.data_source import spark_session

        file = load_rules(rules)
        spark = spark_session("headrace demo", _MASTER, dict(file.spark))
        try:
            job = Job(file, spark)
            _follow(job, spark, pipe)
            if any(status.failure for status in job.statuses):
                rest = msgspec.structs.replace(file.pipeline, trigger="available-now")
                job = Job(msgspec.structs.replace(file, pipeline=rest), spark)
                _run_out(job)
            _check(job)
            pipe.send(msgspec.structs.replace(_report(job), done=True))
        finally:
            spark.stop()


def _follow(job: "Job", spark: "SparkSession", pipe: Connection) -> None:
    """A rule that has trouble in the end is no harm yet: it goes on at its checkpoint."""
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


def _run_out(job: "Job") -> None:
    job.start()
    try:
        job.wait()
    finally:
        job.stop()


def _check(job: "Job") -> None:
    for status in job.statuses:
        if status.failure:
            raise PipelineError(f"rule {status.rule} has failed: {status.failure}", "look into spark.log, with --path")


def _report(job: "Job") -> Report:
    rows = ", ".join(f"{status.rule} {status.rows:,}" for status in job.statuses)
    return Report(sum(status.rows for status in job.statuses), state=rows)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _hush(log: Path) -> None:
    """This process and those that it starts write to `log`."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
