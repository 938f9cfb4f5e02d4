"""Islands: sites that take a request from each other only, while an origin outside goes unused.

Sites that name each other as fail-over can end like that: each is live at the other, and neither has anything new. A
request is followed from a site to the site that serves it now, to the one that serves that, and so on, by what sites
say about themselves (Description). It is fed if that leads to a site at which such products are put, or that does not
request them; to a request without `sites`, which comes from the origins; or to a site that says nothing. Otherwise it
goes in a circle.

    is_circular   whether a request that a site serves us comes from us, directly or not: such a site cannot serve us
    islands       all islands of a fabric, for maps
    Circles       asks the sites, for a running site that fails over

An island is a circle in which a request names a site outside and does not use it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import zenoh

from headrace.errors import FabricError
from headrace.link.keys import overlap
from headrace.relay.messages.description import Description, RequestStatus
from headrace.relay.messages.query import Unreachable

SITES_MAX = 32  # that are followed
FAILOVER = "failover"
_KEPT_S = 5.0  # an answer is used again for so long

Describe = Callable[[str], Description | None]  # what a site says about itself; None: nothing


@dataclass(frozen=True, slots=True)
class Island:
    """Sites that take `feed` from each other only; `outside` are sites that their requests name and do not use."""

    sites: tuple[str, ...]
    feed: str
    outside: tuple[str, ...]

    @property
    def problem(self) -> str:
        return (
            f"sites {', '.join(self.sites)} take {self.feed} from each other only; "
            f"{', '.join(self.outside)} is named and not used"
        )

    @property
    def remedy(self) -> str:
        return f"write {self.outside[0]!r} first in `sites` of one of them, or do not let them name each other"


def is_circular(site: str, feed: str, ours: str, describe: Describe) -> bool:
    """Whether everything that `site` has of these feeds comes from us, directly or not."""
    walked = _walk(site, feed, ours, describe)
    return walked is not None and ours in walked


def islands(descriptions: Mapping[str, Description]) -> list[Island]:
    """All islands of these sites."""
    found: dict[tuple[str, ...], Island] = {}
    for site, description in descriptions.items():
        for request in description.requests:
            for source in _serving(description, request) if request.redundancy == FAILOVER else ():
                walked = _walk(source, request.feed, site, descriptions.get)
                if walked is not None and site in walked:
                    members = tuple(sorted(walked))
                    outside = _outside(members, request.feed, descriptions)
                    if outside:
                        found.setdefault(members, Island(members, request.feed, outside))
    return list(found.values())


def _walk(site: str, feed: str, target: str, describe: Describe) -> set[str] | None:
    """All sites from which `site` has these feeds, itself included; None if one of them is fed otherwise."""
    seen, left = {target}, [site]
    reached = site == target
    while left:
        name = left.pop()
        if name in seen:
            reached = reached or name == target
            continue
        seen.add(name)
        description = describe(name) if len(seen) <= SITES_MAX else None
        if description is None:
            return None
        requests = [request for request in description.requests if overlap(request.feed, feed)]
        is_origin = any(each.put_here and overlap(each.feed, feed) for each in description.feeds)
        if is_origin or not requests or not all(request.sites for request in requests):
            return None
        for request in requests:
            serving = list(_serving(description, request))
            if not serving:
                return None  # nobody serves it, which is reported elsewhere
            left += serving
    return seen if reached else None


def _serving(description: Description, request: RequestStatus) -> Iterator[str]:
    for upstream in description.upstreams:
        if upstream.request == request.name and not upstream.stands_by and upstream.state != "unreachable":
            yield upstream.site


def _outside(members: tuple[str, ...], feed: str, descriptions: Mapping[str, Description]) -> tuple[str, ...]:
    named = {
        site
        for member in members if member in descriptions
        for request in descriptions[member].requests
        if request.redundancy == FAILOVER and overlap(request.feed, feed)
        for site in request.sites
    }  # fmt: skip
    return tuple(sorted(named - set(members)))


class Circles:
    """Asks sites what they say about themselves, and keeps the answers for some seconds. Threads may share it."""

    def __init__(self, ours: str, query: Callable[[str], Description]) -> None:
        """`query` raises Unreachable, FabricError or ZError if a site does not reply."""
        self._ours, self._query = ours, query
        self._kept: dict[str, tuple[float, Description | None]] = {}
        self._lock = threading.Lock()

    def takes_from_us(self, site: str, feed: str) -> bool:
        """Whether everything that the site has of these feeds comes from us. A site that does not reply does not."""
        return is_circular(site, feed, self._ours, self._describe)

    def _describe(self, site: str) -> Description | None:
        now = time.monotonic()
        with self._lock:
            self._kept = {name: kept for name, kept in self._kept.items() if now - kept[0] < _KEPT_S}
            if site in self._kept:
                return self._kept[site][1]
        try:
            described = self._query(site)
        except (Unreachable, FabricError, zenoh.ZError):
            described = None
        with self._lock:
            self._kept[site] = now, described
        return described
