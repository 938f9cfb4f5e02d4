"""Trails: links drawn as lines of text. A chain is one line, a ring is one that ends where it began.

    one ── 0.4 ms ── two ── 12.1 ms ── three ── 0.3 ms ── one

Each link is drawn once. A line goes on for as long as there is a link that was not drawn; lines begin at ends first.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from headrace.cli.output import format_short_age
from headrace.site.map import Link

Ways = dict[str, dict[int, Link]]  # of each site, by the number of the link


def trails(links: Iterable[Link]) -> Iterator[str]:
    """The lines; sites without links are on none."""
    ways: Ways = defaultdict(dict)
    for number, link in enumerate(links):
        ways[link.one][number] = ways[link.other][number] = link
    while any(ways.values()):
        names = [name for name in ways if ways[name]]
        ends = [name for name in names if len(ways[name]) % 2]
        yield _trail(ways, (ends or names)[0])


def _trail(ways: Ways, name: str) -> str:
    parts = [name]
    while ways[name]:
        number, link = ways[name].popitem()
        other = link.one if name == link.other else link.other
        ways[other].pop(number, None)  # both ends may have one name
        took = link.round_trip_s
        parts += ["──" if took is None else f"── {format_short_age(took)} ──", other]
        name = other
    return " ".join(parts)
