"""What our own queue says has arrived from an origin, independently of progress.

    arrived_since   how far each feed is, after a run that ended before it could save its progress
    still_missing   what is really missing of a range that a site has evicted

Some of an evicted range may have arrived nevertheless: live, from other holders, or before a crash that made us forget
how far we were. Products that our queue holds are not lost, so the range shrinks from both ends to what is missing.
"""

import numpy as np

from headrace.errors import ProductDamagedError
from headrace.queue import Queue
from headrace.selection import Selection

_PRODUCTS = 100_000  # read at once

SequenceRange = tuple[int, int]  # first and last sequence; empty if the first is the greater one


def arrived_since(queue: Queue, start: int) -> dict[str, dict[str, int]]:
    """By origin and feed: the origin sequence of the latest product that was put into our queue from `start` on."""
    latest: dict[str, dict[str, int]] = {}
    position = max(start, queue.oldest)
    while position < queue.next:
        try:
            batch = queue.read(position, limit=10_000)
        except ProductDamagedError as error:  # it has arrived; which product it was is unknown
            position = error.next
            continue
        columns = batch.columns
        for origin, feed, sequence in zip(batch.origins, batch.feeds, columns["origin_sequence"].tolist(), strict=True):
            feeds = latest.setdefault(origin, {})
            feeds[feed] = max(sequence, feeds.get(feed, 0))
        position = batch.next
    return latest


def still_missing(queue: Queue, origin: str, first: int, last: int) -> SequenceRange:
    """The part of `first` to `last`, in sequences of the origin's queue, of which something is missing in ours."""
    held = _held(queue, origin, first, last)
    while first <= last and first in held:
        first += 1
    while first <= last and last in held:
        last -= 1
    return first, last


def _held(queue: Queue, origin: str, first: int, last: int) -> set[int]:
    found: set[int] = set()
    follower = queue.follow("oldest", selection=Selection(origin=origin), limit=_PRODUCTS)
    while follower.position < queue.next:
        try:
            batch = follower.next_nowait()
        except ProductDamagedError as error:  # damaged here: not held
            follower.position, batch = error.next, None
        if batch is not None:
            there = batch.columns["origin_sequence"]
            found.update(there[(there >= np.uint64(first)) & (there <= np.uint64(last))].tolist())
    return found
