"""`headrace bench pipeline`: products through Spark, on this machine.

    batch       METAR reports of the generator, of about 220 B, into Spark's no-op sink, with all thirteen columns
                unless the figure says otherwise; and how soon the first rows of the queue are there
    stream      the same, and into Parquet: the whole queue at full speed, timed from the second micro-batch on
    fixed cost  micro-batches of one product
    latency     from before the put of one product until the micro-batch that wrote it to a table was committed
    decoding    METAR reports, in one thread, without Spark

Two others do the same work in the same run and session, and their figures are shown beside ours: Spark's own Parquet
source, and a bare Python source that hands over the same rows as ready Arrow batches (bare_source.py). The bare one
builds nothing, so the fraction of its rate shows what our side costs. Sources take turns, and the best of several
rounds counts, because other programs on the machine slow all of them down, but not at the same time. On a busy machine
processor time, of Java and Python together, tells more than seconds do; it is shown beside them.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.bench.process_tree import processor_s
from headrace.bench.report import Announce, Figure
from headrace.queue import Queue
from headrace.testing.generator import FeedGenerator

NOT_MEASURED = [
    "clusters, other machines, other table formats",
    "memory over an hour of streaming (headrace bench steady)",
    "decoders other than METAR; exec and pipe, which take as long as their programs",
]
_SEED = 7
_SIZE_MAX = 512
_DISTINCT = 20_000  # products; the queue has them again and again
_ROUNDS = 5
_THREE = "sequence,feed,payload"
_FEEDS = 5
_BARE = "bare.arrow"
_METAR = b"METAR K%c%c%c 1200%02dZ 18008G15KT 10SM FEW080 SCT120 12/M03 A30%02d RMK AO2 SLP%03d T01221028="


def run(place: Path, scale: float, announce: Announce) -> Iterator[Figure]:
    """Measure in a Spark session of its own."""
    announce("starting Spark")
    begun = time.perf_counter()
    from headrace.bench.bare_source import BareSource, write_batches
    from headrace.pipeline.source.session import spark_session
    from headrace.pipeline.spark.session import is_prepared

    spark = spark_session("headrace bench", "local[2]")
    work = Path(tempfile.mkdtemp(prefix="headrace-bench-spark-", dir=place))
    try:
        with Queue.create(work / "first", size="16MiB") as queue:
            queue.put(b"first", feed="bench")
            started = time.perf_counter()
            _read(spark, queue).collect()
            beside = "prepared" if is_prepared() else "not prepared: headrace pipeline prepare"
            yield Figure("start", "start to first batch", time.perf_counter() - begun, "s", 15, True, beside=beside)
            yield Figure("first", "of that, the first read", time.perf_counter() - started, "s")
        count = max(20_000, int(2_000_000 * scale))
        with Queue.create(work / "queue", size=f"{max(64, count * 600 >> 20)}MiB", dedup="none") as queue:
            _fill(queue, count)
            write_batches(queue, work / _BARE)
            spark.dataSource.register(BareSource)
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
    drafts = FeedGenerator(seed=_SEED, feeds=("metar",), products=_DISTINCT, duplicates=0.0, size_max=_SIZE_MAX)
    made = list(drafts)
    parts = [made[begin : begin + 1000] for begin in range(0, len(made), 1000)]
    for number in range(count // 1000):
        part = parts[number % len(parts)]
        queue.put_many(
            [draft.payload for draft in part], feed=f"bench/f{number % _FEEDS}", ident=[draft.ident for draft in part],
            created=[draft.created_ns for draft in part],
        )  # fmt: skip


def _read(spark: Any, queue: Queue, **options: Any) -> Any:
    return spark.read.format("headrace").options(**{"queue": str(queue.path), "columns": "*", **options}).load()


class Taken(NamedTuple):
    """What work took, by the clock and by the processors."""

    seconds: float
    processor_s: float


def _noop(*frames: Any) -> list[Taken]:
    """What it takes to write each DataFrame to the no-op sink, the best of several rounds in which they take turns."""
    return _best(*(frame.write.format("noop").mode("overwrite").save for frame in frames))


def _best(*works: Callable[[], object]) -> list[Taken]:
    taken: list[list[Taken]] = [[] for _ in works]
    for _ in range(_ROUNDS):
        for work, found in zip(works, taken, strict=True):
            found.append(_timed(work))
    return [Taken(*map(min, zip(*found, strict=True))) for found in taken]


def _timed(work: Callable[[], object]) -> Taken:
    begun, used = time.perf_counter(), processor_s(os.getpid())
    work()
    return Taken(time.perf_counter() - begun, processor_s(os.getpid()) - used)


def _batches(spark: Any, queue: Queue, work: Path, count: int, announce: Announce) -> Iterator[Figure]:
    announce("batch read, beside Parquet and a bare source")
    _read(spark, queue).write.mode("overwrite").parquet(str(work / "parquet"))
    stored = spark.read.parquet(str(work / "parquet"))
    ours, bare, parquet = _noop(_read(spark, queue), spark.read.format("bare").load(str(work / _BARE)), stored)
    beside = f"bare source {count / bare.seconds:,.0f}/s, Parquet {count / parquet.seconds:,.0f}/s"
    yield Figure("batch", "batch read, 220 B", count / ours.seconds, "/s", beside=beside)
    beside = f"by processor time {bare.processor_s / ours.processor_s:.2f}"
    fraction = bare.seconds / ours.seconds
    yield Figure("batch-bare", "batch read, fraction of a bare source's rate", fraction, "", 0.9, beside=beside)
    fraction = parquet.seconds / ours.seconds
    yield Figure("batch-parquet", "batch read, fraction of Parquet's rate", fraction, "", 0.8)
    (selected,) = _noop(_read(spark, queue, select="bench/f1"))
    yield Figure("selected", f"one feed of {_FEEDS} by select, speed-up", ours.seconds / selected.seconds, "", 3)
    (pushed,) = _noop(_read(spark, queue, pushFilters="true").filter("feed = 'bench/f1'"))
    yield Figure("pushed", "the same by a filter that Spark pushes down", ours.seconds / pushed.seconds, "", 3)
    narrow, few = _noop(_read(spark, queue, columns=_THREE), stored.select(*_THREE.split(",")))
    beside = f"Parquet: {count / few.seconds:,.0f}/s"
    yield Figure("columns", "three columns, 220 B", count / narrow.seconds, "/s", beside=beside)
    (first,) = _best(lambda: _read(spark, queue).limit(1).collect())
    yield Figure("limit", "limit(1), fraction of the time of the whole", first.seconds / ours.seconds, "", 0.5, True)


def _streams(spark: Any, queue: Queue, work: Path, count: int, announce: Announce) -> Iterator[Figure]:
    announce("streams")
    from headrace.bench.bare_source import BATCH_ROWS

    batches = max(1, count // 5 // BATCH_ROWS)

    def ours(columns: str) -> Any:
        reader = spark.readStream.format("headrace").options(queue=str(queue.path), startingOffsets="earliest")
        return reader.options(maxProductsPerTrigger=batches * BATCH_ROWS, columns=columns).load()

    bare = spark.readStream.format("bare").option("batchesPerTrigger", batches).load(str(work / _BARE))
    found: dict[str, list[Streamed]] = {"noop": [], "bare": []}
    for turn in range(_ROUNDS):
        for name, frame in (("noop", ours("*")), ("bare", bare)):
            found[name].append(_streamed(frame, "noop", work / f"{name}-{turn}"))
    rates = {name: max(each.rate for each in streams) for name, streams in found.items()}
    whole = {name: min(each.seconds for each in streams) for name, streams in found.items()}
    beside = f"bare source {rates['bare']:,.0f}/s"
    yield Figure("stream-noop", "stream to noop, sustained", rates["noop"], "/s", 1_000_000, beside=beside)
    beside = f"with the start of the query {whole['bare'] / whole['noop']:.2f}"
    fraction = rates["noop"] / rates["bare"]
    yield Figure("stream-bare", "stream, fraction of a bare source's rate", fraction, "", 0.9, beside=beside)
    few = _streamed(ours(_THREE), "noop", work / "few").rate
    yield Figure("stream-columns", "stream to noop, three columns, sustained", few, "/s")
    stored = _streamed(ours("*"), "parquet", work / "streamed").rate
    yield Figure("stream-parquet", "stream to parquet, sustained", stored, "/s", 200_000)


class Streamed(NamedTuple):
    """A stream to the end of its source: rows a second from the second micro-batch on, and the time of all of it."""

    rate: float
    seconds: float


def _streamed(frame: Any, sink: str, folder: Path) -> Streamed:
    begun = time.perf_counter()
    writer = frame.writeStream.format(sink).option("checkpointLocation", f"{folder}.checkpoint")
    writer = writer.option("path", str(folder)) if sink == "parquet" else writer
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    whole = time.perf_counter() - begun
    reports = [progress for progress in query.recentProgress if progress.numInputRows]
    reports = reports[1:] or reports
    seconds = sum(progress.durationMs["triggerExecution"] for progress in reports) / 1000
    return Streamed(float(sum(progress.numInputRows for progress in reports) / seconds), whole)


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
