"""A queue that is moved, deleted or replaced while Spark reads it: the query ends, and says what to do."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace import Queue
from headrace.errors import QueueMovedError
from headrace.pipeline.source.options import read_options
from headrace.pipeline.source.readers import BatchReader, SpanPartition, StreamReader
from support.waiting import until

CHECKPOINT = r"bring the old queue back, or give its new path; to read another queue, start with a new checkpoint$"


def created(path: Path, count: int) -> Path:
    with Queue.create(path, size="16MiB") as queue:
        queue.put_many([b"x"] * count, feed="a", ident=[str(number) for number in range(count)])
    return path


def moved(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


def replaced(path: Path) -> None:
    moved(path)
    created(path, 50)


def deleted_and_replaced(path: Path) -> None:
    shutil.rmtree(path)
    created(path, 50)


FATES = {
    "was moved to": moved,
    "was deleted while": shutil.rmtree,
    "was moved to .*another queue is there now": replaced,
    "was deleted .*another queue is there now": deleted_and_replaced,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return created(tmp_path / "a.queue", 30)


def rows(reader: StreamReader | BatchReader, parts: Any) -> list[int]:
    return [sequence for part in parts for batch in reader.read(part) for sequence in batch["sequence"].to_pylist()]


@pytest.mark.parametrize("station", [{}, {"station": "spark"}], ids=["without a station", "with a station"])
@pytest.mark.parametrize("told", FATES)
def test_an_idle_stream_notices_that_its_queue_is_gone(path: Path, told: str, station: dict[str, str]) -> None:
    reader = StreamReader(read_options({"queue": str(path), "startingOffsets": "earliest", **station}))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert rows(reader, reader.partitions(start, end)) == list(range(1, 31))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    FATES[told](path)
    with pytest.raises(QueueMovedError, match=f"{told}.*{CHECKPOINT}"):
        reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises(QueueMovedError, match=told):
        reader.reportLatestOffset()
    with pytest.raises(QueueMovedError, match=told):
        reader.partitions(start, end)


def test_a_stream_goes_on_when_its_queue_is_moved_back(path: Path) -> None:
    reader = StreamReader(read_options({"queue": str(path), "startingOffsets": "earliest"}))
    start = reader.initialOffset()
    moved(path)
    with pytest.raises(QueueMovedError):
        reader.latestOffset(start, ReadAllAvailable())
    path.with_suffix(".old").rename(path)
    assert reader.latestOffset(start, ReadAllAvailable())["sequence"] == 31


@pytest.fixture
def planned(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[StreamReader, SpanPartition]:
    """A stream and a task of it, in a process that has not opened the queue yet."""
    reader = StreamReader(read_options({"queue": str(path), "startingOffsets": "earliest"}))
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert isinstance(part, SpanPartition)
    monkeypatch.setattr("headrace.pipeline.source.open_queues._open", {})
    return reader, part


@pytest.mark.parametrize("gone", [moved, shutil.rmtree])
def test_a_task_without_its_queue_does_not_advise_to_create_one(
    path: Path, planned: tuple[StreamReader, SpanPartition], gone: Callable[[Path], None]
) -> None:
    reader, part = planned
    gone(path)
    with pytest.raises(QueueMovedError, match=f"was moved or deleted after the query had started; {CHECKPOINT}"):
        rows(reader, [part])


def test_a_task_does_not_read_another_queue(path: Path, planned: tuple[StreamReader, SpanPartition]) -> None:
    reader, part = planned
    replaced(path)
    with pytest.raises(QueueMovedError, match=f"was replaced by another one after the query had started; {CHECKPOINT}"):
        rows(reader, [part])


def test_a_batch_reads_the_queue_that_is_there_now(path: Path) -> None:
    options = read_options({"queue": str(path)})
    reader = BatchReader(options)
    assert len(rows(reader, reader.partitions())) == 30
    replaced(path)
    assert len(rows(reader, reader.partitions())) == 50


def test_a_query_of_spark_ends_when_its_queue_is_replaced(spark: Any, path: Path, tmp_path: Path) -> None:
    stream = spark.readStream.format("headrace").option("queue", str(path)).option("startingOffsets", "earliest").load()
    query = (
        stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds").start()
    )  # fmt: skip
    try:
        until((tmp_path / "checkpoint" / "commits" / "0").exists, "the first batch")
        deleted_and_replaced(path)  # it may notice in between
        with pytest.raises(Exception, match=r"(another queue is there now|had it open); bring the old queue back"):
            assert query.awaitTermination(60) is True
    finally:
        query.stop()
