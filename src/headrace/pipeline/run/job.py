"""Job: the rules of a file, each a stream of Spark's with a checkpoint of its own.

    source (select) ─► decode ─► sql ─► foreachBatch: actions, dead letters        one query for each rule

Rules do not wait for each other, and one that fails leaves the others alone; stream.py says when it is begun again. SQL
that needs no watermark runs on each micro-batch; with a watermark it is a part of the stream, and errors of decoding
and times in the future have a second query, which makes nothing but dead letters. A job that is killed and started
again goes on at its checkpoints: Spark repeats the batch that was under way, and every action makes that exactly once
(actions/).
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import PipelineError, RuleError
from headrace.pipeline.actions import DeadLetters, Performer, performer
from headrace.pipeline.decoders.decoder import ERROR
from headrace.pipeline.rules.rule import AlertAction, PipelineTerms, Rule, RuleFile
from headrace.pipeline.run.checkpoint import held_checkpoint
from headrace.pipeline.run.decoding import decoded, ship_decoders, without_future
from headrace.pipeline.run.notes import tidy_notes
from headrace.pipeline.run.status import RuleStatus, note_progress, save_status
from headrace.pipeline.run.step import Step, errors_name, good, queried
from headrace.pipeline.run.stream import FAILED, RuleStream, worst
from headrace.pipeline.run.trouble import JAVA_GONE
from headrace.pipeline.source.options import Place

_STATUS_S = 1.0
_ROOM_S = 0.05
_ATTEMPTS_MAX = 3  # with the trigger available-now, whose user waits

Act = Callable[[DataFrame, int], None]

log = logging.getLogger("headrace.pipeline")


class Job:
    """Runs from `start` until `stop`, or until every rule has read all that there was (trigger available-now)."""

    def __init__(self, file: RuleFile, spark: SparkSession) -> None:
        self._file, self._spark = file, spark
        self._streams: list[tuple[RuleStatus, list[RuleStream]]] = []
        self._performers: list[Performer] = []
        self._held = ExitStack()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._teller = threading.Thread(target=self._tell, name="headrace-status", daemon=True)
        self.statuses = [RuleStatus(rule.name) for rule in file.enabled]

    def start(self) -> None:
        """RuleError: Spark does not understand a rule. PipelineError: another process runs it. Nothing was touched."""
        aside = self._held.enter_context(TemporaryDirectory(prefix="headrace-"))
        ship_decoders(
            self._spark, self._file.enabled, self._file.path.parent, Path(aside)
        )  # plans name what is shipped
        for rule, status in zip(self._file.enabled, self.statuses, strict=True):
            try:
                self._streams.append((status, self._planned(rule, status)))
            except AnalysisException as error:
                raise _not_understood(rule, error) from error
        self._held.enter_context(held_checkpoint(checkpoint_of(self._file.pipeline)))
        self._teller.start()
        for stream in self._all():
            while not self._has_room():
                time.sleep(_ROOM_S)
            stream.start()
        self._look()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether every rule has ended by then, by itself or not. PipelineError: Spark is no more."""
        end = None if seconds is None else time.monotonic() + seconds
        try:
            while not self._is_over():
                if end is not None and time.monotonic() >= end:
                    return False
                time.sleep(0.1)
        except JAVA_GONE:
            raise self._lost() from None
        return True

    def stop(self) -> None:
        """The batch under way is given up; it is repeated at the next start."""
        self._stopped.set()
        if self._teller.is_alive():
            self._teller.join()
        try:
            for stream in self._all():
                stream.stop()
            self._look()
        except JAVA_GONE:
            self._lost()
        for each in self._performers:
            each.close()
        if self._teller.ident is not None:  # it was started
            self._save()
        self._held.close()

    @property
    def has_failed(self) -> bool:
        return any(status.state == FAILED for status in self.statuses)

    def _lost(self) -> PipelineError:
        error = PipelineError(
            "the Java process of Spark has ended",
            "start the pipeline again, and every rule goes on at its checkpoint; if it happens again, see whether the"
            " machine has memory for it ([spark] driver.memory)",
        )
        for status in self.statuses:
            status.state, status.trouble = FAILED, str(error)
        return error

    # --- streams ----------------------------------------------------------------------------------

    def _planned(self, rule: Rule, status: RuleStatus) -> list[RuleStream]:
        attempts_max = _ATTEMPTS_MAX if isinstance(self._file.pipeline.trigger, str) else None
        return [
            RuleStream(name, partial(self._begin, name, frame, act), attempts_max)
            for name, frame, act in self._plan(rule, status)
        ]

    def _plan(self, rule: Rule, status: RuleStatus) -> list[tuple[str, DataFrame, Act]]:
        """Frames of Spark's that know their columns, and have not begun."""
        terms, products = self._file.pipeline, self._source(rule)
        letters = DeadLetters(_dead_letters(terms))
        actions = [performer(action, f"{name}-{place}", rule.select, letters) for name, place, action in rule.actions()]
        self._performers += [*actions, letters]
        step = Step(rule, name_of(self._file), place_of(terms), checkpoint_of(terms), status, actions, letters)
        frame = products if rule.decode is None else decoded(products, rule, self._file.path.parent)
        frame = frame if rule.watermark_s is None else without_future(frame, rule)
        rows = good(frame) if ERROR in frame.columns else frame
        if rule.watermark_s is not None:
            rows = rows.withWatermark(str(rule.watermark_column), f"{rule.watermark_s} seconds")
        if rule.sql is not None:
            rows = queried(rows, rule)
        for _, _, action in rule.actions():
            if isinstance(action, AlertAction):
                rows.filter(action.when)
        if rule.watermark_s is None:
            return [(rule.name, frame, step.take)]
        errors = frame.filter(f"{ERROR} is not null")
        return [(rule.name, rows, step.take_rows), (errors_name(rule), errors, step.take_errors)]

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
            .option("failOnDataLoss", str(terms.on_loss != "count").lower())
            .option("station", station_of(self._file, rule))
            .option("blocking", str(terms.on_loss == "hold").lower())
            .load()
        )

    def _begin(self, name: str, frame: DataFrame, act: Act) -> StreamingQuery:
        terms = self._file.pipeline
        checkpoint = checkpoint_of(terms) / name
        tidy_notes(checkpoint)
        writer = frame.writeStream.queryName(name).foreachBatch(act).option("checkpointLocation", str(checkpoint))
        if isinstance(terms.trigger, str):
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(terms.trigger * 1000)} milliseconds").start()

    def _all(self) -> list[RuleStream]:
        return [stream for _, streams in self._streams for stream in streams]

    def _has_room(self) -> bool:
        """Whether one more stream may begin. Spark gives up a Python process that is not there after ten seconds, and
        that is how long it takes if there are many at once."""
        return sum(stream.is_beginning for stream in self._all()) < (os.cpu_count() or 1)

    def _is_over(self) -> bool:
        if any(stream.query is not None and stream.query.isActive for stream in self._all()):
            return False
        self._look()
        return all(stream.is_over for stream in self._all())

    # --- status -----------------------------------------------------------------------------------

    def _tell(self) -> None:
        while not self._stopped.wait(_STATUS_S):
            try:
                self._look()
            except JAVA_GONE:  # `wait` tells
                return
            self._save()

    def _look(self) -> None:
        with self._lock:
            for status, streams in self._streams:
                for stream in streams:
                    if not self._stopped.is_set():
                        stream.look(stream.query is not None or self._has_room())
                    progress = None if stream.query is None else stream.query.lastProgress
                    if progress is not None and stream.name == status.rule:
                        note_progress(status, progress)
                told = worst(streams)
                status.state, status.trouble = told.state, told.trouble
                status.retries = sum(stream.retries for stream in streams)

    def _save(self) -> None:
        try:
            save_status(self._file.pipeline, self._file.path, self.statuses)
        except OSError as error:
            log.warning("how the rules get on cannot be written: %s", error)


def _not_understood(rule: Rule, error: AnalysisException) -> RuleError:
    told = str(error).strip().partition("\n")[0]
    return RuleError(f"rule {rule.name!r}: Spark does not understand it: {told}", "change its sql, or its condition")


def place_of(terms: PipelineTerms) -> Place:
    return Place(None if terms.queue is None else str(terms.queue), terms.site)


def name_of(file: RuleFile) -> str:
    assert file.pipeline.name is not None
    return file.pipeline.name


def station_of(file: RuleFile, rule: Rule) -> str:
    return f"pipeline-{name_of(file)}-{rule.name}"


def checkpoint_of(terms: PipelineTerms) -> Path:
    assert terms.checkpoint is not None
    return terms.checkpoint


def _dead_letters(terms: PipelineTerms) -> Path:
    assert terms.tables is not None
    return terms.tables / terms.dead_letters


def _start(terms: PipelineTerms) -> str:
    if isinstance(terms.start, float | int):
        return f"{terms.start}s"
    return "latest" if terms.start == "now" else "earliest"
