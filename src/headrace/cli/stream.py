"""What commands share that read or write long streams: gaps, a reader that goes away, and signals.

A lost range and a damaged product are reported on standard error (as JSON with `--json`), and reading continues behind
them. A command whose output is a pipe ends when nobody reads the pipe any more. A command that puts products finishes
the current batch before Ctrl-C or SIGTERM takes effect, so that its totals are always correct.
"""

import os
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from headrace.cli.failure import notice
from headrace.errors import ProductDamagedError

if TYPE_CHECKING:
    from headrace.product import Batch, Lost
    from headrace.queue import AnyFollower, AnyQueue
    from headrace.selection import Selection

PUT_S_MAX = 0.5  # how long one put waits for a blocking station before pending signals are delivered


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
        threading.Thread(target=_wait_for_hangup, args=(output, stop, unread), daemon=True).start()
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

    def __enter__(self) -> None:
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
