"""The map of the fabric, rendered: as tables, as lines of text that show the links, and as a graph for Graphviz.

Lines are drawn until each link is on one of them. A ring is a line that ends where it starts:

    one ── 0.4 ms ── two ── 12.1 ms ── three ── 0.3 ms ── one

In the graph, nodes are sites, plain edges are links, and dashed arrows show where products go. Names may come from
other sites: all of them are quoted, so that no character in them has a meaning for Graphviz.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import click

from headrace.cli.output import show_table
from headrace.product.cause import by_cause
from headrace.relay.flows import FlowStatistics
from headrace.relay.messages.description import Description, FeedStatus
from headrace.site.map import Link, Map, Node
from headrace.site.problems import Found
from headrace.text import visible
from headrace.units import format_age, format_count, format_latency, format_size

_FLOWS = 10  # shown of each site, unless --flows is given
_NODE_STYLES = {
    "here": "style=solid",
    "silent": "style=dashed, color=red",
    "away": "style=dotted, color=red",
    "router": "shape=ellipse, style=solid",
}

Row = tuple[str, ...]
LinksBySite = dict[str, dict[int, Link]]  # by the number of the link


def show_map(sites_map: Map, problems: Sequence[Found], all_flows: bool) -> None:
    """Write all tables: which sites exist, how they are linked, what goes where, how fast, and what is wrong."""
    sites = [node.description for node in sites_map.nodes if node.description]
    _show_sites(sites_map)
    _show_links(sites_map)
    _show("feeds", ("site", "feeds", "number", "products", "payload"), _feed_rows(sites), (2, 3, 4))
    _show("wanted", ("site", "feeds with listeners"), _wanted_rows(sites))
    _show_requests(sites)
    _show("streams", ("site", "stream", "selection", "products", "pages", "listeners"), _stream_rows(sites), (3, 4))
    _show_flows(sites, all_flows)
    for line in problem_lines(problems):
        click.echo(visible(line))


def _show(title: str, header: Row, rows: Sequence[Row], right: Sequence[int] = ()) -> None:
    if rows:
        show_table(title, header, rows, right)


def _show_sites(sites_map: Map) -> None:
    header = ("site", "state", "round trip", "products", "payload", "of", "links", "users", "up for", "offset", "bound")
    rows = [(node.name, node.state, *_site_cells(node, sites_map.drawn_ns)) for node in sites_map.nodes]
    _show("sites", header, rows, range(2, 11))
    if not rows:
        click.echo("no site answers")


def _site_cells(node: Node, now_ns: int) -> Row:
    site = node.description
    if site is None:
        return ("",) * 9
    links = sum(link.kind != "client" for link in site.links)
    return (
        _took(node.round_trip_s), f"{site.held_products:,}", format_size(site.held_bytes), format_size(site.size),
        str(links), str(site.users), format_age(max(0.0, (now_ns - site.started_ns) / 1e9)),
        *_clock_cells(site),
    )  # fmt: skip


def _clock_cells(site: Description) -> Row:
    """How far its clock is from that of its system, and how far it may be from the truth."""
    clock = site.clock
    if clock is None:
        return ("", "")
    bound = "unknown" if clock.bound_ns is None else format_latency(clock.bound_ns / 1e9)
    return (f"{'-' if clock.offset_ns < 0 else '+'}{format_latency(abs(clock.offset_ns) / 1e9)}", bound)


def _show_links(sites_map: Map) -> None:
    rows = [
        (link.one, link.other, link.address, _took(link.round_trip_s), "" if link.loss is None else f"{link.loss:.2%}")
        for link in sites_map.links
    ]
    _show("links", ("site", "site", "address", "round trip", "loss"), rows, (3, 4))
    for line in link_lines(sites_map.links):
        click.echo(f"  {visible(line)}")


def _feed_rows(sites: list[Description]) -> list[Row]:
    """Totals by the first two levels of the feeds."""
    rows: list[Row] = []
    for site in sites:
        groups: dict[str, list[FeedStatus]] = defaultdict(list)
        for feed in site.feeds:
            levels = feed.feed.split("/")
            groups["/".join(levels[:2]) + ("/…" if len(levels) > 2 else "")].append(feed)
        for group, feeds in sorted(groups.items()):
            products, size = sum(feed.products for feed in feeds), sum(feed.payload_bytes for feed in feeds)
            rows.append((site.site, group, f"{len(feeds):,}", f"{products:,}", format_size(size)))
        if site.feeds_in_all > len(site.feeds):
            rows.append((site.site, f"and {site.feeds_in_all - len(site.feeds):,} smaller ones", "", "", ""))
    return rows


def _wanted_rows(sites: list[Description]) -> list[Row]:
    return [(site.site, pattern) for site in sites for pattern in site.wanted]


def _show_requests(sites: list[Description]) -> None:
    """One row for each site that serves a request; a request that no site serves has a row too."""
    rows: list[Row] = []
    for site in sites:
        for request in site.requests:
            served = [each for each in site.upstreams if each.request == request.name]
            cells = (site.site, request.name, request.selection)
            rows += [
                (*cells, each.site, each.state, f"{each.products:,}", f"{each.gaps:,}", f"{each.repairs:,}",
                 by_cause(each.dropped) or "0", by_cause({**each.left_out, **each.refused_here}) or "0")
                for each in served
            ] or [(*cells, "no site yet", "", "", "", "", "", "")]  # fmt: skip
    header = ("site", "request", "selection", "from", "state", "products", "gaps", "repairs", "dropped", "left out")
    _show("requests", header, rows, range(5, 10))


def _stream_rows(sites: list[Description]) -> list[Row]:
    return [
        (site.site, stream.name, stream.selection, f"{stream.products:,}", f"{stream.pages:,}",
         "yes" if stream.has_listeners else "no")
        for site in sites for stream in site.streams
    ]  # fmt: skip


def _show_flows(sites: list[Description], all_flows: bool) -> None:
    rows: list[Row] = []
    for site in sites:
        flows = sorted(site.flows, key=lambda flow: flow.products, reverse=True)
        shown = flows if all_flows else flows[:_FLOWS]
        rows += [(site.site, *_flow_cells(flow)) for flow in shown]
        if site.flows_in_all > len(shown):
            rows.append((site.site, "", f"and {site.flows_in_all - len(shown):,} more", *[""] * 7))
    header = ("site", "origin", "feed", "products", "payload", "duplicates", "latency", "p50", "p99", "max")
    _show("flows", header, rows, range(3, 10))


def _flow_cells(flow: FlowStatistics) -> Row:
    latencies = (flow.latency_s, flow.latency_p50_s, flow.latency_p99_s, flow.latency_max_s)
    return (
        flow.origin, flow.feed, f"{flow.products:,}", format_size(flow.payload_bytes), f"{flow.duplicates:,}",
        *map(_took, latencies),
    )  # fmt: skip


def _took(seconds: float | None) -> str:
    return "" if seconds is None else format_latency(seconds)


def problem_lines(problems: Sequence[Found]) -> Iterator[str]:
    """What an operator should look at: a line for each, and one with what to do."""
    if problems:
        yield "problems:"
    for found in problems:
        problem = found.problem
        when = f", {format_age(problem.age_s)} ago" if problem.age_s else ""
        yield f"  {f'site {found.site}: ' if found.site else ''}{problem.text}{when}"
        if problem.remedy:
            yield f"    try: {problem.remedy}"


# --- links as lines of text ------------------------------------------------------------------------


def link_lines(links: Iterable[Link]) -> Iterator[str]:
    """The lines; a site without links is on none of them. Lines start at the ends of chains first."""
    left: LinksBySite = defaultdict(dict)
    for number, link in enumerate(links):
        left[link.one][number] = left[link.other][number] = link
    while any(left.values()):
        names = [name for name in left if left[name]]
        ends = [name for name in names if len(left[name]) % 2]
        yield _link_line(left, (ends or names)[0])


def _link_line(left: LinksBySite, name: str) -> str:
    parts = [name]
    while left[name]:
        number, link = left[name].popitem()
        other = link.one if name == link.other else link.other
        left[other].pop(number, None)  # two sites may share a name
        took = link.round_trip_s
        parts += ["──" if took is None else f"── {format_latency(took)} ──", other]
        name = other
    return " ".join(parts)


# --- a graph for Graphviz -------------------------------------------------------------------------


def dot_lines(sites_map: Map) -> Iterator[str]:
    """The graph for Graphviz, line by line."""
    yield "digraph headrace {"
    yield '  node [shape=box, fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=10];'
    for node in sites_map.nodes:
        yield f"  {quoted(node.name)} [label={_lines(*_node_lines(node))}, {_NODE_STYLES[node.state]}];"
    for link in sites_map.links:
        yield f"  {quoted(link.one)} -> {quoted(link.other)} [dir=none, label={_lines(*_edge_lines(link))}];"
    for node in sites_map.nodes:
        for upstream in node.description.upstreams if node.description else ():
            look = "color=red" if upstream.state == "unreachable" else "color=gray40"
            label = _lines(f"{upstream.request}: {upstream.state}", format_count(upstream.products, "product"))
            ends = f"{quoted(upstream.site)} -> {quoted(node.name)}"
            yield f"  {ends} [style=dashed, constraint=false, {look}, label={label}];"
    yield "}"


def quoted(text: str) -> str:
    """A text as Graphviz reads it as one name."""
    return '"' + visible(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lines(*lines: str) -> str:
    return '"' + "\\n".join(quoted(line)[1:-1] for line in lines if line) + '"'


def _node_lines(node: Node) -> list[str]:
    site = node.description
    if site is None:
        return [node.name, node.state if node.state != "router" else ""]
    held = f"{format_count(site.held_products, 'product')}, {format_size(site.held_bytes)}"
    return [node.name, held, f"{format_count(site.feeds_in_all, 'feed')}"]


def _edge_lines(link: Link) -> list[str]:
    took = "" if link.round_trip_s is None else format_latency(link.round_trip_s)
    return [took, "" if link.loss is None else f"loss {link.loss:.2%}"]
