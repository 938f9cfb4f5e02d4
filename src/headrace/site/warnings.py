"""Warnings: what a configuration may say, and what may still end badly together with the configurations of other sites.

Or it contradicts itself, where that may be meant.

Or it gives others more than is probably meant (unsafe.py).

A warning changes no exit code, except with `headrace config check --strict`; a site logs it when it starts. One file
shows only half of it: whether sites really take a request from each other only is found by the running sites
(relay/islands.py).
"""

from collections.abc import Iterator

from headrace.link.keys import overlap
from headrace.link.rights import may_come_in
from headrace.product.ldm_feedtypes import ldm_pattern
from headrace.site.config import Allow, Request, SiteConfig
from headrace.site.contradictions import Contradiction
from headrace.site.terms import rules_of
from headrace.site.unsafe import unsafe
from headrace.units import format_count


def warnings(config: SiteConfig) -> Iterator[Contradiction]:
    """Every warning about a configuration that is valid."""
    yield from unsafe(config)
    yield from _about_clock(config)
    for place, request in enumerate(config.request):
        if request.redundancy == "failover":
            yield from _about_circles(config, place, request)
        yield from _about_rules(config, place, request)
        yield from _about_ldm(place, request)


def _about_clock(config: SiteConfig) -> Iterator[Contradiction]:
    if 0 < len(config.clock.servers) < 3:
        yield Contradiction(
            (("clock", "servers"),),
            f"with {format_count(len(config.clock.servers), 'server')}, a lie cannot be told from the truth",
            "name at least three, better four",
        )


def _about_rules(config: SiteConfig, place: int, request: Request) -> Iterator[Contradiction]:
    """The rules of this site concern what it requests, too: the other site publishes it here."""
    feed = request.selection.feed or "**"
    if not may_come_in(rules_of(config), feed):
        yield Contradiction(
            (("request", place), ("allow",)),
            f"no [[allow]] rule of this site lets another one publish {feed}: the request gets nothing",
            f'add publish = ["{feed}"] to a rule that names the site which serves the request, not to one for "*"',
        )


def _about_ldm(place: int, request: Request) -> Iterator[Contradiction]:
    """Valid, and probably copied from an ldmd.conf."""
    pattern = ldm_pattern(request.selection.feed or "")
    if pattern is not None:
        yield Contradiction(
            (("request", place, "select"),),
            f"{request.selection.feed} is a feed type of LDM; here it selects only feeds of that very name",
            f'write select = "{pattern}"',
        )


def _about_circles(config: SiteConfig, place: int, request: Request) -> Iterator[Contradiction]:
    """A site that may serve this request, and may take it from here, too."""
    for number, allow in enumerate(config.allow):
        both = [site for site in request.sites if site in allow.who and _may_receive(allow, request)]
        if both:
            yield Contradiction(
                (("request", place, "sites"), ("allow", number)),
                f"{', '.join(both)} may serve this request, and [[allow]] {number + 1} lets it take the same from here",
                "make sure that it does not name this site in a fail-over list of its own: two sites that prefer each "
                "other get nothing new",
            )


def _may_receive(allow: Allow, request: Request) -> bool:
    return any(overlap(pattern, request.selection.feed or "**") for pattern in allow.receive)
