"""Session: a SparkSession with Headrace's defaults.

`local[*]` needs nothing but a Java; any other master is used as it is. What is set here is what a stream of products
needs and Spark does not do by itself: micro-batches without a fixed cost of a quarter of a second, as many shuffle
partitions as there are cores, tasks that are tried again on one machine as they are on a cluster, times in Parquet
that every reader knows, UTC, and silence.
Whoever has a session of their own keeps it, and calls `register`.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.pipeline.source.source import register
from headrace.pipeline.spark.home import archives_of, at_home, sharing, spark_home
from headrace.pipeline.spark.java import java_home
from headrace.pipeline.spark.packing import shipped_python, shipping

_LOCAL = "local"
_LOCAL_MASTER = re.compile(r"local(?:\[\s*(\*|\d+)\s*\])?")
_TASK_TRIES = 4  # a cluster's default
_STREAMING = "org.apache.spark.sql.execution.streaming"
LOGGING = f'"-Dlog4j2.configurationFile=file:{Path(__file__).with_name("log4j2.properties")}"'  # Java's option: silence


def spark_session(
    name: str = "headrace",
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    environment: Path | None = None,
) -> SparkSession:
    """A session, or the one that this process has; `settings` are Spark's own and come last.

    `environment` is an archive (`packing.packed_environment`) that executors get and run Python from.
    """
    java = java_home()
    os.environ.setdefault("JAVA_HOME", str(java))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = {**defaults(master), **(settings or {})}
    if master.startswith(_LOCAL):
        home = spark_home()
        if home is not None and "spark.driver.extraJavaOptions" not in (settings or {}):
            chosen["spark.driver.extraJavaOptions"] += f" {sharing(archives_of(home, java))}"
        with at_home(home):
            return _made(name, master, chosen)
    if environment is None:
        return _made(name, master, chosen)
    with shipped_python(environment):
        return _made(name, master, chosen | shipping(environment, chosen))


def is_prepared(master: str = "local[*]") -> bool:
    """Whether Spark starts as fast as it can; on a cluster nothing can be prepared."""
    home = spark_home()
    return not master.startswith(_LOCAL) or home is None or archives_of(home, java_home()).are_there


def _made(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(name).master(trying_again(master))
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def trying_again(master: str) -> str:
    """The same master, which tries tasks again. Spark does not on one machine, unless the master says how often."""
    found = _LOCAL_MASTER.fullmatch(master)
    return master if found is None else f"local[{found[1] or 1},{_TASK_TRIES}]"


def defaults(master: str) -> dict[str, str]:
    """What we set."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass":
            f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": LOGGING,
    }  # fmt: skip
    if master.startswith(_LOCAL):
        chosen |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.python.daemon.module": "headrace.pipeline.spark.daemon",
        }
    return chosen
