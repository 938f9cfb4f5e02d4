"""Holders: other sites that have what one origin has put, asked while the origin's own site is away or has it no more.

A holder's queue has some of the origin's products, in its own numbers, and cannot promise that it has all of them. But
each product says which one of its feed came before it at its origin. So a product is taken if that one is known to have
arrived; then nothing was left out in between. What does not connect is left for another holder, or for the origin's
return. Conditions other than on the feed are decided here, since a product that they leave out connects others all the
same.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import zenoh

from headrace.log.records import Names
from headrace.relay.messages.page import Keep, Page
from headrace.relay.messages.query import Identify, IdentifyReply, Resolve, ResolveReply
from headrace.relay.receive.track import Track
from headrace.relay.site_client import SiteClient, Unreachable
from headrace.selection import Selection

_LOOK_BACK = ("1min", "10min", "2h", "1d", "oldest")  # how far in its log; further only if something does not connect

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
        self._askers: dict[str, SiteClient] = {}
        self._taken = 0
        self._looks: dict[str, _Look] = {}  # by site

    def pull(self, track: Track, give: Give) -> int:
        """Take what connects from all of them; how many products."""
        before = self._taken
        for site in self._sites():
            with suppress(Unreachable):
                self._look_at(self._asker(site), track, give)
        return self._taken - before

    def _asker(self, site: str) -> SiteClient:
        if site not in self._askers:
            self._askers[site] = SiteClient(self._session, site, self._principal)
        return self._askers[site]

    def _look_at(self, asker: SiteClient, track: Track, give: Give) -> None:
        """What has come there since the last time; or all, if what was left there may connect now."""
        card: IdentifyReply = asker.query(Identify(), IdentifyReply)
        look, had = self._looks.get(asker.site), (self._taken, track.base)
        if look is not None and look.queue == card.queue and (look.connected or look.had == had):
            seen = self._pull_from(asker, look.upto, track, give)
            seen.connected = seen.connected and look.connected
        else:
            seen = self._look_back(asker, card.oldest, track, give)
        seen.queue, seen.had = card.queue, (self._taken, track.base)
        self._looks[asker.site] = seen

    def _look_back(self, asker: SiteClient, oldest: int, track: Track, give: Give) -> "_Look":
        """No further than to what is known, and once more as far, since feeds may have come there out of step."""
        was_known = False
        for start in _LOOK_BACK:
            begin: int = asker.query(Resolve(start), ResolveReply).sequence
            seen = self._pull_from(asker, begin - 1, track, give)
            if begin <= oldest or (seen.began_known and seen.connected and was_known):
                break
            was_known = bool(seen.began_known and seen.connected)
        return seen

    def _pull_from(self, asker: SiteClient, after: int, track: Track, give: Give) -> "_Look":
        """All that there is behind `after`."""
        seen = _Look(after)
        while True:
            begin = seen.upto
            for page in asker.pages(self._asked, begin, self._names):
                if seen.began_known is None and len(page.batch):
                    seen.began_known = bool(page.batch[0].origin_sequence <= track.base)
                seen.connected = self._take(page, track, give) and seen.connected
                seen.upto = page.head.upto
            if seen.upto >= page.head.head - 1 or seen.upto == begin:
                return seen

    def _take(self, page: Page, track: Track, give: Give) -> bool:
        """Whether nothing had to be left because it did not connect."""
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
        self._taken += int(np.count_nonzero(keep))
        return whole


@dataclass(slots=True)
class _Look:
    """How far a holder's log was looked at, and what came of it."""

    upto: int
    connected: bool = True  # nothing had to be left there
    began_known: bool | None = None  # the first product was one that had arrived before; None: there was none
    queue: bytes = b""
    had: tuple[int, int] = (0, 0)  # what we had then: taken from holders, and the base
