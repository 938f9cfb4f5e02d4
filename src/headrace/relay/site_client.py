"""The client of one other site's log: sends queries, returns replies and pages.

Nobody waits on Zenoh's threads, and replies beyond what was asked for are dropped (replies.py). Whoever asks either
waits (`query`), or looks for what has come whenever `wake` is called (`ask`, `pages`), so that a few threads can ask
any number of sites. Pages are handed on one by one while later ones are still on their way, so that querying, sending
and storing overlap.

Priorities: pages give way to live traffic, and short queries and their replies overtake both. So a site that is merely
busy is not taken for one that is away.

A query asks for about half a second's worth of pages over the link at hand (`_Pace`). Thus on a slow link no reply
delays everything else, and none is still on its way when the client has given up; on a fast link little time is spent
on round trips.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec
import zenoh

from headrace.errors import FabricError
from headrace.link.access import principal_key
from headrace.link.keys import log_key
from headrace.log.records import Names
from headrace.payload.compression.link import ENCODING, asking, unfolded
from headrace.relay.messages.page import PAGE_BYTES_MAX, Page, decode, decode_head
from headrace.relay.messages.query import Query, Read, Resolve, ResolveReply, Unreachable, decode_reply, encode
from headrace.relay.replies import PENDING, Pending, Replies
from headrace.text import visible

ROUND_TRIPS = 3
_REPLY_S = 5.0
_ROUND_TRIP_S_MAX = 1.0
_GRACE_S = 1.0  # Zenoh ends a query when its time is over
_PAGES = 16  # in one reply
_PRODUCTS = 20_000  # in one page
_PAGE_BYTES = 4 << 20
_FIRST_BYTES = 256 << 10
_LEAST_BYTES = 16 << 10
_MOST_BYTES = _PAGES * _PAGE_BYTES
_AIM_S = 0.5
_TIMEOUT_S, _TIMEOUT_S_MAX = 10.0, 600.0  # of a whole reply; one product may be large, and its link slow

_REASON_BYTES_MAX = 1000  # of an error that another site wrote

_Sent = tuple[Read, Replies]  # a query, and its replies as they come


def _nothing() -> None:
    """Nobody is to be woken: the caller waits."""


class SiteClient:
    """For one site. `principal` is the name by which that site knows us, if it has access rules."""

    def __init__(
        self, session: zenoh.Session, site: str, principal: str | None = None, *, compress: str = "",
        count: Callable[[int, int], None] | None = None, record_bytes: int = PAGE_BYTES_MAX,
        wake: Callable[[], None] = _nothing,
    ) -> None:  # fmt: skip
        """`compress`: ask for compressed pages. `count` gets the bytes of each, on the link and as they are.

        `record_bytes`: no larger product can come in, because our session drops larger messages.
        `wake` is called on any thread when there is something new for `ask` or `pages`.
        """
        self._session, self.site, self._count, self._wake = session, site, count, wake
        self._key = asking(principal_key(log_key(site), principal), compress)
        self.pace = _Pace(record_bytes)
        self.prefetched: _Sent | None = None

    def query(self, query: Query, kind: type[Any], timeout_s: float = _REPLY_S) -> Any:
        """Return the short reply, a `kind`. Raises Unreachable, or FabricMessageError if the reply is invalid."""
        asked = self.ask(query, kind, timeout_s)
        asked.replies.wait(timeout_s + _GRACE_S)
        if (reply := asked.poll()) is PENDING:
            raise Unreachable("no reply")
        return reply

    def ask(self, query: Query, kind: type[Any], timeout_s: float = _REPLY_S) -> "Asked":
        """The same without waiting."""
        return Asked(self, kind, self._send(query, timeout_s, 1, zenoh.Priority.DATA_HIGH))

    def pages(
        self, selection: str, after: int, names: Names, *, hurry: bool = False, products: int | None = None
    ) -> "Pages":
        """What the site has behind `after`, as much as suits the link: at least one page, or Unreachable.

        In a `hurry` the pages do not give way to live traffic, because something is missing from it. When the last
        page has come and there is more behind it, the next query is sent before that page is returned, so that the link
        is not idle while the page is stored. With `products`, one page of about so many, and nothing in advance.
        """
        priority = zenoh.Priority.DATA if hurry else zenoh.Priority.DATA_LOW
        sent, self.prefetched = self.prefetched, None
        if sent is None or sent[0].selection != selection or sent[0].after != after:
            sent = self.send_read(selection, after, priority, products)
        return Pages(self, sent, names, priority, prefetches=products is None)

    def send_read(self, selection: str, after: int, priority: zenoh.Priority, products: int | None = None) -> _Sent:
        query = self.pace.query(selection, after)
        if products is not None:
            query = msgspec.structs.replace(query, pages=1, products=min(products, _PRODUCTS))
        return query, self._send(query, self.pace.timeout_s, query.pages, priority)

    def _send(self, query: Query, timeout_s: float, replies_max: int, priority: zenoh.Priority) -> Replies:
        replies = Replies(replies_max, self._wake)
        self._session.get(
            self._key, replies.handler, payload=encode(query), timeout=timeout_s,
            consolidation=zenoh.ConsolidationMode.NONE, congestion_control=zenoh.CongestionControl.BLOCK,
            priority=priority,
        )  # fmt: skip
        return replies

    def contents(self, reply: zenoh.Reply) -> tuple[bytes, bytes]:
        """The attachment and the payload; Unreachable if it is an error."""
        if reply.ok is None:
            reason = _reason(reply.err) if reply.err else "no reply"
            self.pace.refused(reason)
            raise Unreachable(reason)
        attachment, sent = reply.ok.attachment, reply.ok.payload.to_bytes()
        payload = sent
        if str(reply.ok.encoding) == ENCODING:
            payload = unfolded(sent, PAGE_BYTES_MAX, f"a page of site {self.site}")
        if self._count is not None:
            self._count(len(sent), len(payload))
        return attachment.to_bytes() if attachment else b"", payload


class Asked:
    """A short query on its way."""

    def __init__(self, client: SiteClient, kind: type[Any], replies: Replies) -> None:
        self._client, self._kind, self.replies = client, kind, replies

    def poll(self) -> Any:
        """The reply, or PENDING; Unreachable, or FabricMessageError if it is invalid."""
        came = self.replies.poll()
        if came is PENDING:
            return PENDING
        if came is None:
            raise Unreachable("no reply")
        _, payload = self._client.contents(came.reply)
        return decode_reply(payload, self._kind, self._client.site)


class Pages:
    """The pages of one reply, one after the other."""

    def __init__(
        self, client: SiteClient, sent: _Sent, names: Names, priority: zenoh.Priority, *, prefetches: bool
    ) -> None:
        self._client, self._names, self._priority, self._prefetches = client, names, priority, prefetches
        self._query, self._replies = sent
        self._size = self._came = 0
        self._waited_s, self._begun = 0.0, time.monotonic()

    def poll(self) -> Page | Pending | None:
        """The next page, None after the last one, or PENDING; Unreachable, or FabricMessageError if it is invalid."""
        came = self._replies.poll()
        if came is PENDING:
            return PENDING
        if came is None:
            if not self._size:
                raise Unreachable("no page came")
            if self._client.prefetched is None:
                self._client.pace.replied(self._size, self._waited_s)
            return None
        self._waited_s += max(0.0, came.arrived - self._begun)
        try:
            attachment, payload = self._client.contents(came.reply)
        except Unreachable:
            self._client.pace.timed_out()
            raise
        self._size, self._came = self._size + len(attachment) + len(payload), self._came + 1
        page = decode(decode_head(attachment), payload, self._names)
        if self._prefetches and self._came == self._query.pages and page.head.upto < page.head.head - 1:
            self._client.pace.replied(self._size, self._waited_s)
            self._client.prefetched = self._client.send_read(self._query.selection, page.head.upto, self._priority)
        self._begun = time.monotonic()
        return page


class _Pace:
    """How much to ask for at once: more after a fast reply, less after a slow one."""

    def __init__(self, record_bytes: int) -> None:
        self._bytes, self._record_bytes = _FIRST_BYTES, record_bytes
        self.timeout_s = _TIMEOUT_S  # of a whole reply

    def query(self, selection: str, after: int) -> Read:
        pages = -(-self._bytes // _PAGE_BYTES)
        return Read(selection, after, pages, _PRODUCTS, min(self._bytes, _PAGE_BYTES), self._record_bytes)

    def replied(self, size: int, seconds: float) -> None:
        """The whole reply had `size` bytes. A small one says nothing about how long a large one takes."""
        self.timeout_s = _TIMEOUT_S
        if seconds > 2 * _AIM_S:
            self._bytes = max(_LEAST_BYTES, int(self._bytes * _AIM_S / seconds))
        elif seconds < _AIM_S and size >= self._bytes // 2:
            self._bytes = min(_MOST_BYTES, 2 * self._bytes)

    def refused(self, reason: str) -> None:
        """Sites of earlier versions do not know the limit of a record; the next query is without."""
        if "`record_bytes`" in reason:
            self._record_bytes = PAGE_BYTES_MAX

    def timed_out(self) -> None:
        """No whole reply came in time."""
        self.timeout_s = min(_TIMEOUT_S_MAX, 2 * self.timeout_s)
        self._bytes = max(_LEAST_BYTES, self._bytes // 8)


def _reason(error: zenoh.ReplyError) -> str:
    return visible(error.payload.to_bytes()[:_REASON_BYTES_MAX].decode(errors="replace"))


def round_trips(
    session: zenoh.Session, site: str, times: int = ROUND_TRIPS, principal: str | None = None
) -> tuple[float, ...]:
    """Measure how long a site takes to reply to the smallest query: seconds, one for each reply.

    Stops at the first query that has no reply.
    """
    client, taken = SiteClient(session, site, principal), []
    for _ in range(times):
        begun = time.perf_counter()
        try:
            client.query(Resolve("next"), ResolveReply, _ROUND_TRIP_S_MAX)
        except (Unreachable, FabricError, zenoh.ZError):
            break
        taken.append(time.perf_counter() - begun)
    return tuple(taken)
