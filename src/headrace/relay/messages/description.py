"""Description: everything that a site says about itself, for maps and monitors.

Links, requests and the sites that serve them, streams, feeds, and how products arrive. Counts are since the start of
the site. Every list has a limit; beyond it the largest entries are listed and the rest are counted, so a reply stays
small however busy the site is. A principal sees nothing about feeds that it may not receive, nor about what others do
(`visible_to`).

Not here: the map of many sites (site/map.py).
"""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import msgspec
import zenoh

from headrace.link.rights import Feeds
from headrace.product.cause import Cause, LostBy
from headrace.relay.flows import OTHERS, FlowStatistics
from headrace.relay.messages.page import Sequence64, SiteName
from headrace.timing.clock.state import ClockState

LINKS_MAX = 1000
FEEDS_MAX = 200
FLOWS_MAX = 200
REQUESTS_MAX = 200
UPSTREAMS_MAX = 1000
STREAMS_MAX = 300
PROBLEMS_MAX = 500
TEXT_MAX = 400  # characters of a selection

Zid = Annotated[str, msgspec.Meta(max_length=32)]
Thing = TypeVar("Thing")


class LinkStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One link of the site's session, and what is at its other end: a router, a peer or a client."""

    zid: Zid
    kind: str
    address: str


class FeedStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was ever put into the site's queue under one feed, here or elsewhere."""

    feed: str
    products: int
    payload_bytes: int
    put_here: bool = False  # some of it was put here


class RequestStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request of the site."""

    name: str
    feed: str  # pattern
    selection: str
    sites: tuple[SiteName, ...]  # empty: any
    redundancy: str
    products: int
    duplicates: int
    refused: int  # by the queue: it can never take them
    expired: int  # of the products: by the clock of this site, no reader sees them
    returned: int  # they were put at this site
    left_out: dict[Cause, int]  # by all sites that have served it
    refused_here: dict[str, int] = {}  # by this site, of what others sent for it, by cause


class UpstreamStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One site that serves one request."""

    request: str
    site: SiteName
    state: str  # asking, catching up, live, standby, unreachable
    problem: str  # the last one
    base: Sequence64  # everything has arrived up to here, in sequences of that site's queue
    products: int
    from_others: int
    live_pages: int
    pulled_pages: int
    gaps: int
    repairs: int
    refused: int  # invalid pages and beats
    latency_s: float  # of the last live page, by the clocks of both sites
    lost: tuple[
        tuple[int, int, LostBy], ...
    ]  # the latest lost ranges, and why: an `evicted unseen` one may have come from another site
    lost_sequences: int  # in all lost ranges
    left_out: dict[Cause, int]  # by that site, lost ranges included
    stands_by: bool = False  # another site of a fail-over list serves the request
    from_standby: int = 0  # of the products, read while the site stood by: the active site did not bring them
    dropped: dict[str, int] = {}  # live pages and beats that were not kept, by reason; products are read from the log
    wire_bytes: int = 0  # of pages, as they came over the link
    page_bytes: int = 0  # and without compression of the link
    refused_here: dict[str, int] = {}  # by the describing site, of what that site sent, by cause


class StreamStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stream of the site's live path."""

    name: str
    feed: str  # pattern
    selection: str
    pages: int
    products: int
    has_listeners: bool


class Problem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that an operator of the site should look at (site/problems.py)."""

    kind: Annotated[str, msgspec.Meta(max_length=32)]
    subject: str  # an endpoint, a request, a site or a file
    text: str
    remedy: str
    age_s: float = 0.0  # since it last happened; 0: it lasts


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A site at one moment."""

    site: SiteName
    zid: Zid
    started_ns: Sequence64
    oldest: Sequence64
    next: Sequence64
    held_products: int
    held_bytes: int
    size: int
    links: Annotated[tuple[LinkStatus, ...], msgspec.Meta(max_length=LINKS_MAX)]
    users: int  # programs that are connected to the queue
    feeds: Annotated[tuple[FeedStatus, ...], msgspec.Meta(max_length=FEEDS_MAX)]
    feeds_in_all: int
    wanted: Annotated[tuple[str, ...], msgspec.Meta(max_length=FEEDS_MAX)]  # feed patterns with subscribers
    requests: Annotated[tuple[RequestStatus, ...], msgspec.Meta(max_length=REQUESTS_MAX)]
    upstreams: Annotated[tuple[UpstreamStatus, ...], msgspec.Meta(max_length=UPSTREAMS_MAX)]
    streams: Annotated[tuple[StreamStatus, ...], msgspec.Meta(max_length=STREAMS_MAX)]
    flows: Annotated[tuple[FlowStatistics, ...], msgspec.Meta(max_length=FLOWS_MAX)]
    flows_in_all: int
    answered: int
    refused: int
    problems: Annotated[tuple[Problem, ...], msgspec.Meta(max_length=PROBLEMS_MAX)]
    clock: ClockState | None = None  # None: nobody keeps it


def links_of(session: zenoh.Session) -> tuple[LinkStatus, ...]:
    """The links that a session has now."""
    kinds = {str(transport.zid): str(transport.whatami).lower() for transport in session.info.transports()}
    links = [LinkStatus(str(link.zid), kinds.get(str(link.zid), ""), link.dst) for link in session.info.links()]
    return tuple(sorted(links, key=lambda link: (link.kind == "client", link.zid))[:LINKS_MAX])


def largest(things: Sequence[Thing], limit: int, size: Callable[[Thing], int]) -> tuple[Thing, ...]:
    """The largest entries, in their original order."""
    if len(things) <= limit:
        return tuple(things)
    places = sorted(range(len(things)), key=lambda place: size(things[place]), reverse=True)[:limit]
    return tuple(things[place] for place in sorted(places))


def shortened(text: str) -> str:
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…"


def visible_to(whole: Description, feeds: Feeds, held: tuple[int, int], streams: str) -> Description:
    """The part for a principal that may receive these feeds only; entries that span other feeds as well are left out.

    `held` are the products of these feeds that the queue holds, and their payload bytes. The names of the principal's
    own streams begin with `streams`. Queries are not counted, because others ask about other feeds.
    """
    covered = feeds.includes
    requests = tuple(request for request in whole.requests if covered(request.feed))
    names = {request.name for request in requests}
    shown = tuple(feed for feed in whole.feeds if feed.feed in feeds)
    flows = tuple(flow for flow in whole.flows if flow.feed != OTHERS and flow.feed in feeds)
    return msgspec.structs.replace(
        whole,
        held_products=held[0],
        held_bytes=held[1],
        feeds=shown,
        feeds_in_all=len(shown),
        wanted=tuple(pattern for pattern in whole.wanted if covered(pattern)),
        requests=requests,
        upstreams=tuple(upstream for upstream in whole.upstreams if upstream.request in names),
        streams=tuple(stream for stream in whole.streams if stream.name.startswith(streams)),
        flows=flows,
        flows_in_all=len(flows),
        answered=0,
        refused=0,
        problems=(),
        clock=None if whole.clock is None else msgspec.structs.replace(whole.clock, servers=(), process=0),
    )
