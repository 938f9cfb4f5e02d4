"""Track: what has arrived of one stream of one site, as numbers alone.

`base` says that everything up to there has arrived, of all feeds; `reached(feed)` may be further. A live page moves
one feed, a pulled page and a satisfied beat move the base. There is nothing else to remember, however many feeds there
are: what a beat has confirmed is forgotten.

No input and no output here, so that every order of messages can be tried in memory.
"""

from collections.abc import Mapping


class Track:
    """Knows what is missing. All numbers are sequences of the site's queue."""

    def __init__(self, base: int, ahead: Mapping[str, int] | None = None) -> None:
        self.base = base
        self._ahead = {feed: last for feed, last in (ahead or {}).items() if last > base}

    def reached(self, feed: str) -> int:
        """Everything of this feed up to here has arrived."""
        return max(self._ahead.get(feed, 0), self.base)

    @property
    def ahead(self) -> Mapping[str, int]:
        """Feeds that are further than `base`."""
        return self._ahead

    def fits(self, feed: str, after: int) -> bool:
        """Does a live page that begins behind `after` follow what has arrived, or overlap it?"""
        return after <= self.reached(feed)

    def add_live(self, feed: str, upto: int, products: int = 0) -> None:
        """A live page that fits is in the queue, with so many products behind the base.

        If that is every sequence that there is, the base moves with it.
        """
        if products and upto - products == self.base:
            self.add_pulled(upto)
        elif upto > self.reached(feed):
            self._ahead[feed] = upto

    def add_pulled(self, upto: int) -> None:
        """Everything up to `upto`, of all feeds, is in the queue."""
        if upto > self.base:
            self.base = upto
            self._ahead = {feed: last for feed, last in self._ahead.items() if last > upto}

    def add_beat(self, since: int, examined: int, recent: Mapping[str, int] | None) -> bool:
        """The stream says how far it is. True if nothing is missing, and then the base is there too.

        `recent` has the last product of each feed that had one behind `since`; whoever is not yet at `since`, because
        it has missed beats, can conclude nothing.
        """
        if examined <= self.base:
            return True
        if recent is None or self.base < since or any(self.reached(feed) < last for feed, last in recent.items()):
            return False
        self.add_pulled(examined)
        return True
