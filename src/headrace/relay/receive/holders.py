"""Holders: other sites that have an origin's products, asked while the origin is away or has evicted them.

A holder's queue has some of the origin's products, under its own sequences, and cannot promise that it has all of them.
But each product names the previous one of its feed at its origin. So a product is taken if the previous one is known to
have arrived; then nothing was left out in between. A product that does not connect is left for another holder, or for
the origin's return. What a holder may not bring says nothing about the origin: it moves nothing, and is left to the
driver, which refuses and counts it. Conditions other than the feed are evaluated here, because a product that they
leave out still connects the products around it.

Like the upstream that it serves, this is a generator of actions: no threads, no Zenoh, no clock.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from headrace.log.records import Names
from headrace.relay.messages.page import Keep, Page
from headrace.relay.messages.query import Identify, IdentifyReply, Unreachable
from headrace.relay.messages.validation import check_page
from headrace.relay.receive.actions import Admit, Ask, ListHolders, NextPage, ReadLog, Steps
from headrace.relay.receive.track import Track
from headrace.selection import Selection

_LOOK_BACK = (1_000, 16_000, 256_000)  # products, from the end of a holder's log; further only if some do not connect

StorePage = Callable[[Page, Keep], Steps[None]]


class Holders:
    """For one origin, the selection's."""

    def __init__(self, selection: Selection) -> None:
        self._selection, self._names = selection, Names()
        self._asked = str(Selection(selection.feed, origin=selection.origin))
        self._taken = 0
        self._looks: dict[str, _Look] = {}  # by site

    @property
    def waiting(self) -> int:
        """Products that a holder has, and that wait for one before them: of the holder that has most of them."""
        return max((look.left for look in self._looks.values()), default=0)

    def pull(self, track: Track, store: StorePage) -> Steps[int]:
        """Take what connects from all holders; return the number of products."""
        before = self._taken
        sites: list[str] = yield ListHolders()
        for site in sites:
            with suppress(Unreachable):
                yield from self._look_at(site, track, store)
        return self._taken - before

    def _look_at(self, site: str, track: Track, store: StorePage) -> Steps[None]:
        """Read what has come there since the last look; or everything, if what was left there may connect now."""
        identity: IdentifyReply = yield Ask(site, Identify(), IdentifyReply)
        look, had = self._looks.get(site), (self._taken, track.base)
        if look is not None and look.queue == identity.queue and (look.connected or look.had == had):
            seen = yield from self._read_from(site, look.upto, track, store)
            seen.connected, seen.left = seen.connected and look.connected, seen.left + look.left
        else:
            seen = yield from self._look_back(site, identity, track, store)
        seen.queue, seen.had = identity.queue, (self._taken, track.base)
        self._looks[site] = seen

    def _look_back(self, site: str, holder: IdentifyReply, track: Track, store: StorePage) -> Steps["_Look"]:
        """Read further back until what is found is known, then one step more: feeds may have come there out of step."""
        was_known = False
        for count in (*_LOOK_BACK, holder.next):
            first = max(holder.oldest, holder.next - count)
            seen = yield from self._read_from(site, first - 1, track, store)
            if first <= holder.oldest or (seen.began_known and seen.connected and was_known):
                break
            was_known = bool(seen.began_known and seen.connected)
        return seen

    def _read_from(self, site: str, after: int, track: Track, store: StorePage) -> Steps["_Look"]:
        """Read the holder's log from behind `after` to its end."""
        seen = _Look(after)
        while True:
            begin, end = seen.upto, 0
            reply = yield ReadLog(site, self._asked, begin, self._names)
            page: Page | None
            while (page := (yield NextPage(reply))) is not None:
                check_page(page, site)
                if seen.began_known is None and len(page.batch):
                    seen.began_known = bool(page.batch[0].origin_sequence <= track.base)
                left = yield from self._take(page, track, store)
                seen.connected, seen.left = seen.connected and not left, seen.left + left
                seen.upto, end = page.head.upto, page.head.head
            if seen.upto >= end - 1 or seen.upto == begin:
                return seen

    def _take(self, page: Page, track: Track, store: StorePage) -> Steps[int]:
        """Store what connects; return how many products had to be left."""
        is_permitted = yield Admit(page)
        keep, moved, left = np.zeros(len(page.batch), np.uint8), dict[str, int](), 0
        for row, product in enumerate(page.batch):
            if not is_permitted[row]:
                keep[row] = 1  # to be refused, and counted
                continue
            if not self._selection.wants_origin(product.origin):
                continue  # it says nothing about the origin's products, and was not asked for
            reached = max(moved.get(product.feed, 0), track.reached(product.feed))
            if product.origin_sequence <= reached:
                continue
            if (product.previous or 0) > reached:
                left += 1
                continue
            moved[product.feed] = product.origin_sequence
            keep[row] = self._selection.wants(product)
        yield from store(page, keep)
        for feed, upto in moved.items():
            track.add_live(feed, upto)
        self._taken += int(np.count_nonzero(keep[is_permitted]))
        return left


@dataclass(slots=True)
class _Look:
    """How far a holder's log was read, and what was found."""

    upto: int
    connected: bool = True  # nothing had to be left there
    left: int = 0  # products that did not connect
    began_known: bool | None = None  # the first product had arrived before; None: there was no product
    queue: bytes = b""
    had: tuple[int, int] = (0, 0)  # what we had then: products taken from holders, and the base
