"""Stream: what a site publishes as it arrives, for one selection and one audience.

A stream follows the site's queue and publishes each batch once for each feed in it, as a page that says which range of
the queue it covers for that feed. It never waits: Zenoh drops the page for a subscriber that is too slow, and the
subscriber finds the gap by the next page or by the beat. A stream knows nothing about its subscribers except whether
there are any. What it leaves out (examine.py) is no page's business: the beat says up to where something was left out,
and a subscriber that is not beyond that reads the log, which counts it by cause. So each is counted once.

Not here: which streams a site has, and the threads that serve them (send.py).
"""

import hashlib
import threading
import time
from typing import Any

import numpy as np
import zenoh

from headrace.link.keys import OWN, beat_key, live_key
from headrace.payload.compression.link import ENCODING, shrunk
from headrace.product.batch import Batch
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.audience import Audience
from headrace.relay.examine import Examined, Examiner, TooLarge
from headrace.relay.messages.beat import FEEDS_MAX, Beat, encode_beat
from headrace.relay.messages.page import VERSION, Pack, PageHead, encode_head, queue_id, records_of, sequence_bytes
from headrace.relay.plain import Plain
from headrace.relay.turns import Step
from headrace.selection import Selection

_PAGE_PRODUCTS_MAX = 4096
_PAGE_BYTES = 1 << 20  # about
_PUBLISHERS_MAX = 4096  # feeds whose publisher stays declared
_RETRY_S = 0.5  # after a stream has failed


def stream_name(selection: Selection, compresses: bool = False) -> str:
    """Equal selections have the same stream, and another one if its pages are compressed for the link."""
    return hashlib.blake2b(f"{selection}{' zstd' * compresses}".encode(), digest_size=8).hexdigest()


class Stream:
    """Made for one selection; `step` and `beat` may be called by different threads."""

    def __init__(
        self, session: zenoh.Session, queue: Queue, site: str, name: str, selection: Selection, *, started_ns: int,
        interval_ms: int, too_large: TooLarge, compresses: bool = False, audience: Audience, pack: Pack = records_of,
    ) -> None:  # fmt: skip
        self.name, self.selection, self.audience, self._compresses = name, selection, audience, compresses
        self._started_ns, self._interval_ms = started_ns, interval_ms
        self._session, self._queue, self._site = session, queue, site
        self._queue_id = queue_id(queue)
        self._plain = None if audience.hears_all else Plain(queue, audience.feeds, pack)
        self._pack = pack if self._plain is None else self._plain.records
        self._examiner = Examiner(
            queue, selection, queue.next, products=_PAGE_PRODUCTS_MAX, payload_bytes=_PAGE_BYTES,
            allowed=audience.feeds.test, too_large=too_large, plain=self._plain,
        )  # fmt: skip
        self._floor = self._examiner.position - 1  # nothing was sent up to here
        self._left_out = 0  # up to here something was left out
        self._last: dict[str, int] = {}  # by feed: the last product that was sent
        self._since = self._floor
        self._examined = self._floor  # as the last beat said
        self._before: dict[str, int] = {}  # last products sent between the last two beats, and since the last one
        self._recent: dict[str, int] = {}
        self._publishers: dict[str, zenoh.Publisher] = {}
        self._beats = session.declare_publisher(beat_key(site, name), congestion_control=zenoh.CongestionControl.DROP)
        self._lock = threading.Lock()
        self._step = Step()
        self._retry_at = 0.0  # monotonic seconds
        self.pages = self.products = 0
        self.problem = ""  # why it does not advance

    @property
    def position(self) -> int:
        """The sequence that is read next."""
        return self._examiner.position

    @property
    def is_behind(self) -> bool:
        """Whether there is something to publish now."""
        return self._examiner.position < self._queue.next and not self.is_paused

    @property
    def is_paused(self) -> bool:
        return self._retry_at > 0.0 and time.monotonic() < self._retry_at

    def step(self) -> None:
        """Publish some of what has arrived in the queue."""
        begun = time.monotonic()
        with self._lock:
            self._publish(self._examiner.next(None if self.name == OWN else self._step.products))
        self._step.took(time.monotonic() - begun)
        self.problem, self._retry_at = "", 0.0

    def pause(self, problem: str) -> None:
        """It cannot advance now, and tries again soon."""
        self.problem, self._retry_at = problem, time.monotonic() + _RETRY_S

    def _publish(self, examined: Examined) -> None:
        if not examined.is_complete:
            self._left_out = examined.upto
        if examined.lost:
            self._floor = examined.lost.last
        batch, selected = examined.batch, examined.rows
        if batch is None or not len(examined):
            return
        columns = batch.columns
        feeds, sequences = columns["feed"], columns["sequence"]
        if selected is None and np.all(feeds == feeds[0]):
            self._publish_feed(batch, batch.feed(0), None, sequences)
            return
        selected = np.arange(len(batch), dtype=np.uint32) if selected is None else selected
        for feed_id in dict.fromkeys(feeds[selected].tolist()):
            rows = selected[feeds[selected] == feed_id]
            self._publish_feed(batch, batch.feed(int(rows[0])), rows, sequences[rows])

    def _publish_feed(self, batch: Batch, feed: str, rows: Any, sequences: Any) -> None:
        upto = int(sequences[-1])
        head = PageHead(
            VERSION, self._site, self._queue_id, self.name, max(self._last.get(feed, 0), self._floor), upto,
            self._queue.next, len(sequences), log_of(self._queue).now_ns(),
            sequences=b"" if self.name == OWN else sequence_bytes(sequences),
        )  # fmt: skip
        records = self._pack(batch, rows)
        small = shrunk(records) if self._compresses else None
        if small is None:
            self._publisher(feed).put(records, attachment=encode_head(head))
        else:
            self._publisher(feed).put(small, attachment=encode_head(head), encoding=ENCODING)
        self._last[feed] = self._recent[feed] = upto
        self.pages += 1
        self.products += len(sequences)

    def _publisher(self, feed: str) -> zenoh.Publisher:
        found = self._publishers.get(feed)
        if found is None:
            if len(self._publishers) >= _PUBLISHERS_MAX:
                self._publishers.pop(next(iter(self._publishers))).undeclare()  # type: ignore[no-untyped-call]
            found = self._session.declare_publisher(
                live_key(self._site, self.name, feed), congestion_control=zenoh.CongestionControl.DROP
            )
            self._publishers[feed] = found
        return found

    def beat(self) -> None:
        """Publish how far the stream is. A beat covers the time since the last but one, so one beat may get lost."""
        with self._lock:
            recent = self._before | self._recent
            examined = self._examiner.position - 1
            beat = Beat(VERSION, self._site, self._queue_id, self.name, self._since, examined,
                        recent if len(recent) <= FEEDS_MAX else None, log_of(self._queue).now_ns(), self._started_ns,
                        self._interval_ms, self._left_out)  # fmt: skip
            self._before, self._recent = self._recent, {}
            self._since, self._examined = self._examined, examined
            self._beats.put(encode_beat(beat))

    def has_subscribers(self) -> bool:
        """Whether the stream has a subscriber now."""
        status = self._beats.matching_status
        return bool(getattr(status, "matching", status))

    def close(self) -> None:
        with self._lock:
            for publisher in (*self._publishers.values(), self._beats):
                publisher.undeclare()  # type: ignore[no-untyped-call]
            self._publishers.clear()
