"""`headrace bench pipeline`: products through Spark, on this machine.

    batch       products of 200 B into Spark's no-op sink, with all thirteen columns unless the figure says otherwise
    stream      the same, and into Parquet: the whole queue at full speed, timed from the second micro-batch on
    fixed cost  micro-batches of one product
    latency     from before the put of one product until the micro-batch that wrote it to a table was committed
    decoding    METAR reports, in one thread, without Spark

Where Spark's own Parquet source can do the same work, it does so in the same run and session, and its figure is shown
beside ours.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.bench.report import Announce, Figure
from headrace.queue import Queue

NOT_MEASURED = [
    "clusters, other machines, other table formats",
    "memory over an hour of streaming (headrace bench steady)",
    "decoders other than METAR; exec and pipe, which take as long as their programs",
]
_SIZE = 200
_THREE = "sequence,feed,payload"
_FEEDS = 5
_METAR = b"METAR K%c%c%c 1200%02dZ 18008G15KT 10SM FEW080 SCT120 12/M03 A30%02d RMK AO2 SLP%03d T01221028="


def run(place: Path, scale: float, announce: Announce) -> Iterator[Figure]:
    """Measure in a Spark session of its own."""
    announce("starting Spark")
    begun = time.perf_counter()
    from headrace.pipeline.source.data_source import spark_session
    from headrace.pipeline.spark.session import is_prepared

    spark = spark_session("headrace bench", "local[2]")
    work = Path(tempfile.mkdtemp(prefix="headrace-bench-spark-", dir=place))
    try:
        with Queue.create(work / "first", size="16MiB") as queue:
            queue.put(b"first", feed="bench")
            _read(spark, queue).collect()
            beside = "prepared" if is_prepared() else "not prepared: headrace pipeline prepare"
            yield Figure("start", "start to first batch", time.perf_counter() - begun, "s", 15, True, beside=beside)
        count = max(20_000, int(2_000_000 * scale))
        with Queue.create(work / "queue", size=f"{max(64, count * 600 >> 20)}MiB", dedup="none") as queue:
            _fill(queue, count)
            yield from _batches(spark, queue, work, count, announce)
            yield from _streams(spark, queue, work, count, announce)
        announce("one product at a time")
        yield from _latency(spark, work, max(5, int(40 * scale)))
    finally:
        spark.stop()
        shutil.rmtree(work, ignore_errors=True)
    announce("METAR")
    yield from _decoding(max(2_000, int(40_000 * scale)))


def _fill(queue: Queue, count: int) -> None:
    payloads = [os.urandom(_SIZE) for _ in range(1000)]
    for begin in range(0, count, 1000):
        queue.put_many(payloads, feed=f"bench/f{begin // 1000 % _FEEDS}", ident=f"array {begin}")


def _read(spark: Any, queue: Queue, **options: Any) -> Any:
    return spark.read.format("headrace").options(**{"queue": str(queue.path), "columns": "*", **options}).load()


def _noop(frame: Any) -> float:
    """Seconds to write a DataFrame to the no-op sink, the best of three."""
    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def _batches(spark: Any, queue: Queue, work: Path, count: int, announce: Announce) -> Iterator[Figure]:
    announce("batch read, beside Parquet")
    _read(spark, queue).write.mode("overwrite").parquet(str(work / "parquet"))
    ours, parquet = _noop(_read(spark, queue)), _noop(spark.read.parquet(str(work / "parquet")))
    beside = f"Parquet of the same rows here: {count / parquet:,.0f}/s"
    yield Figure("batch", "batch read, 200 B", count / ours, "/s", beside=beside)
    yield Figure("batch-parquet", "batch read, fraction of Parquet's rate", parquet / ours, "", 0.8, beside=beside)
    selected = _noop(_read(spark, queue, select="bench/f1"))
    yield Figure("selected", f"one feed of {_FEEDS} by select, speed-up", ours / selected, "", 3)
    pushed = _noop(_read(spark, queue, pushFilters="true").filter("feed = 'bench/f1'"))
    yield Figure("pushed", "the same by a filter that Spark pushes down", ours / pushed, "", 3)
    narrow = _noop(_read(spark, queue, columns=_THREE))
    few = _noop(spark.read.parquet(str(work / "parquet")).select(*_THREE.split(",")))
    yield Figure("columns", "three columns, 200 B", count / narrow, "/s", beside=f"Parquet: {count / few:,.0f}/s")


def _streams(spark: Any, queue: Queue, work: Path, count: int, announce: Announce) -> Iterator[Figure]:
    announce("streams")
    kinds = (("noop", "noop", 1_000_000), ("columns", "noop, three columns", None), ("parquet", "parquet", 200_000))
    for name, what, goal in kinds:
        sink = "parquet" if name == "parquet" else "noop"
        stream = spark.readStream.format("headrace").options(
            queue=str(queue.path), startingOffsets="earliest", maxProductsPerTrigger=max(5_000, count // 5),
            columns=_THREE if name == "columns" else "*",
        )  # fmt: skip
        writer = stream.load().writeStream.format(sink).option("checkpointLocation", str(work / f"{name}.checkpoint"))
        if sink == "parquet":
            writer = writer.option("path", str(work / "streamed"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        reports = [progress for progress in query.recentProgress if progress.numInputRows][1:]
        seconds = sum(progress.durationMs["triggerExecution"] for progress in reports) / 1000
        rate = sum(progress.numInputRows for progress in reports) / seconds
        yield Figure(f"stream-{name}", f"stream to {what}, sustained", rate, "/s", goal)


def _latency(spark: Any, work: Path, count: int) -> Iterator[Figure]:
    """Put products one by one into a running stream; each batch is appended to a table."""
    committed: dict[int, float] = {}
    with Queue.create(work / "single", size="16MiB") as queue:
        frame = spark.readStream.format("headrace").options(queue=str(queue.path), startingOffsets="earliest").load()

        def take(batch: Any, number: int) -> None:
            batch.write.mode("append").parquet(str(work / "single.table"))
            for row in batch.select("sequence").collect():
                committed[row.sequence] = time.perf_counter()

        query = (
            frame.writeStream.foreachBatch(take).option("checkpointLocation", str(work / "single.checkpoint"))
            .trigger(processingTime="0 seconds").start()
        )  # fmt: skip
        put: dict[int, float] = {}
        for number in range(count + 3):
            moment = time.perf_counter()
            sequence = int(queue.put(b"%d" % number, feed="bench/single"))  # type: ignore[arg-type]
            put[sequence] = moment
            end = moment + 60
            while sequence not in committed and time.perf_counter() < end:
                time.sleep(0.002)
        durations = sorted(
            sum(progress.durationMs.get(part, 0) for part in ("latestOffset", "walCommit", "commitOffsets", "getBatch",
                                                             "queryPlanning"))
            for progress in query.recentProgress[3:] if progress.numInputRows
        )  # fmt: skip
        query.stop()
    taken = sorted(committed[sequence] - put[sequence] for sequence in list(put)[3:] if sequence in committed)
    yield Figure("batch-cost", "fixed cost of a micro-batch, p50", durations[len(durations) // 2], "ms", 100, True)
    yield Figure("put-to-table", "one product, put to table, p50", taken[len(taken) // 2], "s", 0.5, True)
    yield Figure("put-to-table-max", "one product, put to table, max", taken[-1], "s")


def _decoding(count: int) -> Iterator[Figure]:
    from headrace.pipeline.decoders import decoder

    reports = [_METAR % (65 + n % 26, 65 + n // 26 % 26, 65 + n // 676 % 26, n % 60, n % 100, n % 1000)
               for n in range(count)]  # fmt: skip
    metar = decoder("metar")
    created = pa.array([1_780_000_000_000_000] * 1000, pa.timestamp("us", tz="UTC"))
    begun, rows = time.process_time(), 0
    for begin in range(0, count - 999, 1000):
        batch = pa.RecordBatch.from_arrays(
            [pa.array(reports[begin : begin + 1000], pa.binary()), created, pa.array([""] * 1000)],
            names=["payload", "created", "ident"],
        )
        rows += metar.decode(batch).rows.num_rows
    yield Figure("metar", "METAR reports decoded", rows / (time.process_time() - begun), "/s per core", 20_000)
