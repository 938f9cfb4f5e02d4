"""The data pipeline, on Spark: products as DataFrames, and rules that decode, file, store and publish them.

    from headrace.pipeline import spark_session

    spark = spark_session()
    products = spark.readStream.format("headrace").option("queue", "wx.queue").option("select", "wx/text/**").load()

In a session of your own, call `register(spark)`. Folders, in the order in which they may import each other:

    spark/      Spark itself: sessions, Java, environments for executors
    source/     the data source `headrace`: products as rows, rows as products
    decoders/   payloads as rows
    rules/      what to do with which products, from a file
    actions/    what a rule does with its rows: file, table, publish, exec, pipe, alert
    run/        rules at work: queries, checkpoints, micro-batches, restarts
    archive/    tables of products, put into a queue again
"""

import importlib
from typing import TYPE_CHECKING, Any

from headrace.extras import require

if TYPE_CHECKING:
    from headrace.pipeline.source.backlog import behind
    from headrace.pipeline.source.session import register, spark_session
    from headrace.pipeline.source.writers import put_batches

__all__ = ["behind", "put_batches", "register", "spark_session"]

_MODULES = {
    "behind": "source.backlog",
    "put_batches": "source.writers",
    "register": "source.session",
    "spark_session": "source.session",
}


def __getattr__(name: str) -> Any:
    """Import Spark only when one of these names is used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'headrace.pipeline' has no attribute {name!r}")
    require("spark")
    return getattr(importlib.import_module(f"headrace.pipeline.{_MODULES[name]}"), name)
