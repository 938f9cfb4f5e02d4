"""Dot: the map as a graph for Graphviz. Nodes are sites, plain edges links, dashed arrows ways that products go.

Every name in it may come from a stranger; all of them are quoted, and no character in them means anything to Graphviz.
"""

from collections.abc import Iterator

from headrace.cli.failure import visible
from headrace.cli.output import format_short_age, many
from headrace.site.map import Link, Map, Node
from headrace.units import format_size

_LOOKS = {"here": "style=solid", "silent": "style=dashed, color=red", "away": "style=dotted, color=red",
          "router": "shape=ellipse, style=solid"}  # fmt: skip


def dot_lines(drawn: Map) -> Iterator[str]:
    """The graph, line by line."""
    yield "digraph headrace {"
    yield '  node [shape=box, fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=10];'
    for place in drawn.nodes:
        yield f"  {quoted(place.name)} [label={_lines(*_told(place))}, {_LOOKS[place.state]}];"
    for link in drawn.links:
        yield f"  {quoted(link.one)} -> {quoted(link.other)} [dir=none, label={_lines(*_of_link(link))}];"
    for place in drawn.nodes:
        for upstream in place.told.upstreams if place.told else ():
            look = "color=red" if upstream.state == "unreachable" else "color=gray40"
            label = _lines(f"{upstream.request}: {upstream.state}", many(upstream.products, "product"))
            ends = f"{quoted(upstream.site)} -> {quoted(place.name)}"
            yield f"  {ends} [style=dashed, constraint=false, {look}, label={label}];"
    yield "}"


def quoted(text: str) -> str:
    """As Graphviz takes any text as one name."""
    return '"' + visible(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lines(*lines: str) -> str:
    return '"' + "\\n".join(quoted(line)[1:-1] for line in lines if line) + '"'


def _told(place: Node) -> list[str]:
    told = place.told
    if told is None:
        return [place.name, place.state if place.state != "router" else ""]
    held = f"{many(told.held_products, 'product')}, {format_size(told.held_bytes)}"
    return [place.name, held, f"{many(told.feeds_in_all, 'feed')}"]


def _of_link(link: Link) -> list[str]:
    took = "" if link.round_trip_s is None else format_short_age(link.round_trip_s)
    return [took, "" if link.loss is None else f"loss {link.loss:.2%}"]
