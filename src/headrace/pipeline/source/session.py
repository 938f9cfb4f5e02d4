"""Sessions of Spark that know the source.

    from headrace.pipeline import spark_session
    spark = spark_session()
    spark.read.format("headrace").option("queue", "wx.queue").load()

In a session of your own: `register(spark)`, which also lets Spark push filters down to the queue.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.udf import _wrap_function
from pyspark.sql.utils import is_remote

from headrace.pipeline.source.data_source import HeadraceSource
from headrace.pipeline.spark.failures import SPARK_ERRORS, is_java_gone, java_gone
from headrace.pipeline.spark.quiet import remedy_first
from headrace.pipeline.spark.session import start_spark

_PYTHON_SOURCES = "org.apache.spark.sql.execution.datasources.v2.python"


def register(spark: SparkSession) -> None:
    """Make `format("headrace")` known to this session.

    Over Spark Connect, call it before the `start()` of each stream: streams of one registration share what
    `_shareable_function` explains, and there the server makes it.
    """
    remedy_first()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    if is_remote():
        spark.dataSource.register(HeadraceSource)
        return
    source = getattr(_jvm(spark), f"{_PYTHON_SOURCES}.UserDefinedPythonDataSource")(_shareable_function(spark))
    spark._jsparkSession.dataSource().registerPython(HeadraceSource.name(), source)


def _shareable_function(spark: SparkSession) -> Any:
    """The source as Spark's Java side keeps it, with an environment that threads can share.

    All streams of a session share the environment of the source. Each adds variables to it when it starts, while others
    serialise it for their tasks. `spark.dataSource.register` uses a HashMap, which two starts at the same moment can
    corrupt for good: from then on every task of every stream fails with java.io.OptionalDataException (Spark 4.3).
    """
    made = _wrap_function(spark.sparkContext, HeadraceSource)
    jvm = _jvm(spark)
    return jvm.SimplePythonFunction(
        made.command(), jvm.java.util.concurrent.ConcurrentHashMap(made.envVars()), made.pythonIncludes(),
        made.pythonExec(), made.pythonVer(), made.broadcastVars(), made.accumulator(),
    )  # fmt: skip


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def spark_session(
    name: str = "headrace",
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    environment: Path | None = None,
) -> SparkSession:
    """Start a session with Headrace's defaults, or return the one that this process has; either knows the source.

    `settings` are Spark's own and override the defaults (spark/session.py). `environment` is an archive from
    `packing.packed_environment`; executors fetch it and run its Python. PipelineError: Java has ended.
    """
    try:
        spark = start_spark(name, master, settings, environment)
        register(spark)
    except SPARK_ERRORS as error:
        if is_java_gone(error):
            raise java_gone() from error
        raise
    return spark
