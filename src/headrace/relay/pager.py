"""Pager: what a site's log has for somebody who asks, in pages.

A page covers what was looked at, whether or not there is anything in it for the one who asks: products of feeds that it
may not receive are passed over without a word, like those that its selection does not want.
"""

import time
from collections.abc import Iterator

from headrace.errors import ProductDamagedError
from headrace.product.batch import Batch, Lost
from headrace.product.feed import FeedPattern
from headrace.queue import Queue
from headrace.relay.page import VERSION, PageHead, encode_head, queue_id, records_of, sequence_bytes
from headrace.relay.question import Read
from headrace.relay.receivable import receivable_part
from headrace.relay.streams import stream_name
from headrace.selection import Selection


class Pager:
    """For one question; `allowed` are the feeds that the one who asks may receive."""

    def __init__(self, queue: Queue, site: str, allowed: tuple[FeedPattern, ...]) -> None:
        self._queue, self._site = queue, site
        self._allowed = allowed

    def pages(self, question: Read) -> Iterator[tuple[bytes, bytes]]:
        """Head and records of each page; the last one reaches the end of the log, or there were enough."""
        selection = Selection.parse(question.selection)
        follower = self._queue.follow(
            question.after + 1, selection=receivable_part(selection, self._allowed),
            limit=question.products, bytes_limit=question.payload_bytes,
        )  # fmt: skip
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
            lost, count, sequences = batch.lost, len(batch), sequence_bytes(batch.sequences)
            records = records_of(batch) if count else b""
        head = PageHead(
            VERSION, self._site, queue_id(self._queue), stream, after, upto, self._queue.next, count, time.time_ns(),
            lost.first if lost else 0, lost.last if lost else 0, sequences,
            "damaged" if damaged else "evicted",
        )  # fmt: skip
        return encode_head(head), records
