"""Islands: sites that take a request from each other only, while an origin outside goes unused.

Sites that name each other as fail-over can end like that: each is live at the other, and neither has anything new. A
request is followed from a site to the site that serves it now, to the one that serves that, and so on, by what sites
say about themselves (Description). That ends at sources: sites that do not request such feeds, or request them from the
origins (without `sites`), and sites that say nothing. A site at which such products are put is an origin, too.

    is_circular   whether everything that a site has of some feeds comes from us: such a site cannot serve us
    islands       all islands of a fabric, for maps: sites without a source that name a site with another origin
    Circles       asks the sites, for a running site that fails over
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
    walked = _walk(site, feed, describe, ours)
    return ours in walked.sites and not walked.origins


def islands(descriptions: Mapping[str, Description]) -> list[Island]:
    """All islands of these sites."""
    found: dict[tuple[str, ...], Island] = {}
    for site, description in descriptions.items():
        for request in description.requests:
            serving = list(_serving(description, request)) if request.redundancy == FAILOVER else []
            walked = _walk(serving[0], request.feed, descriptions.get) if serving else None
            if walked is None or walked.sources or site not in walked.sites:
                continue
            outside = tuple(_outside(walked.sites, request.feed, descriptions))
            if outside:
                members = tuple(sorted(walked.sites))
                found.setdefault(members, Island(members, request.feed, outside))
    return list(found.values())


@dataclass(slots=True)
class _Walked:
    """What was met on the way."""

    sites: set[str]
    sources: set[str]  # where the way ends
    origins: set[str]  # these, and others at which such products are put


def _walk(site: str, feed: str, describe: Describe, end: str = "") -> _Walked:
    """Follow a request from site to site; not beyond `end`."""
    walked, left = _Walked(set(), set(), set()), [site]
    while left and not (end and walked.origins):  # then it is not circular, whatever else there is
        name = left.pop()
        if name in walked.sites:
            continue
        walked.sites.add(name)
        if name == end:
            continue
        description = describe(name) if len(walked.sites) <= SITES_MAX else None
        requests = [each for each in description.requests if overlap(each.feed, feed)] if description else []
        serving = [site for each in requests if description for site in _serving(description, each)]
        if description is None or not all(each.sites for each in requests) or not serving:
            walked.sources.add(name)
            walked.origins.add(name)
        elif any(each.put_here and overlap(each.feed, feed) for each in description.feeds):
            walked.origins.add(name)
        left += serving
    return walked


def _serving(description: Description, request: RequestStatus) -> Iterator[str]:
    for upstream in description.upstreams:
        if upstream.request == request.name and not upstream.stands_by and upstream.state != "unreachable":
            yield upstream.site


def _outside(members: set[str], feed: str, descriptions: Mapping[str, Description]) -> Iterator[str]:
    """Sites that these name, do not use, and that have an origin that these do not have."""
    named = {
        site
        for member in members if member in descriptions
        for request in descriptions[member].requests
        if request.redundancy == FAILOVER and overlap(request.feed, feed)
        for site in request.sites
    }  # fmt: skip
    for site in sorted(named - members):
        if _walk(site, feed, descriptions.get).origins - members:
            yield site


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
