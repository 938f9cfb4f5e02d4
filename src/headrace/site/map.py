"""Map: all sites of a fabric, the links between them, and what each tells about itself, as plain data.

Sites are found by their liveliness tokens and asked for their descriptions, all at once. A link is what two of them
have in common; its round trip is measured by one of its ends, since whoever draws the map is somewhere else. Sites that
others wait for in vain, and routers that are no sites, are on the map as well.

Not here: how a map is shown (cli/sites.py).
"""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from statistics import median

import msgspec
import zenoh

from headrace.errors import FabricError, OptionError
from headrace.link.keys import site_key
from headrace.log.config import check_origin
from headrace.relay.messages.description import Description, UpstreamStatus
from headrace.relay.messages.query import Describe, Measure, MeasureReply
from headrace.relay.site_client import ROUND_TRIPS, SiteClient, Unreachable, round_trips

_TOKENS_S = 2.0
_LOOK_AGAIN_S = 0.05
_MEASURE_S = 5.0
_AT_ONCE = 8


class Place(msgspec.Struct, frozen=True):
    """A site or a router. `here`: it answers; `silent`: it does not; `away`: others miss it; `router`: no site."""

    name: str
    zid: str
    state: str
    trouble: str
    round_trip_s: float | None  # from where the map is drawn
    told: Description | None


class Link(msgspec.Struct, frozen=True):
    """Between two places, by name. Pages and gaps are those of requests that the two have served each other."""

    one: str
    other: str
    address: str
    round_trip_s: float | None
    live_pages: int
    gaps: int
    loss: float | None  # share of live pages before which something was missing; None if there were none


class Map(msgspec.Struct, frozen=True):
    """A fabric at one moment."""

    drawn_ns: int
    places: tuple[Place, ...]
    links: tuple[Link, ...]


def gather(session: zenoh.Session, principal: str | None = None) -> Map:
    """Ask everybody. It takes as long as the slowest answer, and some seconds if there is none."""
    names = sorted(_sites(session).items(), key=lambda pair: pair[1])
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda pair: _look_at(session, principal, *pair), names))
    places = (*found, *_routers(found, str(session.zid())), *_missed(found))
    return Map(time.time_ns(), places, tuple(_links(session, principal, places)))


def _sites(session: zenoh.Session) -> dict[str, str]:
    """Names by the ids of sessions. A router that has just let us in may need a moment to tell."""
    found: dict[str, str] = {}
    until = time.monotonic() + _TOKENS_S
    while not found and time.monotonic() < until:
        for reply in session.liveliness().get(site_key("*", "*"), timeout=_TOKENS_S):
            if reply.ok is not None:
                _, _, name, zid = str(reply.ok.key_expr).split("/", 3)
                with suppress(OptionError):  # anybody may show any name
                    found[zid] = check_origin(name)
        if not found:
            time.sleep(_LOOK_AGAIN_S)
    return found


def _look_at(session: zenoh.Session, principal: str | None, zid: str, name: str) -> Place:
    try:
        told = SiteClient(session, name, principal).query(Describe(), Description)
    except (Unreachable, FabricError, zenoh.ZError) as error:
        return Place(name, zid, "silent", str(error), None, None)
    taken = round_trips(session, name, ROUND_TRIPS, principal)
    return Place(name, zid, "here", "", median(taken) if taken else None, told)


def _routers(places: Iterable[Place], own_zid: str) -> list[Place]:
    """What sites are linked to and is no site; users are not shown one by one."""
    known = {place.zid for place in places} | {own_zid}
    seen = {link.zid for place in places if place.told for link in place.told.links if link.kind != "client"}
    return [Place(f"router {zid[:8]}", zid, "router", "", None, None) for zid in sorted(seen - known)]


def _missed(places: Iterable[Place]) -> list[Place]:
    present = {place.name for place in places}
    asked = {upstream.site for place in places if place.told for upstream in place.told.upstreams}
    return [Place(name, "", "away", "", None, None) for name in sorted(asked - present)]


def _links(session: zenoh.Session, principal: str | None, places: Iterable[Place]) -> Iterable[Link]:
    by_zid = {place.zid: place for place in places if place.zid}
    seen: set[frozenset[str]] = set()
    for place in places:
        for link in place.told.links if place.told else ():
            other = by_zid.get(link.zid)
            if other is None or frozenset((place.zid, other.zid)) in seen:
                continue
            seen.add(frozenset((place.zid, other.zid)))
            taken = _measured(session, principal, place, other)
            yield _link(place, other, link.address, taken)


def _measured(session: zenoh.Session, principal: str | None, place: Place, other: Place) -> float | None:
    if "here" not in (place.state, other.state) or "router" in (place.state, other.state):
        return None
    try:
        client = SiteClient(session, place.name, principal)
        reply = client.query(Measure(other.name, ROUND_TRIPS), MeasureReply, _MEASURE_S)
    except (Unreachable, FabricError, zenoh.ZError):
        return None
    return median(reply.seconds) if reply.seconds else None


def _link(place: Place, other: Place, address: str, round_trip_s: float | None) -> Link:
    between = [*_served(place, other.name), *_served(other, place.name)]
    pages, gaps = sum(each.live_pages for each in between), sum(each.gaps for each in between)
    loss = gaps / (pages + gaps) if pages + gaps else None
    return Link(place.name, other.name, address, round_trip_s, pages, gaps, loss)


def _served(place: Place, by: str) -> list[UpstreamStatus]:
    return [upstream for upstream in place.told.upstreams if upstream.site == by] if place.told else []
