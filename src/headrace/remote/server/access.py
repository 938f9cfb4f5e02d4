"""ClientAccess: what one remote client may read, put and use, by the access rules of the site.

A client that may receive everything may use every station. Any other client reads the feeds that it may receive and
nothing else, and uses stations that select nothing else. Other feeds are skipped before anything of their products is
examined, so that no condition, count or limit in a selection reveals them. A client publishes under its own name, as
sites do. A client that no rule names may do nothing at all. Of members, a client sees the sites, and the programs at
stations and channels that it may use. Of groups of processing nodes, it uses those of channels that it may receive
whole, and sees the users of other nodes only if it may receive everything.
"""

from collections.abc import Iterable, Sequence

import msgspec

from headrace.errors import AccessDeniedError
from headrace.link.rights import Rule, rights_of
from headrace.log.read import Allowed
from headrace.log.statistics import Statistics
from headrace.queue.members import Member
from headrace.selection import Selection
from headrace.share.interface import NodeState
from headrace.station import StationTerms

_ALL = "**"
_HINT = "ask the operator of the site for an access rule"


class ClientAccess:
    """The rights of one principal; `name` is None for a client without a certificate or user name."""

    def __init__(self, rules: Sequence[Rule], name: str | None) -> None:
        self._who = "a client without a name" if name is None else name
        self._name, self._rights = name, rights_of(rules, name)
        self._receive, self._publish = self._rights.receive, self._rights.publish
        self._has_all = self._receive.is_all

    @property
    def is_empty(self) -> bool:
        """Whether the client may do nothing."""
        return self._rights.is_empty

    # --- put --------------------------------------------------------------------------------------

    def check_publish(self, feeds: Iterable[str]) -> None:
        for feed in feeds:
            if feed not in self._publish:
                raise AccessDeniedError(f"{self._who} may not publish feed {feed}", _HINT)

    def check_put(self, products: Iterable[tuple[str, str | None]]) -> None:
        """Feeds and origins of products. A client that has a name publishes under it, unless it is a relay."""
        if self._publish.is_all and self._rights.relay.is_all:
            return
        for feed, origin in set(products):
            self.check_publish([feed])
            if origin is not None and not self._rights.may_send(feed, origin, self._name):
                raise AccessDeniedError(f"{self._who} may not put products of origin {origin} in feed {feed}", _HINT)

    def check_publish_any(self) -> None:
        """Whether the client may publish at all: before its payload is kept."""
        if not self._publish:
            raise AccessDeniedError(f"{self._who} may not publish anything", _HINT)

    def check_publish_some(self, feed: str) -> None:
        """Whether the client may publish some feed that this pattern matches."""
        if not self._publish.meets(feed):
            raise AccessDeniedError(f"{self._who} may not publish anything of {feed}", _HINT)

    # --- read -------------------------------------------------------------------------------------

    def check_receive(self) -> None:
        if not self._receive:
            raise AccessDeniedError(f"{self._who} may not receive anything", _HINT)

    def may_receive_some(self, feed: str) -> bool:
        """Whether the client may receive some feed that this pattern matches."""
        return self._receive.meets(feed)

    def check_feed(self, feed: str) -> None:
        """Whether the client may learn anything about this feed."""
        if feed not in self._receive and feed not in self._publish:
            raise AccessDeniedError(f"{self._who} may neither receive nor publish feed {feed}", _HINT)

    @property
    def allowed(self) -> Allowed | None:
        """Which feeds the readers of this client may see; None: all."""
        return self._receive.test

    def visible_statistics(self, statistics: Statistics) -> Statistics:
        if self._has_all:
            return statistics
        return msgspec.structs.replace(
            statistics, feeds=[each for each in statistics.feeds if each.feed in self._receive]
        )

    # --- stations ---------------------------------------------------------------------------------

    def check_selection(self, selection: Selection) -> None:
        """Whether the client may receive everything that a station with this selection hands out."""
        if not self._has_all_of(selection):
            raise AccessDeniedError(f"{self._who} may not receive all of {selection.feed or _ALL}", _HINT)

    def check_station(self, terms: StationTerms) -> None:
        if not self.has_station(terms):
            raise AccessDeniedError(f"{self._who} may not use station {terms.name!r}", _HINT)

    def has_station(self, terms: StationTerms) -> bool:
        """Whether the client may use the station, and know of it."""
        return self._has_all_of(Selection.parse(terms.selection))

    # --- channels ---------------------------------------------------------------------------------

    def check_channel(self, name: str, feed: str) -> None:
        if not self.has_channel(feed):
            raise AccessDeniedError(f"{self._who} may not use channel {name!r}", _HINT)

    def check_absent(self, what: str) -> None:
        """Only a client that may receive everything learns that there is no such channel, and which there are."""
        if not self._has_all:
            raise AccessDeniedError(f"{self._who} may not use {what}", _HINT)

    def has_channel(self, feed: str) -> bool:
        """Whether the client may receive all of a channel, or publish some of it; then it may know its terms."""
        return self._has_all_of(Selection.of(feed)) or self._publish.meets(feed)

    # --- groups of nodes --------------------------------------------------------------------------

    def check_share(self, stream: str, feed: str) -> None:
        """Whether the client may use the groups of a channel: join, look, and move slices by a balancer."""
        if not self.has_share(feed):
            raise AccessDeniedError(f"{self._who} may not use the groups of channel {stream!r}", _HINT)

    def has_share(self, feed: str) -> bool:
        return self._has_all_of(Selection.of(feed))

    def visible_node(self, node: NodeState) -> NodeState:
        return node if self._has_all else msgspec.structs.replace(node, user="", pid=0)

    # --- members ----------------------------------------------------------------------------------

    def visible_member(self, member: Member) -> Member | None:
        """A member as this client may see it; None if it may not know of it."""
        if self._has_all:
            return member
        if member.role == "site":
            feeds = tuple(feed for feed in member.feeds if feed in self._receive)
            return msgspec.structs.replace(member, feeds=feeds)
        if member.role == "client":
            return None
        feed = member.feeds[0]
        may_know = self.has_channel(feed) if member.role == "supplier" else self._has_all_of(Selection.of(feed))
        return msgspec.structs.replace(member, user="", pid=0) if may_know else None

    def _has_all_of(self, selection: Selection) -> bool:
        return self._receive.includes(selection.feed or _ALL)
