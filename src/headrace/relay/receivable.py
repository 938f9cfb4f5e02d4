"""Receivable: a selection, of those feeds alone that somebody may receive.

Other feeds are passed over before anything of their products is looked at, so that no condition, count or limit in a
question can tell of them.
"""

from collections.abc import Sequence
from functools import cache

from headrace.product.feed import FeedPattern
from headrace.selection import Selection


def receivable_part(selection: Selection, allowed: Sequence[FeedPattern]) -> Selection:
    """The same selection, of what may be received."""
    return selection if any(pattern.text == "**" for pattern in allowed) else _Receivable(selection, allowed)


class _Receivable(Selection):
    def __init__(self, selection: Selection, allowed: Sequence[FeedPattern]) -> None:
        super().__init__(**selection.given())
        may = cache(lambda feed: any(pattern.matches(feed) for pattern in allowed))
        object.__setattr__(self, "_may", may)
        object.__setattr__(self, "feed", self.feed or "**")  # or nobody would ask which feeds it wants

    def wants_feed(self, feed: str) -> bool:
        return self._may(feed) and super().wants_feed(feed)  # type: ignore[attr-defined]
