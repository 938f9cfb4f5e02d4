"""Rights: what a remote user may do, by the access rules of the site.

Whoever may receive everything may use every station. Others read what they may receive and nothing else, and use
stations that select nothing else. Who is named by no rule may do nothing at all.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import zenoh

from headrace.errors import AccessDeniedError
from headrace.fabric.access import Rule, publishable, receivable
from headrace.product.batch import Batch
from headrace.product.feed import FeedPattern
from headrace.queue.records import rows_of
from headrace.queue.statistics import Statistics
from headrace.selection import Selection

_ALL = "**"
_HINT = "ask whoever runs the site for an access rule"


class Rights:
    """Of one principal; None for whoever shows no name."""

    def __init__(self, rules: Sequence[Rule], name: str | None) -> None:
        self._who = "whoever shows no name" if name is None else name
        self._receive, self._publish = receivable(rules, name), publishable(rules, name)
        self._has_all = any(pattern.text == _ALL for pattern in self._receive)

    @property
    def are_none(self) -> bool:
        return not self._receive and not self._publish

    def check_publish(self, feeds: Iterable[str]) -> None:
        for feed in feeds:
            if not _is_in(self._publish, feed):
                raise AccessDeniedError(f"{self._who} may not publish feed {feed}", _HINT)

    def check_receive(self) -> None:
        if not self._receive:
            raise AccessDeniedError(f"{self._who} may not receive anything", _HINT)

    def check_selection(self, selection: Selection) -> None:
        """May all be received that a station with this selection hands out?"""
        self.check_receive()
        wanted = zenoh.KeyExpr.autocanonize(selection.feed or _ALL)
        if not any(zenoh.KeyExpr.autocanonize(pattern.text).includes(wanted) for pattern in self._receive):
            raise AccessDeniedError(f"{self._who} may not receive all of {selection.feed or _ALL}", _HINT)

    def visible(self, batch: Batch) -> Batch:
        """The products of a batch that may be received."""
        if self._has_all or not len(batch):
            return batch
        mask = np.array([_is_in(self._receive, feed) for feed in batch.feeds], np.uint8)
        rows = rows_of(batch)
        rows.keep(mask, 0)
        return Batch(rows, rows.names, batch.lost)

    def visible_statistics(self, statistics: Statistics) -> Statistics:
        if self._has_all:
            return statistics
        return msgspec.structs.replace(
            statistics, feeds=[told for told in statistics.feeds if _is_in(self._receive, told.feed)]
        )


def _is_in(patterns: Sequence[FeedPattern], feed: str) -> bool:
    return any(pattern.matches(feed) for pattern in patterns)
