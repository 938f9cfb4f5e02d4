"""Holdings: what a log holds of the feeds that a client may receive, for what a site says about itself.

A client that may receive everything is told the queue's own totals. Anybody else is told totals of its feeds only,
which are counted by index rows when they are asked for; the origins of each feed are remembered, so that no row is
looked at twice.
"""

import threading
from typing import NamedTuple

import numpy as np

from headrace.link.rights import Feeds
from headrace.log.weights import PRODUCT_BYTES
from headrace.product.batch import ROW
from headrace.queue import Queue
from headrace.queue.queue import log_of

_ROWS = 65_536  # at a time
_NO_LIMIT = (1 << 63) - 1


class Held(NamedTuple):
    """Products that are held, and their payload bytes."""

    products: int
    payload_bytes: int


def held_of(queue: Queue, feeds: Feeds) -> Held:
    """What the queue holds of these feeds."""
    weights = log_of(queue).weigh(queue.oldest, queue.next, allowed=feeds.test)
    return Held(weights.count, weights.total - PRODUCT_BYTES * weights.count)


class Origins:
    """The origins of each feed's products, of all that was held since this was first asked. Threads share it."""

    def __init__(self, queue: Queue) -> None:
        self._queue, self._position = queue, 0
        self._pairs: set[tuple[int, int]] = set()  # numbers of a feed and of an origin
        self._lock = threading.Lock()

    def of(self, feeds: Feeds) -> tuple[str, ...]:
        """The origins of the products of these feeds."""
        with self._lock:
            self._look()
            names = log_of(self._queue).kernel.names
            wanted = {feed for feed in {feed for feed, _ in self._pairs} if names[feed] in feeds}
            return tuple(sorted({names[origin] for feed, origin in self._pairs if feed in wanted}))

    def _look(self) -> None:
        """Look at the rows that have come since."""
        log = log_of(self._queue).kernel
        position = max(self._position, log.first_from(self._position))
        while position < log.head:
            rows = log.rows()
            rows.pick(position, _ROWS, _NO_LIMIT, _NO_LIMIT, None)
            if rows.next == position:
                break  # damaged, or a row that is being written: a later look continues here
            position = rows.next
            rows.fill(0)  # the origin is known after that
            if len(rows):
                columns = np.frombuffer(rows, dtype=ROW)  # type: ignore[call-overload]
                both = columns["feed"].astype(np.uint64) << np.uint64(32) | columns["origin"].astype(np.uint64)
                self._pairs.update((pair >> 32, pair & 0xFFFF_FFFF) for pair in np.unique(both).tolist())
        self._position = position
        log.learn_names()
