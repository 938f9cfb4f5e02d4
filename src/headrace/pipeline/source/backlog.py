"""Backlog: how far a stream is behind, for `query.lastProgress` and `headrace pipeline status`.

Spark has no place for metrics of a Python source, but shows what the source reports as its latest offset. So that
offset has more than a position:

    {"queue": "0b7f...", "sequence": 4800, "lost": 0, "behind_products": 89, "behind_s": 2.5}

Only products that the selection matches count, as `Queue.weigh` counts them. `behind` is what remains after the batch
that Spark reports, at the time when that batch was planned.
"""

import time
from typing import NamedTuple

import msgspec
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import ProductDamagedError
from headrace.queue import AnyQueue
from headrace.selection import Selection

_SEARCHED = 10_000  # sequences in which the oldest unread product is searched


class Behind(NamedTuple):
    """What a stream has not read yet, and what it has lost since it began."""

    products: int
    seconds: float  # since the oldest of them was inserted here
    lost: int


class Backlog:
    """Counts the products ahead of a position; each is counted when it comes and when the position passes it."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._first = self._end = self._products = 0

    def behind(self, queue: AnyQueue, position: int) -> tuple[int, float]:
        """How many products there are from `position` on, and the age of the oldest in seconds."""
        products = self._counted(queue, position)
        return products, _age_s(queue, position, self._selection) if products else 0.0

    def _counted(self, queue: AnyQueue, position: int) -> int:
        end = queue.next
        if not self._first <= position <= self._end:
            self._first = self._end = position
            self._products = 0
        gone = queue.weigh(self._first, position, self._selection).count if position > self._first else 0
        come = queue.weigh(self._end, end, self._selection).count if end > self._end else 0
        self._first, self._end, self._products = position, end, max(0, self._products - gone + come)
        return self._products


def _age_s(queue: AnyQueue, position: int, selection: Selection) -> float:
    """Seconds since the first product from `position` on was inserted; 0 if it is damaged, which a task reports."""
    stop = min(queue.next, position + _SEARCHED)
    for wanted in (selection, None):
        try:
            batch = queue.read_batch(position, wanted, limit=1, bytes_limit=1, stop=stop)
        except ProductDamagedError:
            return 0.0
        if len(batch):
            return max(0.0, round((time.time_ns() - int(batch.columns["inserted_ns"][0])) / 1e9, 3))
    return 0.0


def behind(query: StreamingQuery) -> Behind | None:
    """How far a query is behind, by its last progress report; None before the first one, or if it reads no products."""
    progress = query.lastProgress
    return None if progress is None else behind_of(progress["sources"][0]["latestOffset"])


def behind_of(latest_offset: object) -> Behind | None:
    """From `sources[0].latestOffset` of a progress report, as text or decoded; None if it is not such an offset."""
    if isinstance(latest_offset, str):
        try:
            latest_offset = msgspec.json.decode(latest_offset)
        except msgspec.DecodeError:
            return None
    if not isinstance(latest_offset, dict) or "behind_products" not in latest_offset:
        return None
    return Behind(int(latest_offset["behind_products"]), float(latest_offset["behind_s"]), int(latest_offset["lost"]))
