"""Analyse what a queue holds with Spark, as a DataFrame: which feeds there are, and how large their products are.

For Spark teams. A batch reads a fixed range of the queue, here all of it. Arrow batches come from the queue as they
are; no Python code runs for each row.

    headrace queue create wx.queue --size 256MiB
    headrace generate wx.queue --products 2000 --fast
    python spark_batch.py
    python spark_batch.py wx.queue 'wx/radar/**'            only these
"""

import sys

from pyspark.sql import functions as f

from headrace.pipeline import spark_session


def main(queue: str = "wx.queue", select: str = "**") -> None:
    spark = spark_session("feeds of a queue")
    products = (
        spark.read.format("headrace")
        .option("queue", queue)
        .option("select", select)  # applied at the queue: what is not selected is not read
        .option("columns", "feed,created,payload")
        .load()
    )
    size = f.length("payload")
    kinds = (
        products.withColumn("kind", f.regexp_extract("feed", "^[^/]+/[^/]+", 0))
        .groupBy("kind")
        .agg(
            f.count("*").alias("products"),
            f.sum(size).alias("bytes"),
            f.percentile(size, 0.5).cast("long").alias("median"),
            f.max(size).alias("largest"),
            f.min("created").alias("first"),
            f.max("created").alias("last"),
        )
        .orderBy(f.desc("bytes"))
    )
    kinds.show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
