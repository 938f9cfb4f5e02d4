"""Reading a queue to its end or for ever, telling what could not be had.

A lost range and a damaged product are told on standard error (as JSON with `--json`), and reading goes on behind them.
"""

import os
import select
import stat
import sys
import threading
from collections.abc import Iterator

from headrace.cli.failure import notice
from headrace.errors import ProductDamagedError
from headrace.product import Batch, Lost
from headrace.queue import AnyFollower, AnyQueue
from headrace.selection import Selection


class Told:
    """What was told on the way; `damaged` decides the exit code."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.lost_products = 0
        self.damaged_products = 0

    def lost(self, lost: Lost) -> None:
        self.lost_products += lost.products
        range_of = {"first": lost.first, "last": lost.last, "products": lost.products}
        notice(f"lost {lost}: they were evicted before they could be read", self._as_json, lost=range_of)

    def damaged(self, error: ProductDamagedError) -> None:
        self.damaged_products += 1
        range_of = {"first": error.sequence, "last": error.next - 1}
        notice(f"{error.problem}; reading on at {error.next}", self._as_json, damaged=range_of)


def follow(follower: AnyFollower, told: Told) -> Iterator[Batch]:
    """Batches as they come, lost ranges and damaged products told and passed over."""
    while True:
        try:
            for batch in follower:
                if batch.lost is not None:
                    told.lost(batch.lost)
                yield batch
            return
        except ProductDamagedError as error:
            told.damaged(error)
            follower.position = error.next


def read_range(queue: AnyQueue, start: int, end: int, selection: Selection, told: Told) -> Iterator[Batch]:
    """What is there from `start` up to `end`; the last batch may reach beyond `end`.

    One follower reads it all, so that a prescale counts through.
    """
    follower = queue.follow(start, selection, timeout=0)
    while follower.position < end:
        try:
            batch = follower.next_nowait()
        except ProductDamagedError as error:
            told.damaged(error)
            follower.position = error.next
            continue
        if batch is None:
            continue
        if batch.lost is not None:
            told.lost(batch.lost)
        yield batch


def stop_when_unread(follower: AnyFollower) -> threading.Event:
    """End the follower as soon as nobody reads our standard output any more, not only at the next product.

    The event is set then. Nothing happens unless standard output is a pipe.
    """
    unread = threading.Event()
    try:
        output = sys.stdout.fileno()
    except OSError:  # not a file at all
        return unread
    if stat.S_ISFIFO(os.fstat(output).st_mode):
        threading.Thread(target=_await_hangup, args=(output, follower, unread), daemon=True).start()
    return unread


def _await_hangup(output: int, follower: AnyFollower, unread: threading.Event) -> None:
    watcher = select.poll()
    watcher.register(output, 0)
    watcher.poll()
    unread.set()
    follower.stop()
