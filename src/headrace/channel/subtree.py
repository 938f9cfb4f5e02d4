"""Subtree: the feeds of a channel, `wx/radar/**`: one feed and everything below it, or `**` for all feeds.

`narrow` joins what a station selects with the subtree of its channel: the pattern that matches exactly the feeds that
both match. A few pairs would need two patterns for that, such as `**/radar/*` below `wx/radar`; these are refused
rather than guessed.
"""

from dataclasses import dataclass

from headrace.errors import FeedError, SelectionError
from headrace.product.feed import FeedPattern, check_feed


@dataclass(frozen=True, slots=True)
class Subtree:
    """The feed `root` and all below it; an empty root stands for all feeds."""

    root: str

    @classmethod
    def of(cls, feed: str) -> "Subtree":
        """From `wx/radar`, `wx/radar/**` or `**`; FeedError if it is no subtree."""
        if not isinstance(feed, str) or not feed:
            raise FeedError(f"feed {feed!r} is not a subtree", "write a feed and /**, such as wx/radar/**")
        if feed == "**":
            return cls("")
        root = feed.removesuffix("/**")
        if "*" in root:
            raise FeedError(
                f"feed {feed!r} is not a subtree, because it has a * above its end",
                "write a feed and /**, such as wx/radar/**; stations may select more finely",
            )
        return cls(check_feed(root))

    @property
    def pattern(self) -> str:
        return f"{self.root}/**" if self.root else "**"

    def has(self, feed: str) -> bool:
        """Whether products of this feed belong to the subtree."""
        return not self.root or feed == self.root or feed.startswith(self.root + "/")

    def narrow(self, wanted: str | None) -> str:
        """The pattern of the feeds that `wanted` matches within the subtree; SelectionError if there is none."""
        if wanted is None:
            return self.pattern
        if not self.root:
            return FeedPattern(wanted).text
        rests = self._rests(FeedPattern(wanted).text.split("/"))
        if len(rests) == 1:
            return "/".join([self.root, *rests[0]])
        if not rests:
            raise SelectionError(
                f"feed pattern {wanted!r} selects nothing within the channel's {self.pattern}",
                f"write {self.root}/… or **/…",
            )
        raise SelectionError(
            f"feed pattern {wanted!r} meets the channel's {self.pattern} in more than one way",
            f"write it out from the root: {self.root}/…",
        )

    def _rests(self, pattern: list[str]) -> list[list[str]]:
        """What may be left of the pattern once it has matched the levels of the root; each is a way to go on.

        The places reached are followed as a set, level by level. A place behind a `**` that is reached as well says
        nothing new, since `**` may stand for no level.
        """
        places = _with_skips({0}, pattern)
        for level in self.root.split("/"):
            stay = {place for place in places if pattern[place : place + 1] == ["**"]}
            step = {place + 1 for place in places if pattern[place : place + 1] in (["*"], [level])}
            places = _with_skips(stay | step, pattern)
        implied = {place + 1 for place in places if pattern[place : place + 1] == ["**"]}
        return [pattern[place:] for place in sorted(places - implied)]


def _with_skips(places: set[int], pattern: list[str]) -> set[int]:
    """The places, and those that are reached by letting a `**` stand for no level."""
    reached = set(places)
    for place in range(len(pattern)):
        if place in reached and pattern[place] == "**":
            reached.add(place + 1)
    return reached
