"""ClientAccess: what one remote client may read, put and use, by the access rules of the site.

A client reads the feeds that it may receive and nothing else. Other feeds are skipped before anything of their products
is examined, so that no condition, count or limit in a selection reveals them. A client publishes under its own name, as
sites do. A client that no rule names may do nothing at all.

    stations    A client may know those that select only what it may receive, or manage. It may make, consume, change
                and remove its own, within the feeds of `station`; all others only with `manage`, which is also needed
                for every station that can make writers wait or refuse their puts. Consuming takes products away from
                others: from a station of the site or of others, only what the rule shares by its name (`consume`)
    cursors     its own; those of others, and of the site, with `manage` of all feeds
    channels    it may know those that it may receive whole, or publish in part, or manage; it makes and changes those
                that it may manage
    groups      of processing nodes: it may know those of channels that it may receive whole, and joins those that a
                rule shares (`consume`). Everything else, and moves by hand, needs `manage`
    members     the sites, and programs at stations and channels that it may know

Without any rule a client may do everything, and owns nothing. Not here: whose a station is (owners.py).
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from headrace.channel.channel import ChannelStatistics
from headrace.errors import AccessDeniedError
from headrace.link.keys import AT_SOCKET
from headrace.link.rights import EVERYBODY, Rule, rights_of
from headrace.log.dictionaries import Dictionary
from headrace.log.read import Allowed
from headrace.log.statistics import Statistics
from headrace.queue import Queue
from headrace.queue.members import Member
from headrace.relay.dictionaries import may_have
from headrace.relay.holdings import held_of
from headrace.relay.plain import Plain
from headrace.remote.protocol.calls import Call, PutOne
from headrace.remote.protocol.products import Rewrite
from headrace.remote.server.call_rights import NEEDED
from headrace.remote.server.told import told_to
from headrace.selection import Selection
from headrace.share.interface import NodeState
from headrace.station import StationTerms
from headrace.station.statistics import ConsumerStatistics

_ALL = "**"
_HINT = "ask the operator of the site for an access rule"


class ClientAccess:
    """The rights of one principal; `name` is None for a client without a certificate or user name."""

    def __init__(self, rules: Sequence[Rule], name: str | None) -> None:
        self._who = "a client without a name" if name is None else name
        self.name, self._rights = name, rights_of(rules, name)
        self._receive, self._publish = self._rights.receive, self._rights.publish
        self._station, self._manage, self._consume = self._rights.station, self._rights.manage, self._rights.consume
        self._has_all = self._receive.is_all
        self._plain: Plain | None = None
        self._name_owns = (name or EVERYBODY) if rules and name != AT_SOCKET else None

    @property
    def owner(self) -> str | None:
        """As whose property its stations and cursors are noted; None: the site, where there are no
        rules, and for programs at its socket.
        """
        return self._name_owns

    def check_call(self, kind: type) -> None:
        """Whether the client may make a call of this kind at all; nothing of it was looked at."""
        needed = NEEDED.get(kind, frozenset())
        if any(getattr(self._rights, right) for right in needed):
            return
        if needed in ({"receive"}, {"publish"}):
            raise AccessDeniedError(f"{self._who} may not {min(needed)} anything", _HINT)
        rights = " or ".join(sorted(needed)) or "that nobody has"
        raise AccessDeniedError(f"{self._who} may not call {kind.__name__}: that needs the right {rights}", _HINT)

    def may_send(self, call: Call) -> bool:
        """Whether the payload of a call is worth keeping; if not, its handler refuses the call."""
        if not any(getattr(self._rights, right) for right in NEEDED.get(type(call), ())):
            return False
        return not isinstance(call, PutOne) or call.feed in self._publish

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
            if origin is not None and not self._rights.may_send(feed, origin, self.name):
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

    def may_have(self, dictionary: Dictionary) -> bool:
        """Whether the client may read the pieces of products of which a dictionary consists."""
        return may_have(dictionary, self._receive)

    def rewrite(self, queue: Queue) -> Rewrite | None:
        """How records are made for the client if it may not have the dictionary that they need (relay/plain.py)."""
        if self._plain is None and not self._has_all:
            self._plain = Plain(queue, self._receive)
        return None if self._plain is None else self._plain.first_records

    def check_feed(self, feed: str) -> None:
        """Whether the client may learn anything about this feed."""
        if feed not in self._receive and feed not in self._publish:
            raise AccessDeniedError(f"{self._who} may neither receive nor publish feed {feed}", _HINT)

    @property
    def allowed(self) -> Allowed | None:
        """Which feeds the readers of this client may see; None: all."""
        return self._receive.test

    def visible_statistics(self, queue: Queue, cursors: Collection[str]) -> Statistics:
        """Of the queue; `cursors` are those that the client may use."""
        whole = queue.statistics()
        return whole if self._has_all else told_to(whole, self._receive, held_of(queue, self._receive), cursors)

    def visible_consumer(self, consumer: ConsumerStatistics) -> ConsumerStatistics:
        return consumer if self._has_all else msgspec.structs.replace(consumer, pid=0)

    def visible_channel(self, told: ChannelStatistics) -> ChannelStatistics:
        """Who may publish some of a channel, and may neither receive all of it nor manage it, gets no counts."""
        return (
            told
            if self.has_share(told.feed)
            else ChannelStatistics(told.name, told.feed, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {})
        )

    def visible_origins(self, origins: list[str], own: str) -> list[str]:
        """A client that may not receive everything learns of the site, and of itself."""
        return origins if self._has_all else [each for each in origins if each in (own, self.name)]

    def visible_readers(self, wanted: list[str]) -> list[str]:
        """What wants a feed, in words. Only a client that may receive everything learns names."""
        return wanted if self._has_all or not wanted else ["other readers"]

    # --- cursors ----------------------------------------------------------------------------------

    def has_cursor(self, owner: str | None) -> bool:
        """Whether the client may know a cursor, move and remove it."""
        return self.owner is None or self._manage.is_all or (bool(self._receive) and owner == self.owner)

    def check_cursor(self, name: str, owner: str | None) -> None:
        if not self.has_cursor(owner):
            raise AccessDeniedError(
                f"{self._who} may not use cursor {name!r}, which belongs to {_whose(owner)}",
                "choose another name; a new cursor may start at any sequence",
            )

    # --- stations ---------------------------------------------------------------------------------

    def check_station(self, terms: StationTerms) -> None:
        """Whether the client may know this station and look at it."""
        if not self.has_station(terms):
            raise AccessDeniedError(f"{self._who} may not use station {terms.name!r}", _HINT)

    def has_station(self, terms: StationTerms) -> bool:
        """Whether the client may use the station, and know of it."""
        pattern = _pattern_of(terms)
        return self._receive.includes(pattern) or self._manage.includes(pattern)

    def check_new_station(self, name: str, selection: Selection, *, stops_writers: bool) -> None:
        """Whether the client may make a station with this selection, or give it this selection."""
        pattern = selection.feed or _ALL
        if self._manage.includes(pattern):
            return
        if stops_writers:
            raise AccessDeniedError(
                f"{self._who} may not have station {name!r}, at which writers wait or are refused: that needs the "
                f"right manage for {pattern}",
                "leave out blocking and max_queue, or ask the operator of the site",
            )
        if not self._receive.includes(pattern):
            raise AccessDeniedError(f"{self._who} may not receive all of {pattern}", _HINT)
        if not self._station.includes(pattern):
            raise AccessDeniedError(
                f"{self._who} may not have stations of {pattern}: that needs the right station", _HINT
            )

    def check_change(self, terms: StationTerms, owner: str | None) -> None:
        """Whether the client may change, pause, move and remove this station: its own, or any with `manage`."""
        self.check_station(terms)
        pattern = _pattern_of(terms)
        if not (self._manage.includes(pattern) or (owner == self.owner and self._station.includes(pattern))):
            raise AccessDeniedError(
                f"{self._who} may not change station {terms.name!r}, which belongs to {_whose(owner)}: that needs the "
                f"right manage for {pattern}",
                "use a station of your own, or ask the operator of the site",
            )

    def may_consume(self, terms: StationTerms, owner: str | None) -> bool:
        """Whether the client may take products from this station."""
        pattern = _pattern_of(terms)
        if not self._receive.includes(pattern):
            return False
        is_own = owner == self.owner and self._station.includes(pattern)
        return is_own or terms.name in self._consume or self._manage.includes(pattern)

    def check_consume(self, terms: StationTerms, owner: str | None) -> None:
        self.check_station(terms)
        if not self.may_consume(terms, owner):
            raise AccessDeniedError(
                f"{self._who} may not consume from station {terms.name!r}, which belongs to {_whose(owner)}",
                f"use a station of your own, or ask the operator of the site to share it: consume = [{terms.name!r}]",
            )

    # --- channels ---------------------------------------------------------------------------------

    def check_channel(self, name: str, feed: str) -> None:
        if not self.has_channel(feed):
            raise AccessDeniedError(f"{self._who} may not use channel {name!r}", _HINT)

    def check_absent(self, what: str) -> None:
        """Only a client that may receive everything learns that there is no such channel, and which there are."""
        if not self._has_all:
            raise AccessDeniedError(f"{self._who} may not use {what}", _HINT)

    def has_channel(self, feed: str) -> bool:
        """Whether the client may know a channel and its terms: it may receive or manage it, or publish some of it."""
        pattern = Selection.of(feed).feed or _ALL
        return self._receive.includes(pattern) or self._publish.meets(feed) or self._manage.includes(pattern)

    def check_manage(self, what: str, feed: str) -> None:
        """Whether the client may make, change and remove a channel, or a group of processing nodes."""
        if not self._manage.includes(Selection.of(feed).feed or _ALL):
            raise AccessDeniedError(
                f"{self._who} may not create, change or remove {what}: that needs the right manage for {feed}", _HINT
            )

    # --- groups of nodes --------------------------------------------------------------------------

    def check_share(self, stream: str, feed: str) -> None:
        """Whether the client may know the groups of a channel and look at them."""
        if not self.has_share(feed):
            raise AccessDeniedError(f"{self._who} may not use the groups of channel {stream!r}", _HINT)

    def has_share(self, feed: str) -> bool:
        pattern = Selection.of(feed).feed or _ALL
        return self._receive.includes(pattern) or self._manage.includes(pattern)

    def check_join(self, stream: str, group: str, feed: str) -> None:
        """Whether the client may be a node of this group, and stand by as its balancer."""
        pattern = Selection.of(feed).feed or _ALL
        is_shared = f"{stream}/{group}" in self._consume and self._receive.includes(pattern)
        if not (is_shared or self._manage.includes(pattern)):
            raise AccessDeniedError(
                f"{self._who} may not join group {group!r} of channel {stream!r}",
                f'ask the operator of the site to share it: consume = ["{stream}/{group}"]',
            )

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
        may_know = self.has_channel(feed) if member.role == "supplier" else self._receive.includes(feed)
        return msgspec.structs.replace(member, user="", pid=0) if may_know else None


def _pattern_of(terms: StationTerms) -> str:
    return Selection.parse(terms.selection).feed or _ALL


def _whose(owner: str | None) -> str:
    return "the site" if owner is None else "clients without a name" if owner == EVERYBODY else owner
