"""Job: the rules of a file as Spark queries, each with a checkpoint of its own.

    source (select) ─► decode ─► sql ─► foreachBatch: actions, dead letters        one query for each rule

Queries do not wait for each other, and one that fails does not stop the others; stream.py decides when it is restarted.
In a file with many rules, some share a query (sharing.py, shared_batch.py). SQL without a watermark runs on each micro-
batch. With a watermark it is part of the stream; then decoding errors and times in the future have a second query,
which writes nothing but dead letters. A job that is killed and started again continues at its checkpoints: Spark
repeats the batch that was under way, and every action makes the effect exactly once (actions/).
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import PipelineError, RuleError
from headrace.guard import GuardedThread
from headrace.pipeline.actions import DeadLetters, Performer, performer
from headrace.pipeline.actions.programs import Programs, groups_of
from headrace.pipeline.actions.table import TablePerformer
from headrace.pipeline.decoders.decoder import ERROR
from headrace.pipeline.rules.conflicts import ldm_warnings
from headrace.pipeline.rules.otherwise import rules_above
from headrace.pipeline.rules.rule import AlertAction, PipeAction, Rule, RuleFile
from headrace.pipeline.run.checkpoint import locked_checkpoint, position_of, remove_unfinished_entries
from headrace.pipeline.run.decoding import decoded, marked, ship_decoders, without_future
from headrace.pipeline.run.matching import without_selected
from headrace.pipeline.run.micro_batch import READ, BatchHandler, decoded_rows, errors_name, queried
from headrace.pipeline.run.shared_batch import PlainHandler, SelectedHandler
from headrace.pipeline.run.sharing import Query, arranged, load_record, save_record
from headrace.pipeline.run.status import RuleStatus, save_status, update_from_spark
from headrace.pipeline.run.stream import FAILED, STOPPED, RuleStream, worst
from headrace.pipeline.run.terms import address_of, checkpoint_of, dead_letters, name_of, starting_offsets, station_of
from headrace.pipeline.source.options import ALL
from headrace.pipeline.spark.failures import AGAIN, SPARK_ERRORS, failure_of, is_java_gone, java_gone
from headrace.pipeline.spark.quiet import forget_batches

_STATUS_S = 1.0
_INITIALIZING_S, _INITIALIZING_S_MAX = 0.05, 10.0  # then Spark gives up, too
_WAIT_S = 0.1
_SIGNAL_S = 1.0  # between the end of Java and our own signal
_PARTITION_BYTES = 16 << 20  # rows come to the driver one partition at a time, which Java holds several times
_ATTEMPTS_MAX = 3  # with the trigger available-now: a user waits for the end

Act = Callable[[DataFrame, int], None]
Plan = tuple[str, DataFrame, Act]  # of a stream: its name, what it reads, and what to do with each batch

log = logging.getLogger("headrace.pipeline")


class Job:
    """Runs from `start` until `stop`, or until every rule has read the whole queue (trigger available-now)."""

    def __init__(self, file: RuleFile, spark: SparkSession) -> None:
        self._file, self._spark = file, spark
        self._streams: list[tuple[list[RuleStatus], list[RuleStream]]] = []
        self._performers: list[Performer] = []
        self._programs = Programs(file.pipeline.programs)
        self._groups = groups_of(dict(_pipes(file)), self._programs)
        self._held = ExitStack()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.ending = threading.Event()  # a signal handler may set it: then `wait` returns
        self._updater = GuardedThread(
            self._update_regularly, "headrace-status", until=self._stopped.is_set, daemon=True
        )
        self.statuses = [RuleStatus(rule.name) for rule in file.enabled]

    def start(self) -> None:
        """Start every rule. RuleError: Spark rejects a rule. PipelineError: another process runs them, Java has ended.
        After an error nothing was written, except by rules that had started before Java ended."""
        try:
            self._start()
        except SPARK_ERRORS as error:
            if is_java_gone(error):
                raise self._lost(error) from error
            raise

    def _start(self) -> None:
        for warning in ldm_warnings(self._file):
            log.warning("%s", warning)
        aside = Path(self._held.enter_context(TemporaryDirectory(prefix="headrace-")))
        ship_decoders(self._spark, self._file.enabled, self._file.path.parent, aside)  # before plans, which name them
        checkpoint = checkpoint_of(self._file.pipeline)
        record = load_record(checkpoint)
        queries = arranged(
            self._file.enabled, record, lambda name: position_of(checkpoint / name),
            lambda name: (checkpoint / name).is_dir(),
        )  # fmt: skip
        statuses = {status.rule: status for status in self.statuses}
        for query in queries:
            of_query = [statuses[rule.name] for rule in query.rules]
            self._streams.append((of_query, self._planned(query, of_query)))
        self._held.enter_context(locked_checkpoint(checkpoint))
        save_record(checkpoint, record)
        for each in self._performers:
            if isinstance(each, TablePerformer):
                each.tidy()
        self._updater.start()
        for stream in self._all():
            while not self._may_start_another():
                time.sleep(_INITIALIZING_S)  # Spark has no event for it
            stream.start()
        self._update()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until every rule has ended, for whatever reason, or `ending` is set; whether that is so.

        PipelineError: Spark has ended, or does not answer as it should.
        """
        end = None if seconds is None else time.monotonic() + seconds
        try:
            while not self.ending.is_set() and not self._has_ended():
                if end is not None and time.monotonic() >= end:
                    return False
                time.sleep(_WAIT_S)
        except SPARK_ERRORS as error:
            if not self._ends_too():
                raise self._lost(error) from error
        return True

    def _ends_too(self) -> bool:
        """Whether a signal that has ended Java reaches this process, too, as one to all processes of a service does."""
        end = time.monotonic() + _SIGNAL_S
        while not self.ending.is_set() and time.monotonic() < end:
            time.sleep(_WAIT_S)
        return self.ending.is_set()

    def stop(self) -> None:
        """Stop every rule. A batch under way is abandoned, and repeated at the next start; also if Java ends first, as
        after a signal to all processes of the job."""
        self._stopped.set()
        if self._updater.is_alive():
            self._updater.join()
        try:
            self._wait_for_sources()
            forget_batches()
            for stream in self._all():
                stream.stop()
            self._update()
        except SPARK_ERRORS as error:
            if not self.ending.is_set() and not is_java_gone(error):
                self._lost(error)
            for status in self.statuses:
                status.state = status.state if status.state == FAILED else STOPPED
        for each in self._performers:
            each.close()
        self._programs.close()
        if self._updater.ident is not None:  # it was started
            self._save()
        self._held.close()

    def _wait_for_sources(self) -> None:
        """Let streams that have just started connect to their Python processes, which else print why they could not."""
        end = time.monotonic() + _INITIALIZING_S_MAX
        while any(stream.is_initializing for stream in self._all()) and time.monotonic() < end:
            time.sleep(_INITIALIZING_S)

    @property
    def has_failed(self) -> bool:
        return any(status.state == FAILED for status in self.statuses)

    def _lost(self, cause: Exception) -> PipelineError:
        if is_java_gone(cause):
            error = java_gone()
        else:
            error = PipelineError(f"Spark cannot say how the rules are doing: {failure_of(str(cause)).text}", AGAIN)
        for status in self.statuses:
            status.state, status.failure = FAILED, str(error)
        return error

    # --- streams ----------------------------------------------------------------------------------

    def _planned(self, query: Query, statuses: list[RuleStatus]) -> list[RuleStream]:
        attempts_max = _ATTEMPTS_MAX if isinstance(self._file.pipeline.trigger, str) else None
        return [
            RuleStream(name, partial(self._begin, name, frame, act), attempts_max)
            for name, frame, act in self._plan(query, statuses)
        ]

    def _plan(self, query: Query, statuses: list[RuleStatus]) -> list[Plan]:
        """The streams of a query: name, DataFrame, and what to do with each batch. Nothing has started yet."""
        products, entries = self._products(query), checkpoint_of(self._file.pipeline) / query.name
        handlers = [self._handler(rule, query, status) for rule, status in zip(query.rules, statuses, strict=True)]
        if query.is_plain:
            rules = [rule for rule in self._file.rules if rule.enabled]
            return [(query.name, products, PlainHandler(entries, handlers, self._letters(), rules).handle)]
        plans = [self._plan_rule(products, handler) for handler in handlers]  # Spark checks every rule
        if not query.is_shared:
            return plans[0]
        folder = self._file.path.parent

        def rows_of(frame: DataFrame, handler: BatchHandler) -> DataFrame:
            return marked(frame) if handler.rule.decode is None else decoded(frame, handler.rule, folder)

        return [(query.name, products, SelectedHandler(entries, handlers, rows_of).handle)]

    def _handler(self, rule: Rule, query: Query, status: RuleStatus) -> BatchHandler:
        terms = self._file.pipeline
        letters, state = (
            self._letters("decode" if rule.decode or rule.watermark_s is not None else READ),
            checkpoint_of(terms) / "state" / query.name,
        )
        if query.is_shared and not query.is_plain:
            state /= rule.name
        actions = [
            performer(action, f"{name}-{n}", rule.select, letters, self._groups.get(f"{rule.name}.{name}-{n}"))
            for name, n, action in rule.actions()
        ]
        self._performers += [*actions, letters]
        return BatchHandler(
            rule, query.name, name_of(self._file), address_of(terms), checkpoint_of(terms), status, actions, letters,
            state,
        )  # fmt: skip

    def _letters(self, action: str = READ) -> DeadLetters:
        return DeadLetters(dead_letters(self._file.pipeline), action)

    def _plan_rule(self, products: DataFrame, handler: BatchHandler) -> list[Plan]:
        """The streams of a rule that has a query of its own. RuleError: Spark rejects the rule."""
        try:
            return self._planned_rule(products, handler)
        except AnalysisException as error:
            raise _rejected(handler.rule, error) from error

    def _planned_rule(self, products: DataFrame, handler: BatchHandler) -> list[Plan]:
        rule = handler.rule
        frame = marked(products) if rule.decode is None else decoded(products, rule, self._file.path.parent)
        frame = frame if rule.watermark_s is None else without_future(frame, rule)
        rows = decoded_rows(frame)
        if rule.watermark_s is not None:
            rows = rows.withWatermark(str(rule.watermark_column), f"{rule.watermark_s} seconds")
        if rule.sql is not None:
            rows = queried(rows, rule)
        for _, _, action in rule.actions():
            if isinstance(action, AlertAction):
                rows.filter(action.when)  # Spark checks the condition
        if rule.watermark_s is None:
            return [(rule.name, frame, handler.handle)]
        errors = frame.filter(f"{ERROR} is not null")
        return [(rule.name, rows, handler.handle_rows), (errors_name(rule), errors, handler.handle_errors)]

    def _products(self, query: Query) -> DataFrame:
        """What a query reads; without products that rules above select, if it has a single rule with `otherwise`."""
        above = () if query.is_plain else rules_above(self._file, query.rules[0])
        source = self._source(query)
        return (
            without_selected(source, tuple((n, str(rule.select)) for n, rule in enumerate(above))) if above else source
        )

    def _source(self, query: Query) -> DataFrame:
        terms = self._file.pipeline
        reader = self._spark.readStream.format("headrace").option("select", str(query.select)).option("columns", ALL)
        return (
            reader.options(**address_of(terms).options())
            .option("startingOffsets", starting_offsets(terms) if query.start is None else query.start)
            .option("maxProductsPerTrigger", terms.max_products)
            .option("maxBytesPerTrigger", terms.max_bytes)
            .option("maxBytesPerPartition", _PARTITION_BYTES)
            .option("fragments", "true")  # which become dead letters
            .option("failOnDataLoss", str(terms.on_loss != "count").lower())
            .option("station", station_of(self._file, query))
            .option("blocking", str(terms.on_loss == "hold").lower())
            .load()
        )

    def _begin(self, name: str, frame: DataFrame, act: Act) -> StreamingQuery:
        terms = self._file.pipeline
        checkpoint = checkpoint_of(terms) / name
        remove_unfinished_entries(checkpoint)
        writer = frame.writeStream.queryName(name).foreachBatch(act).option("checkpointLocation", str(checkpoint))
        if isinstance(terms.trigger, str):
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(terms.trigger * 1000)} milliseconds").start()

    def _all(self) -> list[RuleStream]:
        return [stream for _, streams in self._streams for stream in streams]

    def _may_start_another(self) -> bool:
        """Whether one more stream may start. Spark gives up on a Python process that takes longer than ten seconds to
        start, and with many at once each takes that long."""
        is_slow = any(stream.slow_starts for stream in self._all())
        return sum(stream.is_initializing for stream in self._all()) < (1 if is_slow else os.cpu_count() or 1)

    def _has_ended(self) -> bool:
        if any(stream.query is not None and stream.query.isActive for stream in self._all()):
            return False
        self._update()
        return all(stream.has_ended for stream in self._all())

    # --- status -----------------------------------------------------------------------------------

    def _update_regularly(self) -> None:
        while not self._stopped.wait(_STATUS_S):
            try:
                self._update()
            except SPARK_ERRORS as error:
                if is_java_gone(error):  # `wait` raises
                    return
                log.warning("Spark cannot say how the rules are doing: %s", failure_of(str(error)).text)
            self._save()

    def _update(self) -> None:
        with self._lock:
            for statuses, streams in self._streams:
                for stream in streams:
                    if not self._stopped.is_set() and not self.ending.is_set():
                        stream.update(stream.query is not None or self._may_start_another())
                    progress = None if stream.query is None else stream.query.lastProgress
                    if progress is not None and stream is streams[0]:
                        update_from_spark(statuses, progress)
                shown = worst(streams)
                for status in statuses:
                    status.state, status.failure = shown.state, shown.failure
                    status.retries = sum(stream.retries for stream in streams)

    def _save(self) -> None:
        try:
            save_status(self._file.pipeline, self._file.path, self.statuses)
        except OSError as error:
            log.warning("writing the status of the rules failed: %s", error)


def _rejected(rule: Rule, error: AnalysisException) -> RuleError:
    reason = str(error).strip().partition("\n")[0]
    return RuleError(f"rule {rule.name!r}: Spark rejects it: {reason}", "change its sql, or its condition")


def _pipes(file: RuleFile) -> Iterator[tuple[str, PipeAction]]:
    """Every action that may share programs, and its name within the pipeline."""
    for rule in file.enabled:
        for number, action in enumerate(rule.pipe):
            yield f"{rule.name}.pipe-{number}", action
