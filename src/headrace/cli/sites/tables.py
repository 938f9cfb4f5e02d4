"""Tables: the map for people."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import click

from headrace.cli.failure import visible
from headrace.cli.output import format_short_age, many, show_table
from headrace.cli.sites.trails import trails
from headrace.relay.flows import FlowStatistics
from headrace.relay.messages.description import Description, FeedStatus
from headrace.site.map import Map, Node
from headrace.units import format_age, format_size

_FLOWS = 10  # of each site, unless all are wanted
Row = tuple[str, ...]


def show_map(drawn: Map, all_flows: bool) -> None:
    """Everything, in the order of a question: who is there, how linked, what goes where, and how fast."""
    told = [place.told for place in drawn.nodes if place.told]
    _show_sites(drawn)
    _show_links(drawn)
    _show("feeds", ("site", "feeds", "number", "products", "payload"), _feed_rows(told), (2, 3, 4))
    _show("wanted", ("site", "feeds that others listen to"), _wanted_rows(told))
    _show_requests(told)
    _show("streams", ("site", "stream", "selection", "products", "pages", "listeners"), _stream_rows(told), (3, 4))
    _show_flows(told, all_flows)
    for line in _troubles(drawn):
        click.echo(visible(line))


def _show(title: str, header: Row, rows: Sequence[Row], right: Sequence[int] = ()) -> None:
    if rows:
        show_table(title, header, rows, right)


def _show_sites(drawn: Map) -> None:
    header = ("site", "state", "round trip", "products", "payload", "of", "links", "users", "up for")
    rows = [(place.name, place.state, *_site_cells(place, drawn.drawn_ns)) for place in drawn.nodes]
    _show("sites", header, rows, range(2, 9))
    if not rows:
        click.echo("no site is there")


def _site_cells(place: Node, now_ns: int) -> Row:
    told = place.told
    if told is None:
        return ("",) * 7
    links = sum(link.kind != "client" for link in told.links)
    return (
        _took(place.round_trip_s), f"{told.held_products:,}", format_size(told.held_bytes), format_size(told.size),
        str(links), str(told.users), format_age(max(0.0, (now_ns - told.started_ns) / 1e9)),
    )  # fmt: skip


def _show_links(drawn: Map) -> None:
    rows = [
        (link.one, link.other, link.address, _took(link.round_trip_s), "" if link.loss is None else f"{link.loss:.2%}")
        for link in drawn.links
    ]
    _show("links", ("site", "site", "address", "round trip", "loss"), rows, (3, 4))
    for line in trails(drawn.links):
        click.echo(f"  {visible(line)}")


def _feed_rows(told: list[Description]) -> list[Row]:
    """Summed up by the first two levels."""
    rows: list[Row] = []
    for site in told:
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


def _wanted_rows(told: list[Description]) -> list[Row]:
    return [(site.site, pattern) for site in told for pattern in site.wanted]


def _show_requests(told: list[Description]) -> None:
    """One row for each site that serves a request; one without sites has a row all the same."""
    rows: list[Row] = []
    for site in told:
        for request in site.requests:
            served = [each for each in site.upstreams if each.request == request.name]
            cells = (site.site, request.name, request.selection)
            rows += [
                (*cells, each.site, each.state, f"{each.products:,}", f"{each.gaps:,}", f"{each.repairs:,}",
                 f"{each.lost_sequences:,}")
                for each in served
            ] or [(*cells, "nobody yet", "", "", "", "", "")]  # fmt: skip
    header = ("site", "request", "selection", "from", "state", "products", "gaps", "repairs", "lost")
    _show("requests", header, rows, range(5, 9))


def _stream_rows(told: list[Description]) -> list[Row]:
    return [
        (site.site, stream.name, stream.selection, f"{stream.products:,}", f"{stream.pages:,}",
         "some" if stream.has_listeners else "none")
        for site in told for stream in site.streams
    ]  # fmt: skip


def _show_flows(told: list[Description], all_flows: bool) -> None:
    rows: list[Row] = []
    for site in told:
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
    return "" if seconds is None else format_short_age(seconds)


def _troubles(drawn: Map) -> Iterator[str]:
    """What somebody should look after, one line each."""
    for name, times in Counter(place.name for place in drawn.nodes).items():
        if times > 1:
            yield f"{times} sites are called {name}: give each a name of its own"
    for place in drawn.nodes:
        if place.state == "silent":
            yield f"site {place.name} does not answer: {place.trouble}"
        if place.state == "away":
            yield f"site {place.name} is missed by others"
        for request in place.told.requests if place.told else ():
            if request.refused:
                yield f"site {place.name}: its queue refused {many(request.refused, 'product')} of {request.name}"
        for each in place.told.upstreams if place.told else ():
            if each.state == "unreachable":
                yield f"site {place.name} cannot reach {each.site} for {each.request}: {each.problem}"
            if each.lost_sequences:
                ranges = ", ".join(f"{first}-{last} ({cause})" for first, last, cause in each.lost)
                yield f"site {place.name} has lost {ranges} of {each.site} ({each.request})"
            if each.refused:
                yield f"site {place.name} refused {many(each.refused, 'page')} of {each.site}: not to be believed"
