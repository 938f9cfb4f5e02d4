"""Scrutiny: what is believed of a page or a beat that could be decoded.

Whoever may publish under a site's key can say anything there. Each message is held against what is known of the site,
and against itself: nobody speaks for another site or stream, nor puts products under another feed's key; a live page
has products, and covers no more than them. What jumps further ahead than a site can get between two beats is not
believed before the site's log was asked.

Who may publish under which key at all is decided elsewhere (access.py).
"""

from headrace.errors import FabricMessageError
from headrace.link.keys import OWN
from headrace.relay.beat import Beat
from headrace.relay.page import Page

_LEAP = 1 << 24  # products; more do not come between two beats


def is_leap(upto: int, base: int) -> bool:
    """Is this too far from where everything had arrived?"""
    return upto > base + _LEAP


def check_page(page: Page, site: str, *, relayed: bool) -> None:
    """A page of this site, with products of its own unless it relays."""
    if page.head.site != site:
        raise _refusal(f"a page of site {site} says that it comes from {page.head.site}")
    if not relayed and len(page) and not _is_all(page, "origin", site):
        raise _refusal(f"a page of site {site} has products of other origins")


def _is_all(page: Page, column: str, name: str) -> bool:
    """Do all products have this name there?"""
    numbers = page.columns[column]
    return page.batch.name(int(numbers[0])) == name and (len(page) == 1 or not bool((numbers != numbers[0]).any()))


def check_live(page: Page, site: str, feed: str, *, relayed: bool) -> None:
    """A page that came under the key of this feed."""
    check_page(page, site, relayed=relayed)
    if not len(page) or not _is_all(page, "feed", feed):
        raise _refusal(f"a live page of site {site} has not the feed of its key, {feed!r}")
    if int(page.sequences[-1]) != page.head.upto:
        raise _refusal(f"a live page of site {site} says that it reaches beyond its products")
    if page.head.stream == OWN and int(page.columns["previous"][0]) > page.head.after:
        raise _refusal(f"a live page of site {site} says that it begins before its products")


def check_beat(beat: Beat, site: str, stream: str) -> None:
    if (beat.site, beat.stream) != (site, stream):
        raise _refusal(f"a beat of site {site} says that it comes from {beat.site}, of another stream or not")


def _refusal(problem: str) -> FabricMessageError:
    return FabricMessageError(problem, "it was refused; say in [[allow]] who may publish")
