"""Offers: the feeds that are put at this site and at others, for the list of members.

A site shows a digest of its feeds in a token. Another site whose clients watch members queries its description when
the digest changes; that has the feeds which the other site may receive. So nobody polls, and a fabric that nobody
watches has no queries at all. The digest is made again every two seconds.

A site shows the digest to those who may receive everything, because it changes with every feed. Who may not, asks again
every ten seconds while anybody watches.
"""

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import zenoh

from headrace.errors import FabricMessageError, FeedError, HeadraceError
from headrace.guard import guarded
from headrace.link.access import principal_key
from headrace.link.declarations import Declarations, Declared
from headrace.link.keys import LEAVING, is_wild, log_key, site_state_key
from headrace.product.feed import check_feed
from headrace.queue import Queue
from headrace.queue.members import FEEDS_MAX
from headrace.queue.queue import log_of
from headrace.relay.messages.description import Description
from headrace.relay.messages.query import Describe, decode_reply, encode

_REPLY_S = 3.0
_SHOWN_S = 1.0  # a new site is listed without its feeds if they are not known by then
_AGAIN_S = (0.2, 0.5, 1.0, 3.0, 10.0)  # before a query is repeated: the route to a new site may not be known yet
_AT_ONCE = 32  # queries in one turn
_DESCRIPTION_BYTES_MAX = 4 << 20

log = logging.getLogger("headrace.remote.server")
Run = tuple[str, str]  # name and session


class OwnOffer:
    """What this site offers, and the token that says so."""

    def __init__(self, session: zenoh.Session, declarations: Declarations, queue: Queue, site: str) -> None:
        self._session, self._declarations, self._queue, self._site = session, declarations, queue, site
        self.zid = str(session.zid())
        self.feeds: tuple[str, ...] = ()
        self._digest = ""
        self._token: Declared | None = None

    def refresh(self) -> None:
        """Show the feeds as they are now."""
        with suppress(HeadraceError):  # the queue was moved away: a problem of the site
            log_of(self._queue).check_open()
            own = [(count, feed) for feed, last, count, _ in log_of(self._queue).kernel.feed_totals() if last]
            digest = hashlib.blake2b("\n".join(sorted(feed for _, feed in own)).encode(), digest_size=8).hexdigest()
            if digest != self._digest:
                self._digest, self.feeds = digest, largest_feeds(own)
                self._show(digest)

    def leave(self) -> None:
        """Announce that the site is about to stop."""
        self._show(LEAVING)

    def _show(self, state: str) -> None:
        key = site_state_key(self._site, self.zid, state)
        before = self._token
        self._token = self._declarations.add(lambda: self._session.liveliness().declare_token(key))
        if before is not None:
            before.undeclare()

    def close(self) -> None:
        if self._token is not None:
            self._token.undeclare()


