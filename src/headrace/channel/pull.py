"""Pull supplier: a thread calls a function at an interval and pushes what it returns.

The function returns None (nothing new), one payload, a list of payloads (stored as one batch), or a mapping with the
arguments of a push (`{"payload": …, "ident": …}`). Ticks lie on a fixed grid, so that the interval does not drift. If
the function is slow, the ticks that it misses are skipped and counted; they are never made up for in a burst.

If the function raises, the thread retries with growing pauses, up to a minute. If the channel refuses what it returned
(rejected, disk full, a blocking station), the thread pushes that again before it calls the function again, so that no
product is dropped. The thread ends when the channel ends.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from headrace.channel.interface import AnySupplier
from headrace.channel.supplier import Prepared
from headrace.channel.worker import Worker
from headrace.errors import (
    BlockedError,
    ChannelEndedError,
    ChannelMissingError,
    FabricError,
    InvalidError,
    OptionError,
    QueueClosedError,
    QueueError,
)
from headrace.log.append import Duplicate, Receipt

EVERY_S_MIN = 0.001
BACK_OFF_S_MAX = 60.0
_END = (ChannelEndedError, ChannelMissingError, QueueClosedError)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PullStatistics:
    """What a pull supplier has done so far."""

    polls: int  # calls of the function
    pushed: int  # products that were stored, as in the statistics of the channel
    failures: int  # exceptions of the function, and refused pushes
    skipped: int  # ticks during a slow call or a pause after a failure
    pending: int  # pushes that the channel has not accepted yet
    latest_failure: str
    running: bool


def next_tick(begin_s: float, every_s: float, now_s: float, failures: int) -> tuple[int, float]:
    """Number and time of the next tick: the first after now, or after a pause that doubles with each failure."""
    pause_s = min(every_s * 2 ** min(failures, 32), max(every_s, BACK_OFF_S_MAX)) if failures else 0.0
    number = math.floor((now_s + pause_s - begin_s) / every_s) + 1
    return number, begin_s + number * every_s


class PullSupplier:
    """A function that is polled; get one from `Channel.pull`. End it with `stop`, or use it in a `with`."""

    def __init__(
        self, supplier: AnySupplier, function: Callable[[], Any], every_s: float, options: Mapping[str, Any]
    ) -> None:
        if not every_s >= EVERY_S_MIN:
            supplier.close()
            raise OptionError(f"every {every_s} s is too short", 'poll every millisecond at most, such as every="1s"')
        self._supplier, self._function, self._every_s, self._options = supplier, function, every_s, dict(options)
        self._channel = supplier.channel_name
        self._pending: deque[Prepared] = deque()
        self._polls = self._pushed = self._skipped = 0
        what = f"pull supplier of channel {self._channel!r}"
        self._worker = Worker(f"headrace-pull-{self._channel}", what, self._run, _log)
        self._worker.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop polling and wait for the running call; False if it takes longer than `timeout` seconds."""
        return self._worker.stop(timeout)

    def statistics(self) -> PullStatistics:
        return PullStatistics(
            polls=self._polls,
            pushed=self._pushed,
            failures=self._worker.errors.count,
            skipped=self._skipped,
            pending=len(self._pending),
            latest_failure=self._worker.errors.latest,
            running=self._worker.is_running,
        )

    def __enter__(self) -> "PullSupplier":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self._worker.is_running else "ended"
        return f"<PullSupplier of {self._channel!r} every {self._every_s:g} s, {state}>"

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        begin_s = due_s = time.monotonic()
        number, worker = 0, self._worker
        try:
            while not worker.ending.wait(max(0.0, due_s - time.monotonic())):
                try:
                    self._tick()
                except Exception as error:  # noqa: BLE001 - the thread goes on, whatever it was
                    worker.fail("an unexpected error", error)
                before = number
                number, due_s = next_tick(begin_s, self._every_s, time.monotonic(), worker.failures_in_a_row)
                self._skipped += number - before - 1
        finally:
            self._supplier.close()
            if self._pending:
                _log.warning(
                    "pull supplier of channel %r ended with %d unfinished pushes", self._channel, len(self._pending)
                )

    def _tick(self) -> None:
        """Store what is pending; call the function only if nothing is."""
        if not self._pending:
            try:
                self._polls += 1
                self._pending.extend(self._pushes(self._function()))
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything
                self._worker.fail("the function failed", error)
                return
        self._worker.failures_in_a_row = 0
        while self._pending and self._store(self._pending[0]):
            self._pending.popleft()

    def _store(self, push: Prepared) -> bool:
        """Whether this push is finished: stored, or invalid."""
        while True:
            try:
                self._pushed += _stored(push(self._supplier.push_s))
                return True
            except BlockedError:
                if self._worker.ending.is_set():
                    return False
            except _END as error:
                self._worker.fail("it ends", error)
                self._worker.ending.set()
                return False
            except FabricError as error:
                self._worker.fail("the site does not reply; the push will be repeated", error)
                return False
            except QueueError as error:
                self._worker.fail("the channel refused a push; it will be retried", error)
                return False
            except (InvalidError, TypeError, ValueError, OverflowError) as error:
                self._worker.fail("the function returned an invalid product", error)
                return True

    def _pushes(self, result: Any) -> Iterator[Prepared]:
        """The pushes for what the function returned."""
        if result is None:
            return
        if isinstance(result, Mapping):
            yield self._supplier.prepared(**{**self._options, **result})
        elif not isinstance(result, list | tuple):
            yield self._supplier.prepared(result, **self._options)
        elif any(isinstance(item, Mapping) for item in result):
            for item in result:
                yield from self._pushes(item)
        elif result:
            yield self._supplier.prepared_many(list(result), **self._options)


def _stored(outcome: int | Duplicate | Receipt) -> int:
    """How many products a push has stored."""
    return outcome.stored if isinstance(outcome, Receipt) else int(not isinstance(outcome, Duplicate))
