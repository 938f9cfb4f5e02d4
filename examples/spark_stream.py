"""Stream products into a table with Spark: each product is one row, once, however often the program is stopped.

For Spark teams. Spark's checkpoint has the position in the queue. Here the stream ends when it has read what the queue
holds; with `.trigger(processingTime="2 seconds")` instead of `availableNow` it goes on.

Read the table with Spark: its list of valid files, `_spark_metadata`, is known to Spark only. pandas, DuckDB and polars
also see files of abandoned batches, and polars fails at `.crc` files. The table of a rule (rules.toml) has neither.

    headrace queue create wx.queue --size 256MiB
    headrace generate wx.queue --products 2000 --fast
    python spark_stream.py                       wx.queue; again: only what is new is added
    python spark_stream.py tcp/host:7447         the queue of a site
"""

import sys
from pathlib import Path

from pyspark.sql import functions as f

from headrace.pipeline import spark_session

TABLE, CHECKPOINT = "sizes.table", "sizes.checkpoint"


def main(where: str = "wx.queue") -> None:
    spark = spark_session("stream to a table")  # local[*]; finds a Java, or uses the one from PyPI
    products = (
        spark.readStream.format("headrace")
        .option("site" if "/" in where and not Path(where).exists() else "queue", where)
        .option("select", "wx/**")
        .option("startingOffsets", "earliest")
        .load()
    )
    sizes = products.select(
        "sequence", "feed", "ident", "created", f.length("payload").alias("bytes"), f.to_date("created").alias("day")
    )
    query = (
        sizes.writeStream.format("parquet")
        .option("path", TABLE)
        .option("checkpointLocation", CHECKPOINT)
        .partitionBy("day")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    table = spark.read.parquet(TABLE)
    print(f"{TABLE}: {table.count()} rows, {table.select('sequence').distinct().count()} products")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
