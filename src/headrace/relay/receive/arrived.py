"""What our own queue says has arrived, independently of progress.

    arrived_since   how far each feed is, after a run that ended before it could save its progress
    still_missing   what is really missing of a range that a site has evicted
    recognise       which of some products have arrived, whichever site brought them
    remember_held   for a queue without signatures: remember what it holds

Some of an evicted range may have arrived nevertheless: live, from other holders, or before a crash that made us forget
how far we were. Products that our queue holds are not lost, so the range shrinks from both ends to what is missing.
"""

import numpy as np
import numpy.typing as npt

from headrace.errors import ProductDamagedError
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.messages.inventory import Identities
from headrace.relay.receive.remembered import PRODUCTS_MAX, Remembered
from headrace.selection import Selection

_PRODUCTS = 100_000  # read at once
_WHOLE = 1 << 62  # bytes

SequenceRange = tuple[int, int]  # first and last sequence; empty if the first is the greater one


def arrived_since(queue: Queue, start: int) -> dict[str, dict[str, int]]:
    """By origin and feed: the origin sequence of the latest product that was put into our queue from `start` on."""
    latest: dict[str, dict[str, int]] = {}
    position = max(start, queue.oldest)
    while position < queue.next:
        try:
            batch = queue.read_batch(position, limit=10_000)
        except ProductDamagedError as error:  # it has arrived; which product it was is unknown
            position = error.next
            continue
        columns = batch.columns
        for origin, feed, sequence in zip(batch.origins, batch.feeds, columns["origin_sequence"].tolist(), strict=True):
            feeds = latest.setdefault(origin, {})
            feeds[feed] = max(sequence, feeds.get(feed, 0))
        position = batch.next
    return latest


def still_missing(queue: Queue, origin: str, first: int, last: int, since: int = 0) -> SequenceRange:
    """The part of `first` to `last`, in sequences of the origin's queue, of which something is missing in ours.

    Products before `since` in our queue are of an earlier queue of the origin.
    """
    held = _held(queue, origin, first, last, since)
    while first <= last and first in held:
        first += 1
    while first <= last and last in held:
        last -= 1
    return first, last


def _held(queue: Queue, origin: str, first: int, last: int, since: int) -> set[int]:
    found: set[int] = set()
    follower = queue.follow(max(since, queue.oldest), selection=Selection(origin=origin), limit=_PRODUCTS)
    while follower.position < queue.next:
        try:
            batch = follower.next_nowait()
        except ProductDamagedError as error:  # damaged here: not held
            follower.position, batch = error.next, None
        if batch is not None:
            there = batch.columns["origin_sequence"]
            found.update(there[(there >= np.uint64(first)) & (there <= np.uint64(last))].tolist())
    return found


# --- products of any origin -----------------------------------------------------------------------


def recognise(queue: Queue, remembered: Remembered, products: Identities) -> npt.NDArray[np.bool_]:
    """Which products have arrived: ours, those whose signature the queue holds, and those that are remembered."""
    is_signed: npt.NDArray[np.bool_] = np.any(products.signatures.view(np.uint64).reshape(-1, 2), axis=1)
    arrived: npt.NDArray[np.bool_] = products.is_ours.copy()
    signed = products.where(is_signed)
    arrived[is_signed] |= log_of(queue).find_signatures(signed.signatures, signed.kinds, signed.origins.tolist()) > 0
    arrived[~arrived] = remembered.knows(products.where(~arrived))
    return arrived


def remember_held(queue: Queue, remembered: Remembered) -> None:
    """Remember the latest products that the queue holds; their records are not verified, and payloads not read."""
    log = log_of(queue)
    read = log.reader(None, _PRODUCTS, _WHOLE, heads=True)
    position = max(queue.oldest, queue.next - PRODUCTS_MAX)
    while position < queue.next:
        try:
            batch = read(position)
        except ProductDamagedError as error:  # not held
            position = error.next
            continue
        remembered.add(batch.columns, log.kernel.names)
        position = batch.next
