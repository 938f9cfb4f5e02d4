"""Stream: what one site sends out as it comes, to whoever listens.

A stream follows the site's queue and publishes each batch once for each feed in it, as a page that says from where to
where it covers that feed. It never waits: for a subscriber that is too slow, Zenoh drops the page, and the subscriber
finds the gap by the next page or by the beat. A stream knows nothing of its subscribers but whether there are any.

The stream `own` has everything that the site's own programs have put. Others are made for requests with conditions, one
for all who ask for the same (streams.py).
"""

import threading
import time
from typing import Any

import numpy as np
import zenoh

from headrace.errors import ProductDamagedError
from headrace.link.keys import OWN, beat_key, live_key
from headrace.product.batch import Batch
from headrace.queue import Queue
from headrace.relay.beat import FEEDS_MAX, Beat, encode_beat
from headrace.relay.page import VERSION, PageHead, encode_head, queue_id, records_of, sequence_bytes
from headrace.selection import Selection

_PRODUCTS = 4096  # in one page at most
_BYTES = 1 << 20  # and about so many
_PUBLISHERS = 4096  # feeds whose publisher is kept declared


class Stream:
    """Made for one selection; `advance` and `beat` may be called by different threads."""

    def __init__(self, session: zenoh.Session, queue: Queue, site: str, name: str, selection: Selection) -> None:
        self.name, self.selection = name, selection
        self._session, self._queue, self._site = session, queue, site
        self._queue_id = queue_id(queue)
        self._follower = queue.follow(queue.next, selection=selection, limit=_PRODUCTS, bytes_limit=_BYTES)
        self._floor = self._follower.position - 1  # nothing was sent up to here
        self._last: dict[str, int] = {}  # by feed: the last product that was sent
        self._since = self._floor
        self._examined = self._floor  # told by the last beat
        self._before: dict[str, int] = {}  # what was sent between the last two beats, and what since then
        self._recent: dict[str, int] = {}
        self._publishers: dict[str, zenoh.Publisher] = {}
        self._beats = session.declare_publisher(beat_key(site, name), congestion_control=zenoh.CongestionControl.DROP)
        self._lock = threading.Lock()
        self.pages = self.products = 0

    @property
    def position(self) -> int:
        """The sequence that is looked at next."""
        return self._follower.position

    def advance(self) -> None:
        """Send what has come since the last time."""
        while self._follower.position < self._queue.next:
            with self._lock:
                batch = self._read()
                if batch is not None:
                    self._publish(batch)

    def _read(self) -> Batch | None:
        try:
            return self._follower.next_nowait()
        except ProductDamagedError as error:  # those who ask the log will hear of it
            self._floor, self._follower.position = error.next - 1, error.next
            return None

    def _publish(self, batch: Batch) -> None:
        if batch.lost:
            self._floor = batch.lost.last
        columns = batch.columns
        feeds, sequences = columns["feed"], columns["sequence"]
        if len(feeds) and np.all(feeds == feeds[0]):
            self._publish_feed(batch, batch.feed(0), None, sequences)
            return
        for feed_id in dict.fromkeys(feeds.tolist()):
            places = np.flatnonzero(feeds == feed_id).astype(np.uint32)
            self._publish_feed(batch, batch.feed(int(places[0])), places, sequences[places])

    def _publish_feed(self, batch: Batch, feed: str, places: Any, sequences: Any) -> None:
        upto = int(sequences[-1])
        head = PageHead(
            VERSION, self._site, self._queue_id, self.name, max(self._last.get(feed, 0), self._floor), upto,
            self._queue.next, len(sequences), time.time_ns(),
            sequences=b"" if self.name == OWN else sequence_bytes(sequences),
        )  # fmt: skip
        self._publisher(feed).put(records_of(batch, places), attachment=encode_head(head))
        self._last[feed] = self._recent[feed] = upto
        self.pages += 1
        self.products += len(sequences)

    def _publisher(self, feed: str) -> zenoh.Publisher:
        found = self._publishers.get(feed)
        if found is None:
            if len(self._publishers) >= _PUBLISHERS:
                self._publishers.pop(next(iter(self._publishers))).undeclare()  # type: ignore[no-untyped-call]
            found = self._session.declare_publisher(
                live_key(self._site, self.name, feed), congestion_control=zenoh.CongestionControl.DROP
            )
            self._publishers[feed] = found
        return found

    def beat(self) -> None:
        """Say how far this is. Each beat covers the time since the one before the last, so that one may get lost."""
        with self._lock:
            recent = self._before | self._recent
            examined = self._follower.position - 1
            beat = Beat(VERSION, self._site, self._queue_id, self.name, self._since, examined,
                        recent if len(recent) <= FEEDS_MAX else None, time.time_ns())  # fmt: skip
            self._before, self._recent = self._recent, {}
            self._since, self._examined = self._examined, examined
            self._beats.put(encode_beat(beat))

    def is_wanted(self) -> bool:
        """Does anybody listen?"""
        return _has_listeners(self._beats)

    def is_wanted_feed(self, feed: str) -> bool:
        """Does anybody listen to this feed?"""
        with self._lock:
            return _has_listeners(self._publisher(feed))

    def close(self) -> None:
        with self._lock:
            for publisher in (*self._publishers.values(), self._beats):
                publisher.undeclare()  # type: ignore[no-untyped-call]
            self._publishers.clear()


def _has_listeners(publisher: zenoh.Publisher) -> bool:
    return bool(getattr(publisher.matching_status, "matching", publisher.matching_status))
