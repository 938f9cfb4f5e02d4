"""Trails: links drawn as lines of text. A chain is one line, a ring is one that ends where it began.

    one ── 0.4 ms ── two ── 12.1 ms ── three ── 0.3 ms ── one

Each link is drawn once. A line goes on for as long as there is a link that was not drawn; lines begin at ends first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from headrace.cli.output import format_short_age
from headrace.fabric.map import Link

Ways = dict[str, dict[str, Link]]


def trails(links: Iterable[Link]) -> Iterator[str]:
    """The lines; sites without links are on none."""
    ways: Ways = defaultdict(dict)
    for link in links:
        ways[link.one][link.other] = ways[link.other][link.one] = link
    while any(ways.values()):
        names = [name for name in ways if ways[name]]
        ends = [name for name in names if len(ways[name]) % 2]
        yield _trail(ways, (ends or names)[0])


def _trail(ways: Ways, name: str) -> str:
    parts = [name]
    while ways[name]:
        other, link = ways[name].popitem()
        del ways[other][name]
        took = link.round_trip_s
        parts += ["──" if took is None else f"── {format_short_age(took)} ──", other]
        name = other
    return " ".join(parts)
