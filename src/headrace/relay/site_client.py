"""The client of one other site's log: sends queries, returns replies and pages.

The caller's thread waits; Zenoh's threads never do, because the channel of replies has room for everything that was
asked for. Pages are handed on one by one while later ones are still on their way, so that querying, sending and
storing overlap.

Priorities: pages give way to live traffic, and short queries and their replies overtake both. So a site that is merely
busy is not taken for one that is away.

A query asks for about half a second's worth of pages over the link at hand (`_Pace`). Thus on a slow link no reply
delays everything else, and none is still on its way when the client has given up; on a fast link little time is spent
on round trips.
"""

import time
from collections.abc import Callable, Iterable, Iterator
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
from headrace.text import visible

ROUND_TRIPS = 3
_REPLY_S = 5.0
_ROUND_TRIP_S_MAX = 1.0
_SPARE = 2  # room in the channel for messages of Zenoh's own
_PAGES = 16  # in one reply
_PRODUCTS = 20_000  # in one page
_PAGE_BYTES = 4 << 20
_FIRST_BYTES = 256 << 10
_LEAST_BYTES = 16 << 10
_MOST_BYTES = _PAGES * _PAGE_BYTES
_AIM_S = 0.5
_TIMEOUT_S, _TIMEOUT_S_MAX = 10.0, 600.0  # of a whole reply; one product may be large, and its link slow

_REASON_BYTES_MAX = 1000  # of an error that another site wrote

_Pending = tuple[Read, Iterator[tuple[bytes, bytes]]]  # a query, and its replies as they come


class SiteClient:
    """For one site. `principal` is the name by which that site knows us, if it has access rules."""

    def __init__(
        self, session: zenoh.Session, site: str, principal: str | None = None, *, compress: str = "",
        count: Callable[[int, int], None] | None = None, record_bytes: int = PAGE_BYTES_MAX,
    ) -> None:  # fmt: skip
        """`compress`: ask for compressed pages. `count` gets the bytes of each, on the link and as they are.

        `record_bytes`: no larger product can come in, because our session drops larger messages.
        """
        self._session, self.site, self._count = session, site, count
        self._key = asking(principal_key(log_key(site), principal), compress)
        self._pace = _Pace(record_bytes)
        self._prefetched: _Pending | None = None

    def query(self, query: Query, kind: type[Any], timeout_s: float = _REPLY_S) -> Any:
        """Return the short reply, a `kind`. Raises Unreachable, or FabricMessageError if the reply is invalid."""
        for _, payload in self._send(query, timeout_s, 1, zenoh.Priority.DATA_HIGH):
            return decode_reply(payload, kind, self.site)
        raise Unreachable("no reply")

    def pages(
        self, selection: str, after: int, names: Names, *, hurry: bool = False, products: int | None = None
    ) -> Iterator[Page]:
        """Yield what the site has behind `after`, as much as suits the link: at least one page, or Unreachable.

        In a `hurry` the pages do not give way to live traffic, because something is missing from it. When the last
        page has come and there is more behind it, the next query is sent before that page is yielded, so that the link
        is not idle while the page is stored. With `products`, one page of about so many, and nothing in advance.
        """
        priority = zenoh.Priority.DATA if hurry else zenoh.Priority.DATA_LOW
        pending = self._prefetched
        if pending is None or pending[0].selection != selection or pending[0].after != after:
            pending = self._send_read(selection, after, priority, products)
        self._prefetched = None
        (query, replies), size, came, waited_s, begun = pending, 0, 0, 0.0, time.monotonic()
        try:
            for attachment, payload in replies:
                size, waited_s = size + len(attachment) + len(payload), waited_s + time.monotonic() - begun
                page, came = decode(decode_head(attachment), payload, names), came + 1
                if products is None and came == query.pages and page.head.upto < page.head.head - 1:
                    self._pace.replied(size, waited_s)
                    self._prefetched = self._send_read(selection, page.head.upto, priority)
                yield page
                begun = time.monotonic()
        except Unreachable:
            self._pace.timed_out()
            raise
        if not size:
            raise Unreachable("no page came")
        if self._prefetched is None:
            self._pace.replied(size, waited_s)

    def _send_read(self, selection: str, after: int, priority: zenoh.Priority, products: int | None = None) -> _Pending:
        query = self._pace.query(selection, after)
        if products is not None:
            query = msgspec.structs.replace(query, pages=1, products=min(products, _PRODUCTS))
        return query, self._send(query, self._pace.timeout_s, query.pages, priority)

    def _send(
        self, query: Query, timeout_s: float, replies_max: int, priority: zenoh.Priority
    ) -> Iterator[tuple[bytes, bytes]]:
        replies = self._session.get(
            self._key, zenoh.handlers.FifoChannel(replies_max + _SPARE), payload=encode(query), timeout=timeout_s,
            consolidation=zenoh.ConsolidationMode.NONE, congestion_control=zenoh.CongestionControl.BLOCK,
            priority=priority,
        )  # fmt: skip
        return self._contents(replies)

    def _contents(self, replies: Iterable[zenoh.Reply]) -> Iterator[tuple[bytes, bytes]]:
        for reply in replies:
            if reply.ok is None:
                reason = _reason(reply.err) if reply.err else "no reply"
                self._pace.refused(reason)
                raise Unreachable(reason)
            attachment, sent = reply.ok.attachment, reply.ok.payload.to_bytes()
            payload = sent
            if str(reply.ok.encoding) == ENCODING:
                payload = unfolded(sent, PAGE_BYTES_MAX, f"a page of site {self.site}")
            if self._count is not None:
                self._count(len(sent), len(payload))
            yield attachment.to_bytes() if attachment else b"", payload


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
