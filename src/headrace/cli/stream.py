"""What commands share that read or write long streams: gaps, a reader that goes away, and signals.

A lost range and a damaged product are reported on standard error (as JSON with `--json`), and reading continues behind
them. A command whose output is a pipe ends when nobody reads the pipe any more. A command that puts products waits for
blocking stations that are full and for a site that is away; Ctrl-C and SIGTERM take effect when the current put is
stored and counted, or while it waits, so that totals are always correct.
"""

import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from headrace.cli.failure import notice
from headrace.errors import BlockedError, ProductDamagedError, SiteUnreachableError
from headrace.guard import OnceThread
from headrace.units import parse_age

if TYPE_CHECKING:
    from headrace.log.columns import PutColumns, Texts
    from headrace.log.seams import Timeout
    from headrace.product import Batch, Lost
    from headrace.queue import AnyFollower, AnyQueue, Receipt
    from headrace.selection import Selection

PUT_S_MAX = 0.5  # how long one attempt of a put waits before pending signals are delivered

Outcome = TypeVar("Outcome")


class GapReports:
    """Reports lost ranges and damaged products on standard error, and counts the damaged ones for the exit code."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.damaged_products = 0

    def lost(self, lost: "Lost") -> None:
        range_of = {"first": lost.first, "last": lost.last, "products": lost.products}
        notice(f"lost {lost}: evicted before they were read", self._as_json, lost=range_of)

    def damaged(self, error: ProductDamagedError) -> None:
        self.damaged_products += 1
        range_of = {"first": error.sequence, "last": error.next - 1}
        notice(f"{error.problem}; reading continues at {error.next}", self._as_json, damaged=range_of)


def follow(follower: "AnyFollower", gaps: GapReports, stream: "Iterator[Batch] | None" = None) -> Iterator["Batch"]:
    """Batches as they arrive; lost ranges and damaged products are reported and skipped.

    `stream` is a release buffer or a pacer of the follower, to be read instead of it.
    """
    while True:
        try:
            for batch in follower if stream is None else stream:
                if batch.lost is not None:
                    gaps.lost(batch.lost)
                yield batch
            return
        except ProductDamagedError as error:
            gaps.damaged(error)
            follower.position = error.next


def read_range(queue: "AnyQueue", start: int, end: int, selection: "Selection", gaps: GapReports) -> Iterator["Batch"]:
    """The products that are held from `start` to `end`; the last batch may reach beyond `end`.

    One follower reads the whole range, so that a prescale counts across batches.
    """
    follower = queue.follow(start, selection, timeout=0)
    while follower.position < end:
        try:
            batch = follower.next_nowait()
        except ProductDamagedError as error:
            gaps.damaged(error)
            follower.position = error.next
            continue
        if batch is None:
            continue
        if batch.lost is not None:
            gaps.lost(batch.lost)
        yield batch


# --- the reader of standard output ----------------------------------------------------------------


def stop_when_unread(stop: Callable[[], None]) -> threading.Event:
    """Call `stop` as soon as nobody reads standard output any more, not only at the next product.

    The event is set then. Nothing happens unless standard output is a pipe.
    """
    unread = threading.Event()
    try:
        output = sys.stdout.fileno()
    except OSError:  # not a file at all
        return unread
    if stat.S_ISFIFO(os.fstat(output).st_mode):
        OnceThread(_wait_for_hangup, "headrace-hangup", args=(output, stop, unread)).start()
    return unread


def _wait_for_hangup(output: int, stop: Callable[[], None], unread: threading.Event) -> None:
    watcher = select.poll()
    watcher.register(output, 0)
    watcher.poll()
    unread.set()
    stop()


# --- signals --------------------------------------------------------------------------------------


class DeferredSignals:
    """`with DeferredSignals():` Ctrl-C and SIGTERM take effect at the end of the block. Main thread only."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}

    def deliver(self) -> None:
        """Inside the block: let a signal that has come take effect now."""
        if self._received is not None:
            self.__exit__(None, None, None)
            self.__enter__()

    def __enter__(self) -> None:
        self._received = None
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._received is not None and error is None:
            signal.raise_signal(self._received)


# --- puts -----------------------------------------------------------------------------------------


def put_patiently(
    put: Callable[..., Outcome], timeout_s: float | None = None, *, attempt_s: float | None = None,
    between: Callable[[], None] = lambda: None,
) -> Outcome:  # fmt: skip
    """The outcome of `put(timeout=…)`, which is made again while a blocking station is full, or its site is away.

    BlockedError: the station was full until `timeout_s`. SiteUnreachableError: the site was silent for longer than the
    patience of its connection. One attempt takes `attempt_s` at most; `between` is called between two attempts. What
    an attempt without a reply may have stored is not stored again. Loggers say what it waits for.
    """
    begun_s, attempt = time.monotonic(), put
    while True:
        left_s = None if timeout_s is None else max(0.0, begun_s + timeout_s - time.monotonic())
        is_last = attempt_s is None or (left_s is not None and left_s <= attempt_s)
        try:
            return attempt(timeout=left_s if is_last else attempt_s)
        except BlockedError:  # nothing was stored
            if is_last:
                raise
            attempt = put
        except SiteUnreachableError as error:
            if error.retry is None or not error.has_patience:
                raise
            attempt = error.retry
        between()


class PatientPuts:
    """What a command puts a stream with: `with puts:` put and count. Main thread only.

    A put waits as `put_patiently` does. Ctrl-C and SIGTERM take effect at the end of the block, or between two
    attempts.
    """

    def __init__(self, queue: "AnyQueue") -> None:
        self._queue, self._signals = queue, DeferredSignals()

    def put(self, put: Callable[..., Outcome], timeout_s: float | None = None) -> Outcome:
        """Any put of the queue, as a function of `timeout`."""
        return put_patiently(put, timeout_s, attempt_s=PUT_S_MAX, between=self._signals.deliver)

    def put_many(
        self, payloads: Any, *, feed: "Texts", ident: "Texts" = "", timeout: "Timeout" = None,
        **facts: "Unpack[PutColumns]",
    ) -> "Receipt":  # fmt: skip
        """As that of the queue."""
        seconds = None if timeout is None else parse_age(timeout, "timeout")
        return self.put(partial(self._queue.put_many, payloads, feed=feed, ident=ident, **facts), seconds)

    def __enter__(self) -> "PatientPuts":
        self._signals.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signals.__exit__(kind, error, trace)
