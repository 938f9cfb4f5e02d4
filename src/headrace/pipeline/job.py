"""Job: the rules of a file, each a stream of Spark's with a checkpoint of its own.

    source (select) ─► decode ─► sql ─► foreachBatch: actions, dead letters        one query for each rule

Rules do not wait for each other, and one that fails leaves the others alone. SQL that needs no watermark runs on each
micro-batch; with a watermark it is a part of the stream, and errors of decoding have a second query, which makes
nothing but dead letters. A job that is killed and started again goes on at its checkpoints: Spark repeats the batch
that was under way, and every action makes that exactly once (actions/).
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.pipeline.actions import Context, DeadLetters, Performer, performer
from headrace.pipeline.decoding import ERROR, PAYLOAD, decoded
from headrace.pipeline.rules.rule import PipelineTerms, Rule, RuleFile
from headrace.pipeline.rules.views import DECODED, PRODUCTS
from headrace.pipeline.source.options import Place
from headrace.pipeline.status import RuleStatus, note_progress, save_status, trouble_of

_STATUS_S = 1.0

Act = Callable[[DataFrame, int], None]


class Job:
    """Runs from `start` until `stop`, or until every rule has read all that there was (trigger available-now)."""

    def __init__(self, file: RuleFile, spark: SparkSession) -> None:
        self._file, self._spark = file, spark
        self._queries: list[tuple[RuleStatus, StreamingQuery]] = []
        self._performers: list[Performer] = []
        self._stopped = threading.Event()
        self._teller = threading.Thread(target=self._tell, name="headrace-status", daemon=True)
        self.statuses = [RuleStatus(rule.name) for rule in file.enabled]

    def start(self) -> None:
        for rule, status in zip(self._file.enabled, self.statuses, strict=True):
            for name, frame, act in self._streams(rule, status):
                self._queries.append((status, self._begin(rule, name, frame, act)))
            status.state = "running"
        self._teller.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether every rule has ended by then, by itself or not."""
        end = None if seconds is None else time.monotonic() + seconds
        while any(query.isActive for _, query in self._queries):
            if end is not None and time.monotonic() >= end:
                return False
            time.sleep(0.1)
        self._look()
        return True

    def stop(self) -> None:
        """The batch under way is given up; it is repeated at the next start."""
        for _, query in self._queries:
            query.stop()
        self._look()
        for each in self._performers:
            each.close()
        self._stopped.set()
        if self._teller.is_alive():
            self._teller.join()
        self._save()

    @property
    def has_failed(self) -> bool:
        return any(status.state == "failed" for status in self.statuses)

    # --- streams ----------------------------------------------------------------------------------

    def _streams(self, rule: Rule, status: RuleStatus) -> list[tuple[str, DataFrame, Act]]:
        products = self._source(rule)
        letters = DeadLetters(_dead_letters(self._file.pipeline))
        actions = [
            performer(action, f"{name}-{place}", rule.select.ident, letters) for name, place, action in rule.actions()
        ]
        self._performers += [*actions, letters]
        step = _Step(self._file, rule, status, actions, letters)
        frame = products if rule.decode is None else decoded(products, rule, self._file.path.parent)
        if rule.watermark_s is None:
            return [(rule.name, frame, step.take)]
        rows = frame if rule.decode is None else _good(frame)
        rows = rows.withWatermark(str(rule.watermark_column), f"{rule.watermark_s} seconds")
        if rule.sql is not None:
            rows.createOrReplaceTempView(PRODUCTS if rule.decode is None else DECODED)
            rows = self._spark.sql(rule.sql)
        streams: list[tuple[str, DataFrame, Act]] = [(rule.name, rows, step.act)]
        if rule.decode is not None:
            streams.append((f"{rule.name}.errors", frame.filter(f"{ERROR} is not null"), step.bury))
        return streams

    def _source(self, rule: Rule) -> DataFrame:
        terms = self._file.pipeline
        reader = self._spark.readStream.format("headrace").option("select", str(rule.select))
        place = place_of(terms)
        for name, value in (("queue", place.queue), ("site", place.site)):
            if value is not None:
                reader = reader.option(name, value)
        return (
            reader.option("startingOffsets", _start(terms))
            .option("maxProductsPerTrigger", terms.max_products)
            .option("maxBytesPerTrigger", terms.max_bytes)
            .option("failOnDataLoss", str(terms.on_loss == "fail").lower())
            .option("station", station_of(self._file, rule))
            .load()
        )

    def _begin(self, rule: Rule, name: str, frame: DataFrame, act: Act) -> StreamingQuery:
        terms = self._file.pipeline
        writer = (
            frame.writeStream.queryName(name).foreachBatch(act)
            .option("checkpointLocation", str(_checkpoint(terms) / name))
        )  # fmt: skip
        if isinstance(terms.trigger, str):
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(terms.trigger * 1000)} milliseconds").start()

    # --- status -----------------------------------------------------------------------------------

    def _tell(self) -> None:
        while not self._stopped.wait(_STATUS_S):
            self._look()
            self._save()

    def _look(self) -> None:
        for status, query in self._queries:
            trouble = trouble_of(query)
            if trouble:
                status.state, status.trouble = "failed", trouble
            elif not query.isActive and status.state == "running":
                status.state = "done" if isinstance(self._file.pipeline.trigger, str) else "stopped"
            progress = query.lastProgress
            if progress is not None and query.name == status.rule:
                note_progress(status, progress)

    def _save(self) -> None:
        save_status(self._file.pipeline, self._file.path, self.statuses)


