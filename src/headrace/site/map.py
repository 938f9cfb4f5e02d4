"""Map: all sites of a fabric, the links between them, and the description of each, as plain data.

Sites are found by their liveliness tokens and queried for their descriptions, all at once. A link joins two of them;
one of its ends measures the round trip, because the process that draws the map is elsewhere. The map also has sites
that others request from and that are away, and routers that are not sites.

Not here: how a map is shown (cli/sites.py).
"""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import msgspec
import zenoh

from headrace.errors import FabricError
from headrace.link.presence import sites_present
from headrace.relay.islands import Island, islands
from headrace.relay.messages.description import Description, UpstreamStatus
from headrace.relay.messages.query import Describe, Measure, MeasureReply, Unreachable
from headrace.relay.site_client import ROUND_TRIPS, SiteClient, round_trips
from headrace.units import format_latency

_LOOK_S = 2.0
_LOOK_AGAIN_S = 0.05
_MEASURE_S = 5.0
_AT_ONCE = 8


class Node(msgspec.Struct, frozen=True):
    """A site (`here`: it replies; `silent`: it does not; `away`: others request from it) or a `router` that is none."""

    name: str
    zid: str
    state: str
    problem: str
    round_trip_s: float | None  # from the process that draws the map
    description: Description | None


class Link(msgspec.Struct, frozen=True):
    """Between two nodes, by name. Pages and gaps are those of requests that the two serve each other."""

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
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]

    @property
    def islands(self) -> list[Island]:
        """Sites that take a request from each other only."""
        return islands({node.name: node.description for node in self.nodes if node.description})

    def _repr_html_(self) -> str:
        from headrace.notebook import rows_table  # notebook.py says why it is imported here

        nodes = (
            (node.name, node.state, node.problem, _latency(node.round_trip_s),
             None if node.description is None else f"{node.description.held_products:,}")
            for node in self.nodes
        )  # fmt: skip
        links = (
            (link.one, link.other, link.address, _latency(link.round_trip_s), f"{link.live_pages:,}", f"{link.gaps:,}")
            for link in self.links
        )
        sites = ("site", "state", "problem", "round trip", "products")
        between = ("one", "other", "address", "round trip", "live pages", "gaps")
        return rows_table("Sites", sites, nodes, len(self.nodes), "site") + rows_table(
            "Links", between, links, len(self.links), "link"
        )


def _latency(seconds: float | None) -> str | None:
    return None if seconds is None else format_latency(seconds)


def gather(session: zenoh.Session, principal: str | None = None) -> Map:
    """Query every site. It takes as long as the slowest reply, and some seconds if a site does not reply."""
    names = sorted(_sites(session).items(), key=lambda pair: pair[1])
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda pair: _look_at(session, principal, *pair), names))
    nodes = (*found, *_routers(found, str(session.zid())), *_missed(found))
    return Map(time.time_ns(), nodes, tuple(_links(session, principal, nodes)))


def _sites(session: zenoh.Session) -> dict[str, str]:
    """Names by session id. A router that has just accepted us may need a moment to know them."""
    until = time.monotonic() + _LOOK_S
    while not (found := sites_present(session)) and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN_S)
    return found


def _look_at(session: zenoh.Session, principal: str | None, zid: str, name: str) -> Node:
    try:
        told = SiteClient(session, name, principal).query(Describe(), Description)
    except (Unreachable, FabricError, zenoh.ZError) as error:
        return Node(name, zid, "silent", str(error), None, None)
    taken = round_trips(session, name, ROUND_TRIPS, principal)
    return Node(name, zid, "here", "", median(taken) if taken else None, told)


def _routers(nodes: Iterable[Node], own_zid: str) -> list[Node]:
    """What sites are linked to and is not a site; clients are not shown one by one."""
    known = {node.zid for node in nodes} | {own_zid}
    seen = {link.zid for node in nodes if node.description for link in node.description.links if link.kind != "client"}
    return [Node(f"router {zid[:8]}", zid, "router", "", None, None) for zid in sorted(seen - known)]


def _missed(nodes: Iterable[Node]) -> list[Node]:
    present = {node.name for node in nodes}
    asked = {upstream.site for node in nodes if node.description for upstream in node.description.upstreams}
    return [Node(name, "", "away", "", None, None) for name in sorted(asked - present)]


def _links(session: zenoh.Session, principal: str | None, nodes: Iterable[Node]) -> Iterable[Link]:
    by_zid = {node.zid: node for node in nodes if node.zid}
    seen: set[frozenset[str]] = set()
    for node in nodes:
        for link in node.description.links if node.description else ():
            other = by_zid.get(link.zid)
            if other is None or frozenset((node.zid, other.zid)) in seen:
                continue
            seen.add(frozenset((node.zid, other.zid)))
            taken = _measured(session, principal, node, other)
            yield _link(node, other, link.address, taken)


def _measured(session: zenoh.Session, principal: str | None, node: Node, other: Node) -> float | None:
    if "here" not in (node.state, other.state) or "router" in (node.state, other.state):
        return None
    try:
        client = SiteClient(session, node.name, principal)
        reply = client.query(Measure(other.name, ROUND_TRIPS), MeasureReply, _MEASURE_S)
    except (Unreachable, FabricError, zenoh.ZError):
        return None
    return median(reply.seconds) if reply.seconds else None


def _link(node: Node, other: Node, address: str, round_trip_s: float | None) -> Link:
    between = [*_served(node, other.name), *_served(other, node.name)]
    pages, gaps = sum(each.live_pages for each in between), sum(each.gaps for each in between)
    loss = gaps / (pages + gaps) if pages + gaps else None
    return Link(node.name, other.name, address, round_trip_s, pages, gaps, loss)


def _served(node: Node, by: str) -> list[UpstreamStatus]:
    return [upstream for upstream in node.description.upstreams if upstream.site == by] if node.description else []
