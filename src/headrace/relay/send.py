"""The live path, sending side: a site's streams, and the two threads that serve them.

    Stream    what the site publishes as it arrives, for one selection
    Streams   all of a site's streams: one thread publishes, another sends beats

A stream follows the site's queue and publishes each batch once for each feed in it, as a page that says which range of
the queue it covers for that feed. It never waits: Zenoh drops the page for a subscriber that is too slow, and the
subscriber finds the gap by the next page or by the beat. A stream knows nothing about its subscribers except whether
there are any. What it leaves out (examine.py) is no page's business: the beat says up to where something was left out,
and a subscriber that is not beyond that reads the log, which counts it by cause. So each is counted once.

The stream `own` always exists and has everything that the site's own programs have put. Other streams are made for
requests with conditions, and for everybody who may not receive everything (audience.py): equal selections of one
audience share one stream, and a stream without subscribers ends after a minute. A principal has a quota of streams.

Not here: replies from the log (serve.py), and which feeds have subscribers (quench.py).
"""

import hashlib
import logging
import threading
import time
from typing import Any

import numpy as np
import zenoh

from headrace.errors import FabricError, HeadraceError
from headrace.guard import FAILURES, GuardedThread, counted
from headrace.link.keys import OWN, beat_key, live_key
from headrace.link.quotas import QuotaTable, refused
from headrace.payload.compression.link import ENCODING, shrunk
from headrace.product.batch import Batch
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.audience import Audience
from headrace.relay.examine import Examined, Examiner, TooLarge
from headrace.relay.messages.beat import FEEDS_MAX, INTERVAL_S, Beat, encode_beat
from headrace.relay.messages.page import VERSION, PageHead, encode_head, queue_id, records_of, sequence_bytes
from headrace.relay.plain import Plain
from headrace.selection import Selection

STREAMS_MAX = 256
_PAGE_PRODUCTS_MAX = 4096
_PAGE_BYTES = 1 << 20  # about
_PUBLISHERS_MAX = 4096  # feeds whose publisher stays declared
_IDLE_S = 60.0
_APART_S = 0.0005  # between two sendings: a receiver needs about as long for a page
_GRACE_S = 5.0  # to subscribe to a new stream while others wait for room
_SHARED = Audience()

log = logging.getLogger("headrace.fabric")


def stream_name(selection: Selection, compresses: bool = False) -> str:
    """Equal selections have the same stream, and another one if its pages are compressed for the link."""
    return hashlib.blake2b(f"{selection}{' zstd' * compresses}".encode(), digest_size=8).hexdigest()


class Stream:
    """Made for one selection; `advance` and `beat` may be called by different threads."""

    def __init__(
        self, session: zenoh.Session, queue: Queue, site: str, name: str, selection: Selection, *, started_ns: int,
        interval_ms: int, too_large: TooLarge, compresses: bool = False, audience: Audience,
    ) -> None:  # fmt: skip
        self.name, self.selection, self.audience, self._compresses = name, selection, audience, compresses
        self._started_ns, self._interval_ms = started_ns, interval_ms
        self._session, self._queue, self._site = session, queue, site
        self._queue_id = queue_id(queue)
        self._plain = None if audience.hears_all else Plain(queue, audience.feeds)
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
        self.pages = self.products = 0
        self.problem = ""  # why it does not advance

    @property
    def position(self) -> int:
        """The sequence that is read next."""
        return self._examiner.position

    def advance(self) -> None:
        """Publish what has arrived in the queue since the last call."""
        while self._examiner.position < self._queue.next:
            with self._lock:
                self._publish(self._examiner.next())

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
        records = records_of(batch, rows) if self._plain is None else self._plain.records(batch, rows)
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


