"""Warm-up: run Spark once as a pipeline does, so that Java can write the class archive of what it used.

    java -Xshare:dump          ─► base-<java>.jsa       Java's own classes (spark/home.py)
    Spark with two rules       ─► spark-<java>.jsa      written by Java when it ends, then renamed

This is what `headrace pipeline prepare` does. Both archives are written aside, so that another process finds them
complete or not at all.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from headrace.errors import PipelineError
from headrace.pipeline.rules.load import load_rules
from headrace.pipeline.run.job import Job
from headrace.pipeline.source.session import spark_session
from headrace.pipeline.spark.home import (
    JAVA_TIMEOUT_S,
    class_archives,
    publish_archive,
    remove_stale_homes,
    spark_home,
    write_base_archive,
)
from headrace.pipeline.spark.java import java_home
from headrace.pipeline.spark.session import LOGGING
from headrace.queue import Queue

_REPORT = b"METAR KDEN 1612%02dZ 18008G15KT 10SM FEW080 12/M03 A3002="
_RULES = """
[pipeline]
queue = "q"
trigger = "available-now"

[[rule]]
name = "reports"
select = "text"
decode = "metar"
table = "reports"
publish = { feed = "derived" }

[[rule]]
name = "hours"
select = "text"
sql = "select window.start as hour, count(*) as products from products group by window(created, '1 hour')"
watermark = "1min"
watermark_column = "created"
table = "hours"
"""


class PreparedHome(NamedTuple):
    """The home, and the size of its class archives."""

    home: Path
    bytes: int


def prepare(announce: Callable[[str], None]) -> PreparedHome:
    """Write the class archives for the Java that Spark uses here; `announce` is called with the name of each step.

    Call it in a process that has not started Spark; that process cannot start Spark afterwards. PipelineError.
    """
    home, java = spark_home(), java_home()
    if home is None:
        raise PipelineError(
            "Spark has no home folder that can be prepared",
            "unset SPARK_HOME, and make share/headrace of the Python environment writable",
        )
    archives = class_archives(home, java)
    part = home / f"spark.{os.getpid()}.part"
    try:
        announce("Java's own classes")
        write_base_archive(java, archives)
        announce("Spark, with two small rules")
        _run_spark(archives.options_to_record(part))
        publish_archive(part, archives.spark)
    except OSError as error:
        raise PipelineError(
            f"{home} is not writable: {error.strerror or error}", "make room, or change its permissions"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise PipelineError(
            f"Java took longer than {JAVA_TIMEOUT_S} s", "try again when the machine is idle"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    remove_stale_homes()
    return PreparedHome(home, sum(archive.stat().st_size for archive in archives))


def _run_spark(java_options: str) -> None:
    spark = spark_session("headrace", settings={"spark.driver.extraJavaOptions": f"{LOGGING} {java_options}"})
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
            _run_rules(Path(folder), spark)
    finally:
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # Java ends when its standard input does
        gateway.proc.wait(JAVA_TIMEOUT_S)


def _run_rules(folder: Path, spark: Any) -> None:
    (folder / "rules.toml").write_text(_RULES)
    with Queue.create(folder / "q", size="16MiB") as queue:
        queue.put_many([_REPORT % minute for minute in range(60)], feed="text")
    products = spark.read.format("headrace").option("queue", str(folder / "q")).option("columns", "*").load()
    products.groupBy("feed").count().collect()
    products.write.format("noop").mode("overwrite").save()
    job = Job(load_rules(folder / "rules.toml"), spark)
    try:
        job.start()
        job.wait(JAVA_TIMEOUT_S)
    finally:
        job.stop()
    if job.has_failed:
        raise PipelineError(f"the rules of the warm-up failed: {job.statuses}", "headrace pipeline check shows more")
