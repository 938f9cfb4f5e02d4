"""Subtree: the feeds of a channel, `wx/radar/**`: one feed and everything below it, or `**` for all feeds.

`narrow` intersects the pattern of a station with the subtree of its channel: the result matches exactly the feeds that
both match. Some pairs need alternatives: `**/radar/*` below `wx/radar` is `wx/radar/*|wx/radar/**/radar/*`.
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
        """From `wx/radar`, `wx/radar/**` or `**`; FeedError if it is not a subtree."""
        if not isinstance(feed, str) or not feed:
            raise FeedError(f"feed {feed!r} is not a subtree", "write a feed and /**, such as wx/radar/**")
        if feed == "**":
            return cls("")
        root = feed.removesuffix("/**")
        if "*" in root:
            raise FeedError(
                f"feed {feed!r} is not a subtree: it has a * before its end",
                "write a feed and /**, such as wx/radar/**; stations may select more finely",
            )
        return cls(check_feed(root))

    @property
    def pattern(self) -> str:
        return f"{self.root}/**" if self.root else "**"

    def has(self, feed: str) -> bool:
        """Whether products of this feed belong to the subtree."""
        return not self.root or feed == self.root or feed.startswith(self.root + "/")

    def overlaps(self, other: "Subtree") -> bool:
        """Whether some feed belongs to both."""
        return self.has(other.root) or other.has(self.root)

    def narrow(self, wanted: str | None) -> str:
        """The pattern of the feeds that `wanted` matches within the subtree; SelectionError if it matches none."""
        if wanted is None:
            return self.pattern
        if not self.root:
            return FeedPattern(wanted).text
        rests = [rest for each in FeedPattern(wanted).alternatives for rest in self._rests(each.split("/"))]
        if not rests:
            raise SelectionError(
                f"feed pattern {wanted!r} selects nothing within the channel's {self.pattern}",
                f"write {self.root}/… or **/…",
            )
        return "|".join(sorted({"/".join([self.root, *rest]) for rest in rests}))

    def _rests(self, pattern: list[str]) -> list[list[str]]:
        """What can be left of the pattern after it has matched the levels of the root, one list per way to match.

        It follows the set of positions in the pattern, level by level. A position behind a `**` that is in the set too
        adds nothing, because `**` may match no level.
        """
        positions = _with_skips({0}, pattern)
        for level in self.root.split("/"):
            stay = {position for position in positions if pattern[position : position + 1] == ["**"]}
            step = {position + 1 for position in positions if pattern[position : position + 1] in (["*"], [level])}
            positions = _with_skips(stay | step, pattern)
        implied = {position + 1 for position in positions if pattern[position : position + 1] == ["**"]}
        return [pattern[position:] for position in sorted(positions - implied)]


def _with_skips(positions: set[int], pattern: list[str]) -> set[int]:
    """The positions, and those reached when a `**` matches no level."""
    reached = set(positions)
    for position in range(len(pattern)):
        if position in reached and pattern[position] == "**":
            reached.add(position + 1)
    return reached
