"""ClientAccess: what a remote user may do, by the access rules of the site.

Whoever may receive everything may use every station. Others read what they may receive and nothing else, and use
stations that select nothing else. What they may not have is passed over before anything of it is looked at, so that no
condition that they ask for can tell them of it. Who publishes does so under his own name, as sites do. Who is named by
no rule may do nothing at all.
"""

from collections.abc import Iterable, Sequence

import msgspec
import zenoh

from headrace.errors import AccessDeniedError
from headrace.link.access import EVERYBODY, Rule, feed_test, publishable, receivable
from headrace.log.read import Allowed
from headrace.log.statistics import Statistics
from headrace.product.feed import FeedPattern
from headrace.selection import Selection
from headrace.station import StationTerms

_ALL = "**"
_HINT = "ask whoever runs the site for an access rule"


class ClientAccess:
    """Of one principal; None for whoever shows no name."""

    def __init__(self, rules: Sequence[Rule], name: str | None) -> None:
        self._who = "whoever shows no name" if name is None else name
        self._receive, self._publish = receivable(rules, name), publishable(rules, name)
        self._has_all = any(pattern.text == _ALL for pattern in self._receive)
        of_name = [rule for rule in rules if rule.publish and {name, EVERYBODY} & set(rule.who)]
        speaks_for_others = not rules or any(rule.relay or EVERYBODY in rule.who for rule in of_name)
        self._origin = None if speaks_for_others else name

    @property
    def are_none(self) -> bool:
        return not self._receive and not self._publish

    def check_publish(self, feeds: Iterable[str]) -> None:
        for feed in feeds:
            if not _is_in(self._publish, feed):
                raise AccessDeniedError(f"{self._who} may not publish feed {feed}", _HINT)

    def check_origins(self, origins: Iterable[str]) -> None:
        """Who has a name publishes under that name, unless he is a relay."""
        for origin in origins:
            if self._origin is not None and origin != self._origin:
                raise AccessDeniedError(f"{self._who} may not put products of origin {origin}", _HINT)

    def check_receive(self) -> None:
        if not self._receive:
            raise AccessDeniedError(f"{self._who} may not receive anything", _HINT)

    def check_feed(self, feed: str) -> None:
        """May anything be known of this feed?"""
        if not _is_in(self._receive, feed) and not _is_in(self._publish, feed):
            raise AccessDeniedError(f"{self._who} may neither receive nor publish feed {feed}", _HINT)

    def check_selection(self, selection: Selection) -> None:
        """May all be received that a station with this selection hands out?"""
        if not self._has_all_of(selection):
            raise AccessDeniedError(f"{self._who} may not receive all of {selection.feed or _ALL}", _HINT)

    def check_station(self, terms: StationTerms) -> None:
        if not self.has_station(terms):
            raise AccessDeniedError(f"{self._who} may not use station {terms.name!r}", _HINT)

    def has_station(self, terms: StationTerms) -> bool:
        """May it be used, and known of?"""
        return self._has_all or self._has_all_of(Selection.parse(terms.selection))

    def _has_all_of(self, selection: Selection) -> bool:
        wanted = zenoh.KeyExpr.autocanonize(selection.feed or _ALL)
        return any(zenoh.KeyExpr.autocanonize(pattern.text).includes(wanted) for pattern in self._receive)

    @property
    def allowed(self) -> Allowed | None:
        """Which feeds the readers of this client may see; None: all."""
        return feed_test(self._receive)

    def visible_statistics(self, statistics: Statistics) -> Statistics:
        if self._has_all:
            return statistics
        return msgspec.structs.replace(
            statistics, feeds=[told for told in statistics.feeds if _is_in(self._receive, told.feed)]
        )


def _is_in(patterns: Sequence[FeedPattern], feed: str) -> bool:
    return any(pattern.matches(feed) for pattern in patterns)
