"""Holders: other sites that have what one origin has put, asked while the origin's own site is away.

A holder's queue has some of the origin's products, in its own numbers, and cannot promise that it has all of them. But
each product says which one of its feed came before it at its origin. So a product is taken if that one is known to have
arrived; then nothing was left out in between. What does not connect is left for another holder, or for the origin's
return. Conditions other than on the feed are decided here, since a product that they leave out connects others all the
same.
"""

from collections.abc import Callable

import numpy as np
import zenoh

from headrace.fabric.asking import Asker, Unreachable
from headrace.fabric.page import Keep, Page
from headrace.fabric.track import Track
from headrace.queue.records import Names
from headrace.selection import Selection

Give = Callable[[Page, Keep], None]


class Holders:
    """For one origin, which is the selection's."""

    def __init__(
        self, session: zenoh.Session, selection: Selection, names: Names, sites: Callable[[], list[str]],
        principal: str | None = None,
    ) -> None:  # fmt: skip
        self._principal = principal
        self._session, self._selection, self._names, self._sites = session, selection, names, sites
        self._asked = str(Selection(selection.feed, origin=selection.origin))
        self._askers: dict[str, Asker] = {}
        self._positions: dict[str, tuple[bytes, int]] = {}  # by site: its queue, and how far it was looked at

    def pull(self, track: Track, give: Give) -> int:
        """Take what connects from all of them; how many products."""
        taken = 0
        for site in self._sites():
            try:
                taken += self._pull_from(self._asker(site), track, give)
            except Unreachable:
                continue
        return taken

    def _asker(self, site: str) -> Asker:
        if site not in self._askers:
            self._askers[site] = Asker(self._session, site, self._principal)
        return self._askers[site]

    def _pull_from(self, asker: Asker, track: Track, give: Give) -> int:
        taken = 0
        queue, after = self._positions.get(asker.site, (b"", 0))
        connected = True
        while True:
            begin = after
            for page in asker.pages(self._asked, begin, self._names):
                if queue and page.head.queue != queue:
                    self._positions.pop(asker.site)  # it was made anew: look at all of it next time
                    return taken
                count, whole = self._take(page, track, give)
                taken += count
                connected = connected and whole
                queue, after = page.head.queue, page.head.upto
                if connected:  # otherwise what was left is looked at again
                    self._positions[asker.site] = queue, after
            if after >= page.head.head - 1 or after == begin:
                return taken

    def _take(self, page: Page, track: Track, give: Give) -> tuple[int, bool]:
        """How many were taken; whether nothing had to be left because it did not connect."""
        keep, moved, whole = np.zeros(len(page.batch), np.uint8), dict[str, int](), True
        for place, product in enumerate(page.batch):
            reached = max(moved.get(product.feed, 0), track.reached(product.feed))
            if product.origin_sequence <= reached:
                continue
            if (product.previous or 0) > reached:
                whole = False
                continue
            moved[product.feed] = product.origin_sequence
            keep[place] = self._selection.wants(product)
        give(page, keep)
        for feed, upto in moved.items():
            track.add_live(feed, upto)
        return int(np.count_nonzero(keep)), whole
