"""Upstream: everything that one request wants from one site, live where it can be and from the log where it must.

    begin      ask the site who it is and where to begin, and listen to the right stream
    catch up   pull pages from its log, with the live path shut, until the end is near
    live       take pages as they come; a gap, or a beat that is not satisfied, is pulled from the log

All of this happens in one thread. What a page brings is given to the sink, which returns when it is in the queue; only
then the track moves. So memory is bounded by one page and the live buffer, order within a feed is kept, and a death at
any point costs no more than asking for something twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
import numpy as np
import zenoh
from zenoh.handlers import Callback

from headrace.errors import FabricError, FabricMessageError
from headrace.link.declarations import Declarations, Declared
from headrace.link.keys import OWN, beat_key, feed_of, listening_key, live_key
from headrace.log.records import Names
from headrace.relay.messages.beat import INTERVAL_S, decode_beat
from headrace.relay.messages.page import Cause, Keep, Page, PageHead, decode, decode_all, decode_head
from headrace.relay.messages.query import Identify, IdentifyReply, Listen, ListenReply, Resolve, ResolveReply
from headrace.relay.messages.validation import check_beat, check_live, check_page, is_leap
from headrace.relay.receive.arrived import SequenceRange
from headrace.relay.receive.holders import Holders
from headrace.relay.receive.live_buffer import LiveBuffer, Message
from headrace.relay.receive.track import Track
from headrace.relay.site_client import SiteClient, Unreachable
from headrace.selection import Selection

_NEAR = 20_000  # products between here and the end of the log: listen to what comes live
_SILENCE_S = 6 * INTERVAL_S  # without a beat: ask the log
RANGES_MAX = 50  # lost ranges that are remembered
_GRACE_S = 0.1  # a beat may overtake the page before it
_DOUBT_S = 1.0  # between two questions whether a site has another queue
_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

Sink = Callable[[Page, Keep | None], None]
_Live = tuple[str, PageHead, bytes]  # a page, and the feed that it came under

log = logging.getLogger("headrace.fabric")


class Stopped(Exception):  # noqa: N818
    """From a sink: we are stopping. The page was not put, and will be asked for again."""


class Upstream:
    """Runs in its own thread from `start` to `stop`."""

    def __init__(
        self, session: zenoh.Session, declarations: Declarations, site: str, selection: Selection, relayed: bool,
        begin_at: str, sink: Sink, known: tuple[bytes, int] | None = None, others: Callable[[], list[str]] = list,
        principal: str | None = None, ahead: Mapping[str, int] | None = None,
        still_missing: Callable[[int, int], SequenceRange] = lambda first, last: (first, last),
        begun: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`relayed`: also what the site has from others; otherwise what was put there, and nothing else.

        `others` are the sites that may be asked for the latter while the site itself is away, or no longer has it.
        `known` is from the last time, and `ahead` how far single feeds have got beyond it. `still_missing` tells what
        is not here of a range of the site's sequences, and `begun` sees to it that `known` is remembered, before
        anything is taken from a queue that was not known.
        """
        self.site = site
        self.selection = selection if relayed else selection.replace(origin=site)
        self._is_relayed = relayed
        self._is_own = not relayed and not set(selection.given()) - {"feed", "origin"}
        self._session, self._declarations, self._begin_at, self._sink = session, declarations, begin_at, sink
        self._names = Names()
        self._client = SiteClient(session, site, principal)
        self._still_missing, self._begun = still_missing, begun
        self._holders = None if relayed else Holders(session, self.selection, Names(), others, principal)
        self._buffer = LiveBuffer()
        self._queue_id, base = known or (b"", 0)
        self.track = Track(base, ahead)
        self._stream = ""
        self._subscribers: list[Declared] = []
        self._stopped, self._back = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"headrace-from-{site}")
        self._heard = self._doubted = 0.0
        self._site_next = 0
        self.statistics = UpstreamStatistics()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends between two pages; may be said twice."""
        self._stopped.set()
        self._back.set()
        self._buffer.wake()
        self._thread.join()
        self._unsubscribe()

    def look_again(self) -> None:
        """The site seems to be back: do not wait any longer before it is asked."""
        self._back.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()

    def pause(self, seconds: float) -> None:
        """Sleep in a sink, unless it is time to stop."""
        self._stopped.wait(seconds)

    @property
    def known(self) -> tuple[bytes, int]:
        """The id of the site's queue and how far everything has arrived: what to remember over a restart."""
        return self._queue_id, self.track.base

    # --- the way ----------------------------------------------------------------------------------

    def _run(self) -> None:
        with suppress(Stopped):
            self._keep_up()

    def _keep_up(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                self._begin()
                self._catch_up()
                failures = 0
                self.statistics.state = "live"
                self._live()
            except (Unreachable, FabricError, zenoh.ZError) as error:
                self._buffer.shut()
                self.statistics.state = "unreachable"
                log.log(
                    logging.WARNING if self._is_news(error, failures) else logging.DEBUG,
                    "site %s: %s",
                    self.site,
                    error,
                )
                self.statistics.problem = str(error)
                self._ask_holders()
                self._back.wait(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
                self._back.clear()
                failures += 1

    def _is_news(self, error: Exception, failures: int) -> bool:
        """A site may be away for years."""
        return not failures or str(error) != self.statistics.problem

    def _begin(self) -> None:
        self.statistics.state = "asking"
        card = self._client.query(Identify(), IdentifyReply)
        if card.queue != self._queue_id:
            if self._queue_id:
                log.warning("site %s has another queue than before; beginning at %s", self.site, self._begin_at)
            start = self._client.query(Resolve(self._begin_at), ResolveReply).sequence
            self.track, self._queue_id = Track(start - 1), card.queue  # in this order: `known` is read meanwhile
            self._begun()
        stream = OWN if self._is_own else self._client.query(Listen(str(self.selection)), ListenReply).stream
        if stream != self._stream:
            self._subscribe(stream)

    def _subscribe(self, stream: str) -> None:
        self._unsubscribe()
        feeds = (self.selection.feed or "**") if stream == OWN else "**"
        live, beat = live_key(self.site, stream, feeds), beat_key(self.site, stream)
        listening = listening_key(self.site, stream, feeds)
        self._subscribers = [
            self._declarations.add(lambda: self._session.liveliness().declare_token(listening)),
            self._declarations.add(
                lambda: self._session.declare_subscriber(live, Callback(self._hear_page, indirect=False))
            ),
            self._declarations.add(
                lambda: self._session.declare_subscriber(beat, Callback(self._hear_beat, indirect=False))
            ),
        ]
        self._stream = stream

    def _unsubscribe(self) -> None:
        for subscriber in self._subscribers:
            subscriber.undeclare()
        self._subscribers, self._stream = [], ""

    # on Zenoh's threads, not on one of Python's in between

    def _hear_page(self, sample: zenoh.Sample) -> None:
        attachment = sample.attachment
        self._buffer.push(
            Message(feed_of(str(sample.key_expr)), attachment.to_bytes() if attachment else b"",
                    sample.payload.to_bytes(), time.time_ns())
        )  # fmt: skip

    def _hear_beat(self, sample: zenoh.Sample) -> None:
        self._heard = time.monotonic()
        self._buffer.push(Message(None, b"", sample.payload.to_bytes(), time.time_ns()))

    # --- from the log -----------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Pull until the end; the last pull is made with the live path open, so that both overlap."""
        self.statistics.state = "catching up"
        self._buffer.shut()
        while not self._stopped.is_set():
            if self._pull() and self._buffer.is_open:
                self._heard = time.monotonic()
                return
            if self._is_near():
                self._buffer.open()

    def _is_near(self) -> bool:
        return self._site_next - self.track.base <= _NEAR

    def _pull(self, *, hurry: bool = False) -> bool:
        """Pages of one answer; True if all has come that the site had when it began to give it. The rest comes live."""
        end = 0
        for page in self._client.pages(str(self.selection), self.track.base, self._names, hurry=hurry):
            check_page(page, self.site, relayed=self._is_relayed)
            end = end or page.head.head
            if page.head.queue != self._queue_id or page.head.after > self.track.base:
                raise Unreachable("its log has changed under our hands")
            self._make_up_for(page.head.lost_first, page.head.lost_last, page.head.lost_by)
            self._give(page, self._new_in(page))
            self.track.add_pulled(page.head.upto)
            self._site_next = page.head.head
            self.statistics.pulled += 1
            if self._stopped.is_set():
                return False
        if not end:
            raise Unreachable("no page came")
        return self.track.base >= end - 1

    def _new_in(self, page: Page) -> Keep | None:
        """Which products of a pulled page have not come live already."""
        keep: Keep = (page.sequences > self.track.base).astype(np.uint8)
        for place, sequence in enumerate(page.sequences.tolist()) if self.track.ahead else ():
            keep[place] = sequence > self.track.reached(page.batch.feed(place))
        return keep

    def _make_up_for(self, first: int, last: int, cause: Cause) -> None:
        """The site cannot give these. Others may; what is missing then is lost, and named."""
        first = max(first, self.track.base + 1)
        if first <= last:
            first, last = self._still_missing(first, last)
        if first <= last and self._holders is not None:
            self._ask_holders()
            first, last = self._still_missing(first, last)
        if first <= last:
            self.statistics.lose(first, last, cause)
            log.error(
                "site %s no longer has %d-%d (%s): those that were wanted are lost", self.site, first, last, cause
            )

    def _ask_holders(self) -> None:
        """Perhaps somebody else has what we have missed."""
        if self._holders is None or not (self._queue_id or self._begin_at == "oldest"):
            return
        try:
            self.statistics.from_others += self._holders.pull(self.track, self._give)
        except (Unreachable, FabricError, zenoh.ZError) as error:
            log.warning("what site %s has put, from others: %s", self.site, error)

    # --- live -------------------------------------------------------------------------------------

    def _live(self) -> None:
        suspect = 0.0
        while not self._stopped.is_set():
            messages = self._buffer.take(INTERVAL_S)
            if messages and messages[0].feed is not None:
                self._take_pages(messages)
            elif messages and not self._is_satisfied(messages[0]):
                suspect = suspect or time.monotonic() + _GRACE_S
            elif messages:
                suspect = 0.0
            if suspect and time.monotonic() > suspect:
                self._repair()
                suspect = 0.0
            if time.monotonic() - self._heard > _SILENCE_S:
                raise Unreachable(f"silent for {_SILENCE_S:g} s")

    def _take_pages(self, messages: list[Message]) -> None:
        """Those that follow what has arrived go into the queue as one, so that whoever is late has less work."""
        waiting: list[_Live] = []
        moved: dict[str, int] = {}
        for message in messages:
            feed = message.feed or ""
            try:
                head = decode_head(message.attachment)
                self._check_queue(head.queue)
            except FabricMessageError as error:
                self._refuse(error)
                continue
            self.statistics.latency_ns = message.arrived_ns - head.sent_ns
            if head.after != (moved.get(feed) or self.track.reached(feed)) or is_leap(head.upto, self.track.base):
                self._take_together(waiting)
                self._take_alone(feed, head, message.payload)
                waiting, moved = [], {}
                continue
            waiting.append((feed, head, message.payload))
            moved[feed] = head.upto
        self._take_together(waiting)

    def _take_together(self, waiting: list[_Live]) -> None:
        if len(waiting) < 2:
            for live in waiting:
                self._take_alone(*live)
            return
        try:
            pages = decode_all([(head, payload) for _, head, payload in waiting], self._names)
            for (feed, _, _), page in zip(waiting, pages, strict=True):
                check_live(page, self.site, feed, relayed=self._is_relayed)
        except FabricMessageError:  # one of them is not true
            for live in waiting:
                self._take_alone(*live)
            return
        self._give(Page(pages[-1].head, pages[0].batch, pages[0].sequences), None)
        for (feed, _, _), page in zip(waiting, pages, strict=True):
            self._note_live(feed, page)

    def _take_alone(self, feed: str, head: PageHead, payload: bytes) -> None:
        if head.upto <= self.track.reached(feed):
            self.statistics.old_pages += 1
            return
        try:
            page = decode(head, payload, self._names)
            check_live(page, self.site, feed, relayed=self._is_relayed)
            self._make_fit(feed, head)
        except FabricMessageError as error:
            self._refuse(error)
            return
        reached = self.track.reached(feed)
        self._give(page, None if head.after == reached else (page.sequences > reached).astype(np.uint8))
        self._note_live(feed, page)

    def _note_live(self, feed: str, page: Page) -> None:
        base = self.track.base
        products = len(page) if page.head.after >= base else int(np.count_nonzero(page.sequences > base))
        self.track.add_live(feed, page.head.upto, products)
        self.statistics.live += 1

    def _make_fit(self, feed: str, head: PageHead) -> None:
        """Pull what is missing before this page. A true page fits then."""
        if self._fits(feed, head):
            return
        self.statistics.gaps += 1
        self._repair()
        if not self._fits(feed, head):
            raise FabricMessageError(f"a page for {head.after + 1}-{head.upto}, where its log is not", "it was refused")

    def _fits(self, feed: str, head: PageHead) -> bool:
        return self.track.fits(feed, head.after) and not is_leap(head.upto, self.track.base)

    def _check_queue(self, queue: bytes) -> None:
        """A message about another queue: perhaps the site has a new one, but that it must say itself."""
        if queue == self._queue_id:
            return
        if time.monotonic() > self._doubted:
            self._doubted = time.monotonic() + _DOUBT_S
            if self._client.query(Identify(), IdentifyReply).queue != self._queue_id:
                raise Unreachable("it has another queue now")
        raise FabricMessageError("a message about a queue that is not the site's", "it was refused")

    def _refuse(self, error: FabricMessageError) -> None:
        """And forget the names that may have come with it, since there is room for so many only."""
        self._names = Names()
        self.statistics.refused += 1
        log.warning("site %s: %s", self.site, error)

    def _is_satisfied(self, message: Message) -> bool:
        try:
            beat = decode_beat(message.payload)
            check_beat(beat, self.site, self._stream)
            self._check_queue(beat.queue)
        except FabricMessageError as error:
            self._refuse(error)
            return True
        if is_leap(beat.examined, self.track.base):
            return False
        recent = beat.recent
        if recent is not None and self._stream == OWN:
            recent = {feed: last for feed, last in recent.items() if self.selection.wants_feed(feed)}
        return self.track.add_beat(beat.since, beat.examined, recent)

    def _repair(self) -> None:
        """Pull what is missing; what comes live meanwhile waits in the buffer."""
        self.statistics.repairs += 1
        while not self._pull(hurry=True) and not self._stopped.is_set():
            pass

    def _give(self, page: Page, keep: Keep | None) -> None:
        if len(page.batch) and (keep is None or keep.any()):
            self._sink(page, keep)
            self.statistics.products += len(page.batch) if keep is None else int(np.count_nonzero(keep))


class UpstreamStatistics(msgspec.Struct):
    """Counts since the start."""

    state: str = "asking"
    problem: str = ""
    products: int = 0
    from_others: int = 0  # of these, had from other sites while this one was away, or no longer had them
    live: int = 0  # pages
    old_pages: int = 0
    pulled: int = 0
    gaps: int = 0
    repairs: int = 0
    refused: int = 0
    latency_ns: int = 0  # of the last live page, from its sending to its arrival; the two clocks may differ
    lost: list[tuple[int, int, Cause]] = msgspec.field(default_factory=list)  # the latest ranges
    lost_sequences: int = 0  # in all that there ever were

    def lose(self, first: int, last: int, cause: Cause) -> None:
        self.lost = [*self.lost[1 - RANGES_MAX :], (first, last, cause)]
        self.lost_sequences += last - first + 1
