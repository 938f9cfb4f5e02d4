"""RuleStream: one Spark query of a rule, restarted at its checkpoint after a transient failure.

    starting ─► running ─► done (available-now), stopped
                  │ ▲
                  ▼ │ a batch succeeded, or there was nothing to do
               retrying ─► failed            at once, if the failure is permanent

The first pause before a restart is a second; each further one is twice as long, up to a minute. A batch that was under
way comes again with the same number, by which actions recognise it.

On a busy machine a query may fail because one of its processes does not start in time. That says nothing about the
rule, so it has a limit of its own, and job.py then starts one query at a time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from headrace.pipeline.spark.failures import SLOW_START, Failure, failure_of, is_java_gone

STARTING, RUNNING, RETRYING, DONE, STOPPED, FAILED = "starting", "running", "retrying", "done", "stopped", "failed"
PAUSE_S_MAX = 60.0
SLOW_STARTS_MAX = 30  # one after the other, if attempts are limited
_SLOW_PAUSE_S = 2.0
_ENDED = (DONE, STOPPED, FAILED)


@dataclass
class RuleStream:
    """Used by one thread at a time."""

    name: str
    begin: Callable[[], StreamingQuery]
    attempts_max: int | None  # without a batch that succeeded; None: no limit
    query: StreamingQuery | None = None
    state: str = STARTING
    failure: str = ""
    attempts: int = 0  # that failed, one after the other
    slow_starts: int = 0  # attempts that ended because a process did not start in time, one after the other
    retries: int = 0  # in all
    _retry_at: float = 0.0

    def start(self) -> None:
        """Start the query; a failure is recorded, not raised. JAVA_GONE is raised: nothing can start any more."""
        try:
            self.query = self.begin()
        except Exception as error:  # Spark's, Java's or py4j's; the text says which
            if is_java_gone(error):
                raise
            self._fail(failure_of(f"{type(error).__module__}.{type(error).__name__}: {error}"))
            return
        if self.state == STARTING:
            self.state = RUNNING

    def update(self, may_begin: bool = True) -> None:
        """Update the state from Spark, and restart the query if its pause is over."""
        if self.has_ended or self.state == STARTING:
            return
        if self.query is None:
            if may_begin and time.monotonic() >= self._retry_at:
                self.retries += 1
                self.start()
        elif self.query.isActive:
            if self.state == RETRYING and _is_working(self.query):
                self.state, self.failure, self.attempts, self.slow_starts = RUNNING, "", 0, 0
        elif (error := self.query.exception()) is not None:
            if self.query.lastProgress is not None:
                self.attempts = self.slow_starts = 0
            self._fail(failure_of(f"{error}\n{_cause(error)}"))
        else:
            self.state, self.failure = STOPPED if self.attempts_max is None else DONE, ""

    def _fail(self, failure: Failure) -> None:
        if failure.text == SLOW_START:
            self.slow_starts += 1
        else:
            self.attempts += 1
        self.query, self.failure = None, failure.text
        if failure.is_transient and (self.attempts_max is None or self._has_attempts(self.attempts_max)):
            pause = pause_s(self.attempts) if failure.text != SLOW_START else _SLOW_PAUSE_S
            self.state, self._retry_at = RETRYING, time.monotonic() + pause
        else:
            self.state = FAILED

    def _has_attempts(self, attempts_max: int) -> bool:
        return self.attempts < attempts_max and self.slow_starts < SLOW_STARTS_MAX

    @property
    def is_initializing(self) -> bool:
        """Whether Spark still prepares the query, above all a Python process for its source."""
        query = self.query
        return query is not None and query.isActive and query.status["message"].startswith("Initializing")

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED

    def stop(self) -> None:
        if self.query is not None:
            was_active = self.query.isActive
            self.query.stop()
            self.update()
            self.state = STOPPED if was_active and self.state == DONE else self.state
        if not self.has_ended:
            self.state = STOPPED


def pause_s(attempts: int) -> float:
    """How long to wait before the next attempt after this many have failed."""
    return min(PAUSE_S_MAX, 2.0 ** min(attempts - 1, 10))


def _cause(error: StreamingQueryException) -> str:
    """Java's stack trace of the cause: the error itself does not always name its class."""
    trace: str = getattr(getattr(error, "_cause", None), "_stackTrace", "")
    return trace


def _is_working(query: StreamingQuery) -> bool:
    """Whether a batch succeeded since the query started, or there is nothing to do."""
    return query.lastProgress is not None or query.status["message"].startswith("Waiting")


def worst(streams: list[RuleStream]) -> RuleStream:
    """The stream whose state is that of the rule."""
    order = (FAILED, RETRYING, STARTING, RUNNING, STOPPED, DONE)
    return min(streams, key=lambda stream: order.index(stream.state))
