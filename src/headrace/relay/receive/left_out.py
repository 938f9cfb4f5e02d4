"""LeftOut: counts what a site left out of its pages, each product once.

A page from the log says how many products of its range the site did not send, by cause. The ranges of the pages that
move the base follow each other, so adding up their counts is exact, but for one thing: a product that came live may
have expired at the site by the time the log is read once more, and is then counted there as left out. So products that
came with an expiry are remembered until the base has passed them.

No input and no output here, like Track.
"""

from bisect import bisect_right
from typing import Any

from headrace.product.cause import Cause
from headrace.relay.messages.page import Page
from headrace.relay.receive.counts import UpstreamStatistics

EXPIRING_MAX = 100_000  # products that are remembered; of more, some may be counted although they came


class LeftOut:
    """Of one upstream. All numbers are sequences of the site's queue."""

    def __init__(self, statistics: UpstreamStatistics) -> None:
        self._statistics = statistics
        self._expiring: list[int] = []  # products beyond the base that came with an expiry, in order

    def note(self, sequences: Any, columns: Any, base: int) -> None:
        """These products have come, though the base has not passed them."""
        expires_ns = columns["expires_ns"]
        if expires_ns.any():
            expiring = sequences[expires_ns != 0]
            known = self._expiring[bisect_right(self._expiring, base) :]
            self._expiring = sorted({*known, *expiring.tolist()})[-EXPIRING_MAX:]

    def count(self, page: Page, base: int, now: float) -> None:
        """Count what is missing from a page from the log, before the base moves over it."""
        head = page.head
        came = self._came(base, head.upto, page.sequences)
        if not head.left_out or head.upto <= base:
            return
        counts: dict[Cause, int] = {**head.left_out, "expired": max(0, head.left_out.get("expired", 0) - came)}
        counts = {cause: count for cause, count in counts.items() if count}
        if counts:
            self._statistics.leave_out(counts, now)

    def _came(self, base: int, upto: int, sequences: Any) -> int:
        """How many products of the range came live with an expiry, and are not in the log's page any more."""
        begin, end = bisect_right(self._expiring, base), bisect_right(self._expiring, upto)
        taken, self._expiring = self._expiring[begin:end], self._expiring[end:]
        return len(set(taken).difference(sequences.tolist())) if taken else 0
