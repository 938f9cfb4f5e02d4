"""Track: what has arrived of one stream of one site, as numbers.

Everything of all feeds has arrived up to `base`; `reached(feed)` may be further. A live page moves one feed; a page
from the log, or a satisfied beat, moves the base. Nothing else needs to be remembered, however many feeds there are:
what a beat has confirmed is forgotten.

No input and no output here, so that a test can try every order of messages in memory.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_NONE: Mapping[str, int] = MappingProxyType({})


class Known(NamedTuple):
    """How far a request is at a site, kept over restarts. All of it belongs to one queue of that site."""

    queue: bytes = b""  # its id; empty: the site has never replied
    base: int = 0  # everything up to here has arrived, or is accounted for
    began: int = 0  # the sequence at which it began; 0: unknown
    feeds: tuple[str, ...] | None = None  # patterns that we may receive there; None: unknown
    since: int = 0  # of our queue: what came from that queue is from here on; 0: it is the first queue of the site
    ahead: Mapping[str, int] = _NONE  # feeds that are further than the base
    whole: int = 0  # from here up to the base everything has arrived: nothing was lost or left out; 0: unknown


def everything_of(queue: bytes) -> Known:
    """The position in our own queue: everything in it has arrived."""
    return Known(queue, 1 << 63, 1, whole=1)


def furthest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """By feed, the greater number of the two."""
    return {feed: max(one.get(feed, 0), other.get(feed, 0)) for feed in {**one, **other}}


class Track:
    """Knows what is missing. All numbers are sequences of the site's queue."""

    def __init__(self, base: int, ahead: Mapping[str, int] | None = None) -> None:
        self.base = base
        self._ahead = {feed: last for feed, last in (ahead or {}).items() if last > base}

    def reached(self, feed: str) -> int:
        """Everything of this feed has arrived up to here."""
        return max(self._ahead.get(feed, 0), self.base)

    @property
    def ahead(self) -> Mapping[str, int]:
        """Feeds that are further than `base`."""
        return self._ahead

    def fits(self, feed: str, after: int) -> bool:
        """Whether a live page that begins behind `after` continues or overlaps what has arrived."""
        return after <= self.reached(feed)

    def add_live(self, feed: str, upto: int, products: int = 0) -> None:
        """A live page that fits is in the queue; `products` of them are behind the base.

        If those are all sequences from the base to `upto`, the base moves too.
        """
        if products and upto - products == self.base:
            self.add_pulled(upto)
        elif upto > self.reached(feed):
            self._ahead[feed] = upto

    def add_pulled(self, upto: int) -> None:
        """Everything of all feeds up to `upto` is in the queue."""
        if upto > self.base:
            self.base = upto
            self._ahead = {feed: last for feed, last in self._ahead.items() if last > upto}

    def add_beat(self, since: int, examined: int, recent: Mapping[str, int] | None) -> bool:
        """The stream says how far it is. True if nothing is missing; the base is there then, too.

        `recent` has the last product of each feed that had one behind `since`. A base before `since` has missed beats
        and can conclude nothing from this one.
        """
        if examined <= self.base:
            return True
        if recent is None or self.base < since or any(self.reached(feed) < last for feed, last in recent.items()):
            return False
        self.add_pulled(examined)
        return True
