"""Pager: what a site's log has for somebody who asks, in pages.

A page covers what was looked at, whether or not there is anything in it for the one who asks: products of feeds that it
may not receive are left out without a word, like those that its selection does not want.
"""

import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from headrace.errors import ProductDamagedError
from headrace.fabric.page import VERSION, PageHead, encode_head, queue_id, records_of, sequence_bytes
from headrace.fabric.question import Read
from headrace.fabric.streams import stream_name
from headrace.product.batch import Batch, Lost
from headrace.product.feed import FeedPattern
from headrace.queue import Queue
from headrace.selection import Selection


class Pager:
    """For one question; `allowed` are the feeds that the one who asks may receive."""

    def __init__(self, queue: Queue, site: str, allowed: tuple[FeedPattern, ...]) -> None:
        self._queue, self._site = queue, site
        self._allowed = allowed
        self._everything = any(pattern.text == "**" for pattern in allowed)
        self._known: dict[str, bool] = {}

    def pages(self, question: Read) -> Iterator[tuple[bytes, bytes]]:
        """Head and records of each page; the last one reaches the end of the log, or there were enough."""
        selection = Selection.parse(question.selection)
        follower = self._queue.follow(
            question.after + 1, selection=selection, limit=question.products, bytes_limit=question.payload_bytes
        )
        for _ in range(question.pages):
            after, batch, damaged = follower.position - 1, None, None
            try:
                batch = follower.next_nowait()
            except ProductDamagedError as error:  # it cannot be had here; what comes behind can
                follower.position, damaged = error.next, Lost(error.sequence, error.next - 1)
            yield self._page(stream_name(selection), after, max(after, follower.position - 1), batch, damaged)
            if follower.position >= self._queue.next:
                return

    def _page(
        self, stream: str, after: int, upto: int, batch: Batch | None, damaged: Lost | None
    ) -> tuple[bytes, bytes]:
        count, records, sequences, lost = 0, b"", b"", damaged
        if batch is not None:
            places, lost = self._places(batch), batch.lost
            chosen = batch.sequences if places is None else batch.sequences[places]
            count, sequences = len(chosen), sequence_bytes(chosen)
            records = records_of(batch, places) if count else b""
        head = PageHead(
            VERSION, self._site, queue_id(self._queue), stream, after, upto, self._queue.next, count, time.time_ns(),
            lost.first if lost else 0, lost.last if lost else 0, sequences,
            "damaged" if damaged else "evicted",
        )  # fmt: skip
        return encode_head(head), records

    def _places(self, batch: Batch) -> npt.NDArray[np.uint32] | None:
        """Where the products are that may be received; None everywhere."""
        if self._everything or not len(batch):
            return None
        allowed = [self._may_receive(feed) for feed in batch.feeds]
        return np.flatnonzero(allowed).astype(np.uint32)

    def _may_receive(self, feed: str) -> bool:
        if feed not in self._known:
            self._known[feed] = any(pattern.matches(feed) for pattern in self._allowed)
        return self._known[feed]
