"""RuleStream: one query of a rule, which is begun again at its checkpoint when its trouble may heal.

    starting ─► running ─► done (available-now), stopped
                  │ ▲
                  ▼ │ a batch went well, or there was none to do
               retrying ─► failed            at once, if the trouble does not heal

The first pause is a second; each further one is twice as long, up to a minute. What was begun is a batch of Spark's
that comes again, with the same number; actions know it by that.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from headrace.pipeline.run.trouble import Trouble, is_java_gone, pause_s, trouble_of

STARTING, RUNNING, RETRYING, DONE, STOPPED, FAILED = "starting", "running", "retrying", "done", "stopped", "failed"
_OVER = (DONE, STOPPED, FAILED)


@dataclass
class RuleStream:
    """Used by one thread at a time."""

    name: str
    begin: Callable[[], StreamingQuery]
    attempts_max: int | None  # without a batch that went well; None: for ever
    query: StreamingQuery | None = None
    state: str = STARTING
    trouble: str = ""
    attempts: int = 0  # that have failed, one after the other
    retries: int = 0  # in all
    _again_at: float = 0.0

    def start(self) -> None:
        """Begin; what hinders it is trouble, and not raised. JAVA_GONE: nothing can be begun any more."""
        try:
            self.query = self.begin()
        except Exception as error:  # Spark's, Java's or py4j's; the text says which
            if is_java_gone(error):
                raise
            self._fall(trouble_of(f"{type(error).__module__}.{type(error).__name__}: {error}"))
            return
        if self.state == STARTING:
            self.state = RUNNING

    def look(self, may_begin: bool = True) -> None:
        """See how it gets on, and begin again if it is time."""
        if self.is_over or self.state == STARTING:
            return
        if self.query is None:
            if may_begin and time.monotonic() >= self._again_at:
                self.retries += 1
                self.start()
        elif self.query.isActive:
            if self.state == RETRYING and _is_well(self.query):
                self.state, self.trouble, self.attempts = RUNNING, "", 0
        elif (error := self.query.exception()) is not None:
            if self.query.lastProgress is not None:
                self.attempts = 0
            self._fall(trouble_of(f"{error}\n{_cause(error)}"))
        else:
            self.state, self.trouble = STOPPED if self.attempts_max is None else DONE, ""

    def _fall(self, trouble: Trouble) -> None:
        self.attempts += 1
        self.query, self.trouble = None, trouble.text
        if trouble.heals and (self.attempts_max is None or self.attempts < self.attempts_max):
            self.state, self._again_at = RETRYING, time.monotonic() + pause_s(self.attempts)
        else:
            self.state = FAILED

    @property
    def is_beginning(self) -> bool:
        """Whether Spark still makes ready for it: a Python process for its source, above all."""
        query = self.query
        return query is not None and query.isActive and query.status["message"].startswith("Initializing")

    @property
    def is_over(self) -> bool:
        return self.state in _OVER

    def stop(self) -> None:
        if self.query is not None:
            was_active = self.query.isActive
            self.query.stop()
            self.look()
            self.state = STOPPED if was_active and self.state == DONE else self.state
        if not self.is_over:
            self.state = STOPPED


def _cause(error: StreamingQueryException) -> str:
    """Java's trace of what is behind it: the error itself does not always say of which kind that was."""
    trace: str = getattr(getattr(error, "_cause", None), "_stackTrace", "")
    return trace


def _is_well(query: StreamingQuery) -> bool:
    """Whether something has been done since it was begun, or there is nothing to do."""
    return query.lastProgress is not None or query.status["message"].startswith("Waiting")


def worst(streams: list[RuleStream]) -> RuleStream:
    """The one whose state is that of the rule."""
    order = (FAILED, RETRYING, STARTING, RUNNING, STOPPED, DONE)
    return min(streams, key=lambda stream: order.index(stream.state))
