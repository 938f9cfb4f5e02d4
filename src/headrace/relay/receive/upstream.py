"""Upstream: the state machine of one request at one site; live where possible, from the log where necessary.

    asking        ask the site for its queue and where to begin, and subscribe to the right stream
    catching up   read pages from its log, with the live path shut, until the end is near
    live          take pages as they come; read the log after a gap, or after a beat that reveals a lost tail
    unreachable   the site does not reply: ask other holders, wait, begin again

How it is built. `run` is a generator that yields actions (actions.py) and receives their outcomes. It has no thread,
no Zenoh and no wall clock: the driver performs the actions, and the clock is an argument (monotonic seconds). So a
few threads drive all upstreams over real links, and a test drives many over a simulated network, one action at a time.
The states are places in the generator rather than values of a variable, because a gap may be found in the middle of a
batch of live pages, and a lost range in the middle of a reply: what is left to do then is on the generator's stack.

Inputs besides outcomes: `hear_beat`, as soon as a beat arrives, even if nobody takes it yet; and the end of a `Pause`
when the site appears. To stop an upstream, do not resume it (`close` the generator).

Invariants:

- The track moves only after `Store` has been performed. So what is saved (`known`) is never ahead of the queue, memory
  is bounded by one page and the live buffer, and a death at any point costs no more than reading something twice.
- Products of one feed of one origin are stored in their order.
- A gap is read from `track.base`, up to which everything has arrived, not from the gap: one number is enough.
- While it catches up or repairs, live messages wait in the buffer. The last read of a catch-up overlaps with the open
  buffer, so nothing falls in between.
- A range that the site cannot give is asked from other holders, then compared with our own queue; what is still missing
  is counted and named in `statistics.lost`. Nothing is skipped silently.
- What the site leaves out for another reason is counted once, by cause: the base passes it only with a page from the
  log, whose head has the counts. (A beat that names products left out behind the base is not satisfied.) A product that
  came live, and has expired by the time the log is read once more, is not counted.
"""

import logging
from collections.abc import Callable, Mapping

import numpy as np

from headrace.errors import FabricError, FabricMessageError
from headrace.link.keys import OWN
from headrace.log.records import Names
from headrace.product.cause import LostBy
from headrace.relay.messages.beat import INTERVAL_S, decode_beat, silence_s
from headrace.relay.messages.page import Keep, Page, PageHead, decode, decode_all, decode_head
from headrace.relay.messages.query import (
    Identify,
    IdentifyReply,
    Listen,
    ListenReply,
    Resolve,
    ResolveReply,
    Unreachable,
)
from headrace.relay.messages.validation import (
    check_beat,
    check_extent,
    check_identity,
    check_live,
    check_page,
    is_leap,
)
from headrace.relay.receive.actions import (
    Ask,
    FindMissing,
    LiveMessage,
    NextPage,
    OpenLive,
    Pause,
    ReadLog,
    SaveProgress,
    ShutLive,
    Steps,
    Store,
    Subscribe,
    TakeLive,
)
from headrace.relay.receive.counts import UpstreamStatistics
from headrace.relay.receive.holders import Holders
from headrace.relay.receive.left_out import LeftOut
from headrace.relay.receive.permitted import is_widened, read_permitted
from headrace.relay.receive.track import Known, Track, furthest
from headrace.relay.receive.unseen import Others, settle, whole_after
from headrace.relay.receive.unseen import begin as begin_unseen
from headrace.selection import Selection

_NEAR = 20_000  # products between the base and the end of the log at which the live path opens
_GRACE_S = 0.1  # a beat may overtake the page before it
_DOUBT_S = 1.0  # between two queries whether a site has a new queue
_MEETING_S = 2.0  # to meet other holders after the start
_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

_Live = tuple[str, PageHead, bytes]  # feed, head and records of a live page

log = logging.getLogger("headrace.fabric")


def backoff_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return _BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)]


class _RestartedError(Exception):
    """The site has another run than the one that was asked: ask again, it may have other terms."""


