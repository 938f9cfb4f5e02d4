"""Places: how many upstreams a receiver has room for, and for whom.

Each upstream has subscriptions, a buffer and queries, so their number is limited. A site is known in one of three ways:
a rule names it, it is present itself, or another site lists it among the origins of the products that it holds. A site
that a rule names always has a place. Nothing proves the rest: a relay may say of any name that it is present. So
the origins that one site lists get a share of the places and no more, and all listed origins together leave half of the
places to sites that are present. A listed origin that appears is like any other site from then on.

Who was turned away is counted for the problems of the site. No input and no output here, and no lock: the receiver has
one.
"""

from collections.abc import Collection

UPSTREAMS_MAX = 1000  # requests times sites
LISTED_MAX = UPSTREAMS_MAX // 2  # of these, for origins that are known from lists alone
LISTED_BY_ONE_MAX = UPSTREAMS_MAX // 4  # of these, from the list of one site

Key = tuple[str, str]  # the name of a request, and of a site


class Places:
    """The places of one receiver."""

    def __init__(self) -> None:
        self._listed: dict[Key, str] = {}  # the site that listed the origin
        self._turned_away: dict[str, set[Key]] = {}  # by the site that listed them; empty: they are present

    def is_free(self, key: Key, listed_by: str, taken: Collection[Key], *, is_named: bool = False) -> bool:
        """Whether there is a place for one more upstream; it counts as taken, or as turned away, from now on."""
        by_one = sum(site == listed_by for site in self._listed.values())
        has_share = not listed_by or (len(self._listed) < LISTED_MAX and by_one < LISTED_BY_ONE_MAX)
        is_free = is_named or (len(taken) < UPSTREAMS_MAX and has_share)
        if is_free:
            if listed_by:
                self._listed[key] = listed_by
            for others in self._turned_away.values():
                others.discard(key)
        else:
            self.turn_away(key, listed_by)
        return is_free

    def turn_away(self, key: Key, listed_by: str = "") -> None:
        others = self._turned_away.setdefault(listed_by, set())
        if len(others) < UPSTREAMS_MAX:
            others.add(key)

    def begin_list(self, site: str) -> None:
        """A site lists its origins again: who was turned away before no longer counts."""
        self._turned_away.pop(site, None)

    def confirm(self, key: Key) -> None:
        """The site of an upstream is present: it is no longer known from a list alone."""
        self._listed.pop(key, None)

    @property
    def turned_away(self) -> dict[str, int]:
        """How many have no place (at least), by the site that listed them; empty: they are present themselves."""
        return {site: len(keys) for site, keys in tuple(self._turned_away.items()) if keys}
