"""The data pipeline, on Spark: products as DataFrames, and rules that decode, file, store and publish them.

    from headrace.pipeline import spark_session

    spark = spark_session()
    products = spark.readStream.format("headrace").option("queue", "wx.queue").option("select", "wx/text/**").load()

A session of one's own does as well: `register(spark)`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.pipeline.source.source import register
    from headrace.pipeline.source.writer import put_batches
    from headrace.pipeline.spark.session import spark_session

__all__ = ["put_batches", "register", "spark_session"]

_HOMES = {"put_batches": "source.writer", "register": "source.source", "spark_session": "spark.session"}


def __getattr__(name: str) -> Any:
    """Spark is loaded when something of it is used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace.pipeline' has no attribute {name!r}")
    return getattr(importlib.import_module(f"headrace.pipeline.{_HOMES[name]}"), name)