@dataclass(slots=True)
class _Offer:
    """What is known of one state of another site."""

    digest: str
    is_hidden: bool  # the site has just appeared
    since: float = 0.0  # when the site was first asked; 0: not yet
    ask_at: float = 0.0  # when to ask, again
    asked: int = 0
    is_told: bool = False
    feeds: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the feeds may be others than those that are known."""
        return not self.is_told or not self.digest

    def is_settled(self, now: float) -> bool:
        """Whether the site has replied, or had its time to."""
        return self.is_told or bool(self.since and now - self.since >= _SHOWN_S)


class OtherOffers:
    """What other sites offer. One thread uses it, except that replies arrive on Zenoh's threads."""

    def __init__(self, session: zenoh.Session, principal: str | None, wake: Callable[[], None]) -> None:
        self._session, self._principal, self._wake = session, principal, wake
        self._offers: dict[Run, _Offer] = {}
        self._came: deque[tuple[Run, str, bytes]] = deque()  # at most one for each query

    def feeds_of(self, sites: Mapping[Run, str], now: float, is_watched: bool) -> dict[Run, tuple[str, ...]]:
        """The feeds of these sites, as far as they are known. While anybody watches, those that are not are queried.

        A site that appears then is left out until its feeds are known, for a second at most.
        """
        self._take_replies()
        left = {run[0]: offer for run, offer in self._offers.items() if run not in sites}
        self._offers = {
            run: self._offer(digest, self._offers.get(run) or left.get(run[0]), is_watched)
            for run, digest in sites.items()
        }
        if is_watched:
            self._ask_all(now)
        for offer in self._offers.values():
            offer.is_hidden = offer.is_hidden and is_watched and not offer.is_settled(now)
        return {run: offer.feeds for run, offer in self._offers.items() if not offer.is_hidden}

    def _offer(self, digest: str, before: _Offer | None, is_watched: bool) -> _Offer:
        """`before` is that of the same run, or of the run that it replaces."""
        if before is None:
            return _Offer(digest, is_hidden=is_watched)
        return before if before.digest == digest else _Offer(digest, before.is_hidden, before.since, feeds=before.feeds)

    def _ask_all(self, now: float) -> None:
        due = [(run, offer) for run, offer in self._offers.items() if offer.is_open and now >= offer.ask_at]
        for run, offer in due[:_AT_ONCE]:
            offer.since = offer.since or now
            offer.ask_at = now + _AGAIN_S[len(_AGAIN_S) - 1 if offer.is_told else min(offer.asked, len(_AGAIN_S) - 1)]
            offer.asked += 1
            self._ask(run, offer.digest)

    def is_settled(self, now: float) -> bool:
        """Whether all sites have replied, or had their time to."""
        return all(offer.is_settled(now) for offer in self._offers.values())

    def due_s(self, now: float) -> float | None:
        """In how many seconds a site has to be queried again; None if there is none."""
        moments = [offer.ask_at for offer in self._offers.values() if offer.is_open]
        return max(_AGAIN_S[0], min(moments) - now) if moments else None

    def _ask(self, run: Run, digest: str) -> None:
        def receive(reply: zenoh.Reply) -> None:  # on a thread of Zenoh's
            is_its = reply.replier_id is None or str(reply.replier_id.zid) == run[1]  # another may have its name
            if is_its and reply.ok is not None and _is_valid(reply.ok):
                self._came.append((run, digest, reply.ok.payload.to_bytes()))
                self._wake()

        with suppress(zenoh.ZError):  # the session is closed
            self._session.get(
                principal_key(log_key(run[0]), self._principal),
                zenoh.handlers.Callback(guarded(receive), indirect=False),
                payload=encode(Describe()), timeout=_REPLY_S, consolidation=zenoh.ConsolidationMode.NONE,
                congestion_control=zenoh.CongestionControl.DROP,  # it is sent again: a full link must not hold us up
            )  # fmt: skip

    def _take_replies(self) -> None:
        while self._came:
            run, digest, payload = self._came.popleft()
            offer = self._offers.get(run)
            if offer is None or offer.digest != digest:
                continue
            try:
                told: Description = decode_reply(payload, Description, run[0])
            except FabricMessageError as error:
                log.warning("the feeds of site %s are unknown: %s", run[0], error)
                continue
            offer.is_told = True
            offer.feeds = largest_feeds((each.products, each.feed) for each in told.feeds if each.put_here)


def largest_feeds(counted: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    """The names of the feeds with the most products, in their order; invalid names are left out."""
    largest = sorted(counted, reverse=True)[:FEEDS_MAX]
    return tuple(sorted(feed for _, feed in largest if _is_feed(feed)))


def _is_valid(reply: zenoh.Sample) -> bool:
    return not is_wild(reply.key_expr) and len(reply.payload) <= _DESCRIPTION_BYTES_MAX


def _is_feed(feed: str) -> bool:
    try:
        check_feed(feed)
    except FeedError:
        return False
    return True
