"""Describe: the parts of a running site, summed up as its Description (relay)."""

from collections import Counter, defaultdict
from collections.abc import Mapping

import zenoh

from headrace.errors import QueueMovedError
from headrace.link.rights import EVERY_FEED, Feeds
from headrace.log.statistics import Statistics
from headrace.product.cause import REFUSED_HERE, Cause
from headrace.queue import Queue
from headrace.queue.request_lags import RequestLag
from headrace.relay.messages.description import (
    FEEDS_MAX,
    FLOWS_MAX,
    REQUESTS_MAX,
    STREAMS_MAX,
    UPSTREAMS_MAX,
    Description,
    FeedStatus,
    Problem,
    RequestStatus,
    StreamStatus,
    UpstreamStatus,
    largest,
    links_of,
    shortened,
)
from headrace.relay.quench import Quench
from headrace.relay.receive.counts import Arrivals
from headrace.relay.receive.driver import Driver
from headrace.relay.receive.receiver import Receiver, Request
from headrace.relay.send import Streams
from headrace.relay.serve import Server
from headrace.relay.stream import Stream
from headrace.remote.server.server import RemoteServer
from headrace.timing.clock.state import ClockState


def describe(
    session: zenoh.Session, queue: Queue, server: Server, streams: Streams, receiver: Receiver, remote: RemoteServer,
    quench: Quench, problems: tuple[Problem, ...], clock: ClockState | None, shown: Feeds = EVERY_FEED,
) -> Description:  # fmt: skip
    """The site at this moment. Its numbers are not taken at one instant, so they may differ by a few products.

    Of feeds, flows and patterns only those that are `shown`, so that others take no place in a list that has a limit.
    """
    held, flows = _held(queue), [flow for flow in receiver.flows.statistics() if shown.is_all or flow.feed in shown]
    known = () if held is None else held.feeds
    feeds = [FeedStatus(f.feed, f.products, f.bytes, f.last > 0) for f in known if f.feed in shown]
    return Description(
        site=queue.config.origin,
        zid=str(session.zid()),
        started_ns=server.started_ns,
        oldest=0 if held is None else held.oldest,
        next=0 if held is None else held.next,
        held_products=0 if held is None else held.held_products,
        held_bytes=0 if held is None else held.held_bytes,
        size=0 if held is None else held.size,
        links=links_of(session),
        users=remote.statistics().clients,
        feeds=largest(feeds, FEEDS_MAX, lambda feed: feed.products),
        feeds_in_all=len(feeds),
        wanted=tuple([pattern for pattern in quench.patterns if shown.includes(pattern)][:FEEDS_MAX]),
        requests=_requests(receiver),
        upstreams=tuple(_upstream(name, upstream) for name, upstream in receiver.upstreams()[:UPSTREAMS_MAX]),
        streams=tuple(_stream(stream) for stream in streams.all()[:STREAMS_MAX]),
        flows=largest(flows, FLOWS_MAX, lambda flow: flow.products),
        flows_in_all=len(flows),
        answered=server.answered,
        refused=server.refused,
        problems=problems,
        clock=clock,
    )


def _held(queue: Queue) -> Statistics | None:
    """None if the queue was moved away: the site describes itself nevertheless, and that is one of its problems."""
    try:
        return queue.statistics()
    except QueueMovedError:
        return None


def _requests(receiver: Receiver) -> tuple[RequestStatus, ...]:
    left_out: dict[str, Counter[Cause]] = defaultdict(Counter)
    for (name, _), counts in receiver.tally.upstreams().items():
        left_out[name].update(counts.left_out)
    return tuple(
        _request(request, receiver.tally.arrivals(request.name), left_out[request.name])
        for request in receiver.requests[:REQUESTS_MAX]
    )


def _request(request: Request, counts: Arrivals, left_out: Mapping[Cause, int]) -> RequestStatus:
    selection = request.selection
    return RequestStatus(
        request.name, selection.feed or "**", shortened(str(selection)), request.sites, request.redundancy,
        counts.products, counts.duplicates, counts.refused, counts.expired, counts.returned, *_parted(left_out),
    )  # fmt: skip


def _upstream(request: str, upstream: Driver) -> UpstreamStatus:
    counts = upstream.statistics
    left_out, refused_here = _parted(counts.left_out)
    return UpstreamStatus(
        request, upstream.site, counts.state, shortened(counts.problem), upstream.base, counts.products,
        counts.from_others, counts.live, counts.pulled, counts.gaps, counts.repairs, counts.refused,
        counts.latency_ns / 1e9, tuple(counts.lost), counts.lost_sequences, left_out, upstream.stands_by,
        counts.from_standby, {reason: number for reason, number in counts.dropped.items() if number},
        counts.wire_bytes, counts.page_bytes, refused_here,
    )  # fmt: skip


def _parted(counts: Mapping[Cause, int]) -> tuple[dict[Cause, int], dict[str, int]]:
    """What another site left out, and what this site refused of what came from there."""
    refused_here: dict[str, int] = {cause: count for cause, count in counts.items() if cause in REFUSED_HERE}
    return {cause: count for cause, count in counts.items() if cause not in REFUSED_HERE}, refused_here


def _stream(stream: Stream) -> StreamStatus:
    selection = stream.selection
    return StreamStatus(
        stream.name, selection.feed or "**", shortened(str(selection)), stream.pages, stream.products,
        stream.has_subscribers(),
    )  # fmt: skip


def request_lags(receiver: Receiver) -> list[RequestLag]:
    """How far each request is at each site, for programs on this machine."""
    lags = []
    for name, upstream in receiver.upstreams():
        counts = upstream.statistics
        behind = None if counts.state in ("asking", "unreachable") else upstream.behind
        lags.append(RequestLag(name, upstream.site, counts.state, behind, counts.left_out, counts.failing))
    served = {lag.request for lag in lags}
    unserved = [request.name for request in receiver.requests if request.name not in served]
    return [*lags, *(RequestLag(name, "", "no site yet", None, {}) for name in unserved)]
