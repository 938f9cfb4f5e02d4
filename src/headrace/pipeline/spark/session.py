"""Start Spark, with settings that fit streams of products.

`local[*]` needs nothing but a Java; any other master is used as it is. The settings are what a stream of products needs
and Spark does not do by default: micro-batches without a fixed cost of a quarter of a second, as many shuffle
partitions as there are cores, task retries on one machine as on a cluster, timestamps in Parquet that every reader
understands, UTC, and no output but errors.

Not here: the data source. `headrace.pipeline.spark_session` (source/session.py) starts a session by this module
and registers it.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.pipeline.spark.home import class_archives, spark_home, using_home
from headrace.pipeline.spark.java import ending_java, java_home, using_java
from headrace.pipeline.spark.packing import driver_python, executor_settings
from headrace.pipeline.spark.python import DAEMON, using_daemon
from headrace.pipeline.spark.quiet import forget_interrupts, forget_java, forget_queries
from headrace.pipeline.spark.stages import shown_stages

_LOCAL = "local"
_LOCAL_MASTER = re.compile(r"local(?:\[\s*(\*|\d+)\s*\])?")
_TASK_ATTEMPTS = 4  # a cluster's default
_STREAMING = "org.apache.spark.sql.execution.streaming"
_HEAP_BYTES = 32 << 20
LOGGING = f'"-Dlog4j2.configurationFile=file:{Path(__file__).with_name("log4j2.properties")}"'  # for Java: errors only


def start_spark(
    name: str, master: str, settings: Mapping[str, str] | None = None, environment: Path | None = None
) -> SparkSession:
    """Start a session, or return the one that this process has.

    `settings` are Spark's own and override the defaults. `environment` is an archive from
    `packing.packed_environment`; executors fetch it and run its Python.
    """
    with shown_stages() as announce:
        announce("looking for Java")
        java = java_home()
        announce(f"starting on {master}")
        with using_java(java):
            return _start(name, master, dict(settings or {}), environment, java)


def _start(name: str, master: str, settings: dict[str, str], environment: Path | None, java: Path) -> SparkSession:
    forget_interrupts()
    forget_java()
    forget_queries()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    chosen = {**default_settings(master), **settings}
    if master.startswith(_LOCAL):
        home = spark_home()
        if home is not None and "spark.driver.extraJavaOptions" not in settings:
            chosen["spark.driver.extraJavaOptions"] += f" {class_archives(home, java).options_to_use()}"
        with using_home(home), using_daemon(for_tasks=True):
            return _started(name, master, chosen)
    if environment is None:
        with using_daemon(for_tasks=False):
            return _started(name, master, chosen)
    with driver_python(environment), using_daemon(for_tasks=False):
        return _started(name, master, chosen | executor_settings(environment, chosen))


def is_prepared(master: str = "local[*]") -> bool:
    """Whether `headrace pipeline prepare` would not make a start faster; on a cluster it never does."""
    home = spark_home()
    return not master.startswith(_LOCAL) or home is None or class_archives(home, java_home()).exist


def _started(name: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName(name).master(with_retries(master))
    for key, value in settings.items():
        builder = builder.config(key, value)
    with ending_java():
        return builder.getOrCreate()


def with_retries(master: str) -> str:
    """The same master with task retries. On one machine Spark has none unless the master names a number."""
    found = _LOCAL_MASTER.fullmatch(master)
    return master if found is None else f"local[{found[1] or 1},{_TASK_ATTEMPTS}]"


def default_settings(master: str) -> dict[str, str]:
    """Headrace's settings of Spark; the user's override them."""
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
        "spark.driver.extraJavaOptions": f"{LOGGING} -XX:+ExitOnOutOfMemoryError",  # else Spark may hang
        # By default glibc returns the memory of every batch to the system, and gets it back page by page.
        "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(_HEAP_BYTES),
        "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(2 * _HEAP_BYTES),
    }  # fmt: skip
    if master.startswith(_LOCAL):
        chosen |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.python.daemon.module": DAEMON,
        }
    return chosen