class Streams:
    """Publishes from the moment it is made until `close`."""

    def __init__(
        self, session: zenoh.Session, queue: Queue, site: str, beat_s: float = INTERVAL_S, *, started_ns: int = 0,
        too_large: TooLarge | None = None, quotas: QuotaTable | None = None,
    ) -> None:  # fmt: skip
        """`started_ns` says in which run of the site this is; the site's log says the same.

        Without `quotas`, a principal may have all streams: where no rules say who asks, nobody is told apart.
        """
        self._session, self._queue, self._site, self._beat_s = session, queue, site, beat_s
        self._started_ns, self._too_large, self._quotas = started_ns, too_large or TooLarge(), quotas
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._streams = {OWN: self._make(OWN, Selection(origin=site), _SHARED)}
        self._subscribed: dict[str, float] = {}  # by stream: when it last had a subscriber
        self._waiter = queue.follow(queue.next)
        self._threads = [
            GuardedThread(run, name, until=self._stopped.is_set)
            for run, name in ((self._send, "headrace-send"), (self._beat, "headrace-beat"))
        ]
        for thread in self._threads:
            thread.start()

    def listen(self, selection: Selection, compresses: bool = False, audience: Audience = _SHARED) -> str:
        """Return the name of this selection's stream for an audience; make the stream if it does not exist.

        `compresses`: a stream whose pages are compressed for the link.

        Raises FabricError if the selection is unfit for a stream, or the site has STREAMS_MAX streams in use, and
        QuotaError if the principal has too many.
        """
        if selection.every != 1 or selection.function is not None:
            raise FabricError(
                "a stream's selection must not have `every` or a function: their result depends on the reader",
                "use them at a station of your own queue",
            )
        name = audience.stream(stream_name(selection, compresses))
        with self._lock:
            if name not in self._streams:
                self._check_room(audience)
                self._streams[name] = self._make(name, selection, audience, compresses)
            self._subscribed[name] = time.monotonic()
        return name

    def _check_room(self, audience: Audience) -> None:
        """End idle streams if there is no room for another one of this audience; refuse it if that is not enough."""
        if self._refusal(audience):
            self._end_idle(_GRACE_S)
        if refusal := self._refusal(audience):
            raise refusal

    def _refusal(self, audience: Audience) -> FabricError | None:
        if self._quotas is not None:
            made = sum(
                stream.audience.principal == audience.principal
                for name, stream in self._streams.items() if name != OWN
            )  # fmt: skip
            most = self._quotas.of(audience.principal).streams
            if made >= most:
                return refused("streams", most, audience.principal)
        if len(self._streams) >= STREAMS_MAX:
            return FabricError(f"site {self._site} has {STREAMS_MAX} streams, the maximum", "request fewer selections")
        return None

    def _make(self, name: str, selection: Selection, audience: Audience, compresses: bool = False) -> Stream:
        return Stream(
            self._session, self._queue, self._site, name, selection, started_ns=self._started_ns,
            interval_ms=round(1000 * self._beat_s), too_large=self._too_large, compresses=compresses, audience=audience,
        )  # fmt: skip

    def all(self) -> list[Stream]:
        with self._lock:
            return list(self._streams.values())

    def _send(self) -> None:
        """Publish, then sleep until something is put.

        A product that arrives while the streams advance ends the sleep at once. What arrives within a moment of the
        last sending waits for the rest of that moment, and is sent together.
        """
        while not self._stopped.is_set():
            self._waiter.position = self._queue.next
            for stream in self.all():
                self._advance(stream)
            due = time.monotonic() + _APART_S
            self._waiter.wait(1.0)
            time.sleep(max(0.0, due - time.monotonic()))

    def _advance(self, stream: Stream) -> None:
        try:
            stream.advance()
            stream.problem = ""
        except (HeadraceError, zenoh.ZError, OSError) as error:
            stream.problem = str(error)  # one of the site's problems, if it lasts
            if not self._stopped.is_set():
                log.debug("stream %s: %s", stream.name, error)
                self._stopped.wait(0.5)
        except Exception as error:  # noqa: BLE001 the other streams must advance
            stream.problem = f"{type(error).__name__}: {error}"
            FAILURES.note("headrace-send", error)
            self._stopped.wait(0.5)

    def _beat(self) -> None:
        while not self._stopped.wait(self._beat_s):
            for stream in self.all():
                with counted("headrace-beat"):  # the others must be heard of
                    try:
                        stream.beat()
                    except zenoh.ZError as error:
                        log.error("stream %s: %s", stream.name, error)
            try:
                with self._lock:
                    self._end_idle(_IDLE_S)
            except zenoh.ZError as error:
                log.error("idle streams are not ended: %s", error)

    def _end_idle(self, idle_s: float) -> None:
        now = time.monotonic()
        for name, stream in list(self._streams.items()):
            if name == OWN or stream.has_subscribers():
                self._subscribed[name] = now
            elif now - self._subscribed[name] > idle_s:
                del self._streams[name], self._subscribed[name]
                stream.close()

    def close(self) -> None:
        self._stopped.set()
        self._waiter.stop()
        for thread in self._threads:
            thread.join()
        for stream in self.all():
            stream.close()