class Upstream:
    """One request at one site. Run by a driver; other threads may read `known`, `track` and `statistics`."""

    def __init__(
        self, site: str, selection: Selection, begin_at: str, now: Callable[[], float], *, relayed: bool = False,
        others: Others | None = None, known: Known | None = None, ahead: Mapping[str, int] | None = None,
        statistics: UpstreamStatistics | None = None, compresses: bool = False,
    ) -> None:  # fmt: skip
        """`relayed`: also what the site has from others; otherwise only what was put there.

        `others`: how far the request is at other sites that serve it too, or stand by; they may bring what this one has
        evicted.
        `known` is from the last run. `ahead` says how far single feeds are at least. Without `known`, begin at
        `begin_at`. `now` returns monotonic seconds. `statistics` are continued, if given.
        `compresses`: pages are compressed for the link, so the stream that all sites share does not do.
        """
        self.site = site
        self.selection = selection if relayed else selection.replace(origin=site)
        self.statistics = statistics or UpstreamStatistics()
        self.statistics.state = "asking"
        self._queue_id, base, self._began, self._feeds, self._since, saved, whole = known or Known()
        self._whole = whole or base + 1
        self.track = Track(base, furthest(saved, ahead or {}))
        self._begin_at, self._now = begin_at, now
        self._others = others
        is_key = "|" not in (selection.feed or "")
        self._is_own = not relayed and not compresses and is_key and not set(selection.given()) - {"feed", "origin"}
        self._names = Names()
        self._holders = None if relayed else Holders(self.selection)
        self._stream = ""
        self._site_next = 0  # the end of the site's log, as far as is known
        self._heard = self._doubted = 0.0
        self._met = now() + _MEETING_S
        self._silence_s = silence_s(int(1000 * INTERVAL_S))
        self._started_ns = 0  # of the site
        self._left_out = LeftOut(self.statistics)

    @property
    def behind(self) -> int:
        """Sequences between the base and the end of the site's log, as far as that is known."""
        return max(0, self._site_next - 1 - self.track.base)

    @property
    def known(self) -> Known:
        """What to save for the next run. The base is read first: in between, all of it only grows."""
        track = self.track
        base = track.base
        return Known(self._queue_id, base, self._began, self._feeds, self._since, dict(track.ahead), self._whole)

    def hear_beat(self) -> None:
        """A beat has arrived; it may still wait in the buffer. Any thread may call this."""
        self._heard = self._now()

    def run(self) -> Steps[None]:
        """Follow the site forever."""
        failures = 0
        while True:
            try:
                yield from self._begin()
                yield from self._catch_up()
                failures = 0
                self.statistics.state, self.statistics.failing, self.statistics.waiting = "live", "", 0
                self.statistics.problem = ""
                yield from self._live()
            except _RestartedError:
                log.info("site %s has restarted", self.site)
            except (Unreachable, FabricError) as error:
                yield ShutLive()
                self._note_failure(error, is_first=not failures)
                yield from self._ask_holders()
                yield from self._settle()
                yield Pause(backoff_s(failures))
                failures += 1

    def _note_failure(self, error: Exception, *, is_first: bool) -> None:
        """Log once for each reason: a site may be away for years. If it lasts, it is one of the site's problems."""
        is_news = is_first or str(error) != self.statistics.problem
        self.statistics.state, self.statistics.problem = "unreachable", str(error)
        self.statistics.failing = str(error)
        log.log(logging.INFO if is_news else logging.DEBUG, "site %s: %s", self.site, error)

    def _begin(self) -> Steps[None]:
        if self.statistics.state != "unreachable":  # until it replies
            self.statistics.state = "asking"
        identity: IdentifyReply = yield Ask(self.site, Identify(), IdentifyReply)
        self._started_ns, self._silence_s = identity.started_ns, silence_s(identity.interval_ms)
        check_identity(identity)
        self._site_next = identity.next
        if identity.queue != self._queue_id:
            yield from self._begin_queue(identity)
        elif self.track.base >= identity.next:
            yield from self._begin_again(identity)
        elif self._feeds != identity.receivable:
            yield from self._change_rights(identity.receivable)
        stream = OWN
        if not (self._is_own and identity.has_own):
            reply: ListenReply = yield Ask(self.site, Listen(str(self.selection)), ListenReply)
            stream = reply.stream
        if stream != self._stream:
            yield Subscribe(stream, (self.selection.feed or "**") if stream == OWN else "**")
            self._stream = stream

    def _begin_queue(self, identity: IdentifyReply) -> Steps[None]:
        """A queue that was not known. `from` is for the first one only.

        A later one is read from its first product: everything in it came after the last contact. What it has evicted by
        now is named as lost.
        """
        if self._queue_id:
            log.warning("site %s has a new queue; it is read from its first product on", self.site)
            start, since = 1, (yield SaveProgress())
            self._left_out = LeftOut(self.statistics)
        else:
            reply: ResolveReply = yield Ask(self.site, Resolve(self._begin_at), ResolveReply)
            start, since = reply.sequence, 0
        yield from self._begin_from(start, since, identity)

    def _begin_again(self, identity: IdentifyReply) -> Steps[None]:
        """The log ends before our position: a lie moved that, or the queue there was restored from a backup.

        So nothing is known of what is there. What is here already will be dropped as duplicates.
        """
        log.warning("site %s: its log ends at %d, before our position %d; it is read again from its oldest product on",
                    self.site, identity.next - 1, self.track.base)  # fmt: skip
        self.statistics.begin_again(self._now())
        self._left_out = LeftOut(self.statistics)
        yield from self._begin_from(identity.oldest, (yield SaveProgress()), identity)

    def _begin_from(self, start: int, since: int, identity: IdentifyReply) -> Steps[None]:
        start = max(start, 1)
        # The track first: other threads read `known` meanwhile.
        self.track, self._began, self._feeds = Track(start - 1), start, identity.receivable
        self._queue_id, self._since, self._whole = identity.queue, since, start
        yield SaveProgress()

    def _change_rights(self, feeds: tuple[str, ...]) -> Steps[None]:
        """We may receive other feeds than before."""
        if is_widened(self.known, feeds):
            log.info("site %s permits more feeds; reading them from product %d on", self.site, self._began)
            self.statistics.state = "catching up"
            selection = str(self.selection)
            yield from read_permitted(self.site, selection, self.known, self._store)
        self._feeds = feeds
        yield SaveProgress()

    # --- from the log -----------------------------------------------------------------------------

    def _catch_up(self) -> Steps[None]:
        """Read the log to its end. The last read is made with the live path open, so that both overlap."""
        self.statistics.state = "catching up"
        yield ShutLive()
        is_open = False
        while True:
            if (yield from self._read_log()) and is_open:
                self._heard = self._now()
                return
            if not is_open and self._site_next - self.track.base <= _NEAR:
                yield OpenLive()
                is_open = True

    def _read_log(self, *, hurry: bool = False) -> Steps[bool]:
        """Store the pages of one reply; True if that is all that the site had when it began to reply."""
        end = 0
        reply = yield ReadLog(self.site, str(self.selection), self.track.base, self._names, hurry)
        page: Page | None
        while (page := (yield NextPage(reply))) is not None:
            check_page(page, self.site)
            head = page.head
            end = end or head.head
            if head.queue != self._queue_id or head.after > self.track.base:
                raise Unreachable("its log changed during the reply")
            if head.head <= self.track.base:
                raise Unreachable("its log ends before our position")
            check_extent(head, self._site_next)
            yield from self._recover_lost(head.lost_first, head.lost_last, head.lost_by)
            yield from self._store(page, self._new_in(page))
            self._left_out.count(page, self.track.base, self._now())
            self._whole = whole_after(head, self._whole)  # before the base moves
            self.track.add_pulled(head.upto)
            self._site_next, self.statistics.failing = head.head, ""
            self.statistics.pulled += 1
        if not end:
            raise Unreachable("no page came")
        return self.track.base >= end - 1

    def _new_in(self, page: Page) -> Keep:
        """Which products of a page from the log have not come live already."""
        keep: Keep = (page.sequences > self.track.base).astype(np.uint8)
        for row, sequence in enumerate(page.sequences.tolist()) if self.track.ahead else ():
            keep[row] = sequence > self.track.reached(page.batch.feed(row))
        return keep

    def _recover_lost(self, first: int, last: int, cause: LostBy) -> Steps[None]:
        """The site cannot give this range. Other holders may; what is missing then is lost, and named.

        Just after the start the other holders may not have been met yet: they are asked for some seconds.
        """
        first = max(first, self.track.base + 1)
        if first <= last:
            first, last = yield FindMissing(first, last, self._since)
        while first <= last and self._holders is not None and cause != "too large":
            yield from self._ask_holders()
            first, last = yield FindMissing(first, last, self._since)
            if self._now() > self._met:
                break
            if first <= last:
                yield Pause(_MEETING_S / 5)
        if first > last:
            return
        self._whole = max(self._whole, last + 1)
        if cause == "evicted" and self._others is not None:
            yield from begin_unseen(self.site, self._queue_id, first, last, self.statistics, self._now())
            log.warning("site %s: products %d-%d may be lost: evicted there; other sites of the request may have them",
                        self.site, first, last)  # fmt: skip
            return
        self.statistics.lose(first, last, cause, self._now())
        log.error("site %s: products %d-%d are lost (%s there)", self.site, first, last, cause)

    def _settle(self) -> Steps[None]:
        """Take back ranges of which it was unknown whether they are lost, and which other sites have supplied."""
        if self._others is not None and self.statistics.unseen:
            yield from settle(self.site, self.statistics, self._others, self._since, self._now())

    def _ask_holders(self) -> Steps[None]:
        """Take from other sites what is missing here. Where nothing is known yet, that is everything, or nothing."""
        if self._holders is None or not (self._queue_id or self._begin_at == "oldest"):
            return
        try:
            self.statistics.from_others += yield from self._holders.pull(self.track, self._store_held)
            self.statistics.waiting = self._holders.waiting
        except (Unreachable, FabricError) as error:
            log.warning("site %s: pulling its products from other holders failed: %s", self.site, error)

    def _store_held(self, page: Page, keep: Keep) -> Steps[None]:
        """Store products that came from another holder, under its sequences."""
        yield from self._store(page, keep)
        taken = page.columns[keep.astype(np.bool_)]
        self._left_out.note(taken["origin_sequence"], taken, self.track.base)

    def _store(self, page: Page, keep: Keep | None) -> Steps[None]:
        if len(page.batch) and (keep is None or keep.any()):
            yield Store(page, keep)
            self.statistics.products += len(page.batch) if keep is None else int(np.count_nonzero(keep))

    # --- live -------------------------------------------------------------------------------------

    def _live(self) -> Steps[None]:
        suspected = 0.0  # when to read the log, because a beat revealed something that has not come
        while True:
            messages: list[LiveMessage] = yield TakeLive(INTERVAL_S)
            if messages and messages[0].feed is not None:
                yield from self._take_pages(messages)
            elif messages and not (yield from self._is_satisfied(messages[0])):
                suspected = suspected or self._now() + _GRACE_S
            elif messages:
                suspected = 0.0
            if suspected and self._now() > suspected:
                yield from self._repair()
                suspected = 0.0
            yield from self._settle()
            if self._now() - self._heard > self._silence_s:
                raise Unreachable(f"silent for {self._silence_s:g} s")

    def _take_pages(self, messages: list[LiveMessage]) -> Steps[None]:
        """Store pages that continue what has arrived as one batch, so that a receiver that is late has less work."""
        waiting: list[_Live] = []
        moved: dict[str, int] = {}
        for message in messages:
            feed = message.feed or ""
            try:
                head = decode_head(message.attachment)
                if head.queue != self._queue_id:
                    yield from self._doubt()
            except FabricMessageError as error:
                self._refuse(error)
                continue
            self.statistics.latency_ns = message.arrived_ns - head.sent_ns
            if head.after != (moved.get(feed) or self.track.reached(feed)) or is_leap(head.upto, self.track.base):
                yield from self._take_together(waiting)
                yield from self._take_alone(feed, head, message.payload)
                waiting, moved = [], {}
                continue
            waiting.append((feed, head, message.payload))
            moved[feed] = head.upto
        yield from self._take_together(waiting)

    def _take_together(self, waiting: list[_Live]) -> Steps[None]:
        if len(waiting) < 2:
            for live in waiting:
                yield from self._take_alone(*live)
            return
        try:
            pages = decode_all([(head, payload) for _, head, payload in waiting], self._names)
            for (feed, _, _), page in zip(waiting, pages, strict=True):
                check_live(page, self.site, feed)
        except FabricMessageError:  # one of them is invalid
            for live in waiting:
                yield from self._take_alone(*live)
            return
        sequences = np.concatenate([page.sequences for page in pages])
        yield from self._store(Page(pages[-1].head, pages[0].batch, sequences), None)
        for (feed, _, _), page in zip(waiting, pages, strict=True):
            self._note_live(feed, page)

    def _take_alone(self, feed: str, head: PageHead, payload: bytes) -> Steps[None]:
        if head.upto <= self.track.reached(feed):
            self.statistics.old_pages += 1
            return
        try:
            page = decode(head, payload, self._names)
            check_live(page, self.site, feed)
            if not self._fits(feed, head):
                yield from self._make_fit(feed, head)
        except FabricMessageError as error:
            self._refuse(error)
            return
        reached = self.track.reached(feed)
        yield from self._store(page, None if head.after == reached else (page.sequences > reached).astype(np.uint8))
        self._note_live(feed, page)

    def _note_live(self, feed: str, page: Page) -> None:
        base = self.track.base
        products = len(page) if page.head.after >= base else int(np.count_nonzero(page.sequences > base))
        self.track.add_live(feed, page.head.upto, products)
        self._left_out.note(page.sequences, page.columns, self.track.base)
        self.statistics.live += 1

    def _fits(self, feed: str, head: PageHead) -> bool:
        return self.track.fits(feed, head.after) and not is_leap(head.upto, self.track.base)

    def _make_fit(self, feed: str, head: PageHead) -> Steps[None]:
        """Read what is missing before this page. A true page fits then."""
        self.statistics.gaps += 1
        yield from self._repair()
        if not self._fits(feed, head):
            raise FabricMessageError(
                f"a live page covers {head.after + 1}-{head.upto}, beyond the end of the site's log", "it was refused"
            )

    def _doubt(self) -> Steps[None]:
        """A message names another queue, or another run of the site. Only the site's own reply decides that."""
        if self._now() > self._doubted:
            self._doubted = self._now() + _DOUBT_S
            identity: IdentifyReply = yield Ask(self.site, Identify(), IdentifyReply)
            if identity.queue != self._queue_id:
                raise Unreachable("it has a new queue")
            if identity.started_ns != self._started_ns:
                raise _RestartedError
        raise FabricMessageError("a message names a queue or a run that is not the site's", "it was refused")

    def _refuse(self, error: FabricMessageError) -> None:
        """Count an invalid message. Forget the names that it may have brought: the table of names is bounded."""
        self._names = Names()
        self.statistics.refused, self.statistics.refused_at = self.statistics.refused + 1, self._now()
        log.warning("site %s: %s", self.site, error)

    def _is_satisfied(self, message: LiveMessage) -> Steps[bool]:
        """Whether everything that the beat speaks of has arrived. An invalid beat is counted and says nothing."""
        try:
            beat = decode_beat(message.payload)
            check_beat(beat, self.site, self._stream)
            if (beat.queue, beat.started_ns) != (self._queue_id, self._started_ns):
                yield from self._doubt()
            self._silence_s = silence_s(beat.interval_ms)
        except FabricMessageError as error:
            self._refuse(error)
            return True
        if is_leap(beat.examined, self.track.base):
            return False
        self._site_next = max(self._site_next, beat.examined + 1)
        recent = beat.recent
        if recent is not None and self._stream == OWN:
            recent = {feed: last for feed, last in recent.items() if self.selection.wants_feed(feed)}
        return beat.left_out <= self.track.base and self.track.add_beat(beat.since, beat.examined, recent)

    def _repair(self) -> Steps[None]:
        """Read what is missing from the log; what comes live meanwhile waits in the buffer."""
        self.statistics.repairs += 1
        while not (yield from self._read_log(hurry=True)):
            pass