class _Step:
    """What happens to one micro-batch of a rule, on the driver."""

    def __init__(
        self, file: RuleFile, rule: Rule, status: RuleStatus, actions: list[Performer], letters: DeadLetters
    ) -> None:
        self._file, self._rule, self._status = file, rule, status
        self._actions, self._letters = actions, letters

    def take(self, frame: DataFrame, batch_id: int) -> None:
        """Rows and errors together."""
        if self._rule.decode is not None:
            frame = frame.persist()
        try:
            rows = frame
            if self._rule.decode is not None:
                self.bury(frame.filter(f"{ERROR} is not null"), batch_id)
                rows = _good(frame)
            if self._rule.sql is not None:
                rows.createOrReplaceTempView(PRODUCTS if self._rule.decode is None else DECODED)
                rows = rows.sparkSession.sql(self._rule.sql)
            self.act(rows, batch_id)
        finally:
            frame.unpersist()

    def act(self, rows: DataFrame, batch_id: int) -> None:
        shared = len(self._actions) > 1
        if shared:
            rows = rows.persist()
        try:
            for place, action in enumerate(self._actions):
                counts = action.perform(rows, self._context(batch_id))
                self._status.rows += counts.rows if place == 0 else 0
                self._status.failed += counts.failed
            self._status.batches += 1
        finally:
            if shared:
                rows.unpersist()

    def bury(self, errors: DataFrame, batch_id: int) -> None:
        """Products that could not be decoded."""
        told = errors.selectExpr("sequence", "feed", "ident", f"{PAYLOAD} as payload", f"{ERROR} as error")
        self._status.errors += self._letters.perform(told, self._context(batch_id)).failed

    def _context(self, batch_id: int) -> Context:
        state = _checkpoint(self._file.pipeline) / "state" / self._rule.name
        return Context(self._rule.name, batch_id, place_of(self._file.pipeline), state, application_of(self._file))


def _good(frame: DataFrame) -> DataFrame:
    return frame.filter(f"{ERROR} is null").drop(ERROR, PAYLOAD)


def place_of(terms: PipelineTerms) -> Place:
    return Place(None if terms.queue is None else str(terms.queue), terms.site)


def application_of(file: RuleFile) -> str:
    """Stable over restarts."""
    return file.path.stem


def station_of(file: RuleFile, rule: Rule) -> str:
    return f"pipeline-{application_of(file)}-{rule.name}"


def _checkpoint(terms: PipelineTerms) -> Path:
    assert terms.checkpoint is not None
    return terms.checkpoint


def _dead_letters(terms: PipelineTerms) -> Path:
    assert terms.tables is not None
    return terms.tables / terms.dead_letters


def _start(terms: PipelineTerms) -> str:
    if isinstance(terms.start, float | int):
        return f"{terms.start}s"
    return "latest" if terms.start == "now" else "earliest"
