"""Spark and processing nodes on the slices of one stream: costs that nodes measured, and a fixed division."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Queue
from headrace.share.interface import Progress, Work
from headrace.slices import ProcessingNode
from support.waiting import until

Make = Callable[..., Queue]
SLICES, PRODUCTS = 8, 400


@pytest.fixture
def queue(make_queue: Make) -> Queue:
    queue = make_queue()
    queue.channel("s", "x", slices=SLICES)
    queue.put_many([b"%d" % n for n in range(PRODUCTS)], feed="x", ident=[f"i{n}" for n in range(PRODUCTS)])
    return queue


def test_tasks_of_spark_are_packed_by_what_a_group_has_measured(spark: Any, queue: Queue) -> None:
    share = queue.share("s", "slow")
    seat = share.join("node")
    numbers = np.arange(SLICES, dtype=np.uint32)
    share.give(0, seat.number, numbers, "hand")
    counts, costs = np.full(SLICES, 10, np.uint64), np.array([1000, *[1] * (SLICES - 1)], np.uint64)
    seat.exchange(Progress(work=Work(1, numbers, counts, counts * costs)))
    options = {"queue": str(queue.path), "columns": "sequence,slice", "partitionBy": "slice", "minPartitions": 2}
    reader = spark.read.format("headrace").options(**options, stream="s", group="slow")
    parts = [{row.slice for row in part} for part in reader.load().rdd.glom().collect()]
    assert parts == [{0}, set(range(1, SLICES))]


def test_spark_and_nodes_divide_a_stream_and_each_product_is_worked_on_once(
    spark: Any, queue: Queue, tmp_path: Path
) -> None:
    by_nodes, by_spark = list[int](), list[int]()
    frame = (
        spark.readStream.format("headrace")
        .options(queue=str(queue.path), select="x slice 0-2", partitionBy="slice", startingOffsets="earliest").load()
    )  # fmt: skip
    query = (
        frame.writeStream.foreachBatch(lambda rows, _: by_spark.extend(row.sequence for row in rows.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    with ProcessingNode(queue, "s", lambda product: by_nodes.append(product.sequence), group="nodes", only="3-7"):
        query.awaitTermination()
        until(lambda: len(by_nodes) + len(by_spark) >= PRODUCTS, lambda: (len(by_nodes), len(by_spark)))
    assert sorted(by_nodes + by_spark) == list(range(1, PRODUCTS + 1))
    assert min(len(by_nodes), len(by_spark)) > 0
