"""Warnings: what a configuration may say, and what may still end badly together with the configurations of other sites.

A warning changes no exit code. `headrace config check` shows it, and a site logs it when it starts. One file shows only
half of it: whether sites really take a request from each other only is found by the running sites (relay/islands.py).
"""

from collections.abc import Iterator

from headrace.link.keys import overlap
from headrace.site.config import Allow, Request, SiteConfig
from headrace.site.contradictions import Contradiction


def warnings(config: SiteConfig) -> Iterator[Contradiction]:
    """Every warning about a configuration that is valid."""
    for place, request in enumerate(config.request):
        if request.redundancy == "failover":
            yield from _about_circles(config, place, request)


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
