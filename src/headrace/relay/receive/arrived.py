"""Lost: what is really missing of a range that a site no longer has.

A site says from where to where its log was evicted before it was asked. Some of that may have arrived all the same:
live, from other holders, or before a death that made us forget how far we were. What is in our queue is not lost, so
the range ends where something is missing, on both sides.
"""

import numpy as np

from headrace.errors import ProductDamagedError
from headrace.queue import Queue
from headrace.selection import Selection

_PRODUCTS = 100_000  # looked at in one go

SequenceRange = tuple[int, int]  # first and last sequence; none if the first is the greater one


def still_missing(queue: Queue, origin: str, first: int, last: int) -> SequenceRange:
    """The part of `first` to `last`, in the numbers of the origin's queue, of which not everything is in ours."""
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
        except ProductDamagedError as error:  # here, and so it is not held
            follower.position, batch = error.next, None
        if batch is not None:
            there = batch.columns["origin_sequence"]
            found.update(there[(there >= np.uint64(first)) & (there <= np.uint64(last))].tolist())
    return found


def arrived_since(queue: Queue, start: int) -> dict[str, dict[str, int]]:
    """By origin and feed: the sequence there of the latest product that was put into our queue from `start` on."""
    latest: dict[str, dict[str, int]] = {}
    position = max(start, queue.oldest)
    while position < queue.next:
        batch = queue.read(position, limit=10_000)
        columns = batch.columns
        for origin, feed, sequence in zip(batch.origins, batch.feeds, columns["origin_sequence"].tolist(), strict=True):
            feeds = latest.setdefault(origin, {})
            feeds[feed] = max(sequence, feeds.get(feed, 0))
        position = batch.next
    return latest
