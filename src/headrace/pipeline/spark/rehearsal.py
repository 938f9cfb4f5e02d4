"""Rehearsal: Spark is started once and made to do what a pipeline does, so that Java can write down what it needed.

    java -Xshare:dump          ─► base-<java>.jsa       Java's own classes; not every Java comes with these
    Spark, some small rules    ─► spark-<java>.jsa      written by Java when it ends, then named

Both are written aside, so that another process finds them whole or not at all.
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
from headrace.pipeline.spark.home import Archives, archives_of, recording, remove_old, spark_home
from headrace.pipeline.spark.java import java_home
from headrace.pipeline.spark.session import LOGGING, spark_session
from headrace.queue import Queue

_PATIENCE_S = 300
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

Tell = Callable[[str], None]


class Prepared(NamedTuple):
    """What is there afterwards."""

    home: Path
    bytes: int


def prepare(tell: Tell) -> Prepared:
    """Write the archives for the Java that is used here. PipelineError: it cannot be done.

    For a process that has not started Spark; afterwards it cannot do so any more.
    """
    home, java = spark_home(), java_home()
    if home is None:
        raise PipelineError(
            "Spark has no home that could be prepared",
            "unset SPARK_HOME, and see that share/headrace of the Python environment can be written",
        )
    archives = archives_of(home, java)
    part = home / f"spark.{os.getpid()}.part"
    try:
        tell("Java's own classes")
        _write_base(java, archives)
        tell("Spark, with some small rules")
        _rehearse(recording(archives, part))
        _settle(part, archives.spark)
    except OSError as error:
        raise PipelineError(
            f"{home} cannot be written: {error.strerror or error}", "make room, or change its rights"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise PipelineError(f"Java takes longer than {_PATIENCE_S} s", "try again when the machine is idle") from error
    finally:
        part.unlink(missing_ok=True)
    remove_old()
    return Prepared(home, sum(archive.stat().st_size for archive in archives))


def _write_base(java: Path, archives: Archives) -> None:
    part = archives.base.with_suffix(f".{os.getpid()}.part")
    try:
        subprocess.run(
            [java / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={part}"],
            capture_output=True, check=False, timeout=_PATIENCE_S,
        )  # fmt: skip
        _settle(part, archives.base)
    finally:
        part.unlink(missing_ok=True)


def _settle(part: Path, archive: Path) -> None:
    """Flushed and named."""
    if not part.exists():
        raise PipelineError(
            "this Java does not write archives of its classes", "nothing is lost but seconds at a start"
        )
    descriptor = os.open(part, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.replace(archive)


def _rehearse(options: str) -> None:
    spark = spark_session("headrace", settings={"spark.driver.extraJavaOptions": f"{LOGGING} {options}"})
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
            _play(Path(folder), spark)
    finally:
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # Java ends when nobody can speak to it any more
        gateway.proc.wait(_PATIENCE_S)


def _play(folder: Path, spark: Any) -> None:
    (folder / "rules.toml").write_text(_RULES)
    with Queue.create(folder / "q", size="16MiB") as queue:
        queue.put_many([_REPORT % minute for minute in range(60)], feed="text")
    products = spark.read.format("headrace").option("queue", str(folder / "q")).load()
    products.groupBy("feed").count().collect()
    products.write.format("noop").mode("overwrite").save()
    job = Job(load_rules(folder / "rules.toml"), spark)
    try:
        job.start()
        job.wait(_PATIENCE_S)
    finally:
        job.stop()
    if job.has_failed:
        raise PipelineError(f"the rehearsal has failed: {job.statuses}", "headrace pipeline check tells more")
