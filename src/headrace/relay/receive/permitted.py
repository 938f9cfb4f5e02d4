"""Permitted: feeds that a site lets us receive now, and did not let us receive before.

Everything up to the base has arrived, of the feeds that we could receive then. If the access rules of the site are
widened, the other feeds are read from where the request began up to the base, which does not move. The receiver saves
which feeds it could receive only at the end, so that a death meanwhile costs reading again.

Like the upstream that it serves, this is a generator of actions: no threads, no Zenoh, no clock.
"""

from collections.abc import Callable

import numpy as np

from headrace.log.records import Names
from headrace.product.feed import FeedPattern
from headrace.relay.messages.page import Keep, Page
from headrace.relay.messages.query import Unreachable
from headrace.relay.messages.validation import check_page
from headrace.relay.receive.actions import NextPage, ReadLog, Steps
from headrace.relay.receive.track import Known

StorePage = Callable[[Page, Keep | None], Steps[None]]


def is_widened(known: Known, feeds: tuple[str, ...]) -> bool:
    """Whether there may be products that we could not receive; unknown beginnings and rights do not count."""
    may_have_missed = 0 < known.began <= known.base
    return may_have_missed and known.feeds is not None and any(text not in known.feeds for text in feeds)


def read_permitted(site: str, selection: str, known: Known, store: StorePage) -> Steps[None]:
    """Store what we may receive now of feeds that are not among those of `known`, up to its base."""
    before, names, after = [FeedPattern(text) for text in known.feeds or ()], Names(), known.began - 1
    while after < known.base:
        begun = after
        reply = yield ReadLog(site, selection, after, names)
        page: Page | None
        while (page := (yield NextPage(reply))) is not None:
            check_page(page, site)
            if page.head.queue != known.queue or page.head.after > after:
                raise Unreachable("its log changed during the reply")
            after = max(after, page.head.upto)
            yield from store(page, _is_new(page, before, known.base))
        if after == begun:
            raise Unreachable("no page came")


def _is_new(page: Page, before: list[FeedPattern], base: int) -> Keep:
    """Which products are of other feeds than before; each feed is matched once."""
    numbers, places = np.unique(page.columns["feed"], return_inverse=True)
    feeds = [page.batch.name(number) for number in numbers.tolist()]
    is_other = np.array([not any(pattern.matches(feed) for pattern in before) for feed in feeds], np.bool_)
    keep: Keep = (is_other[places] & (page.sequences <= np.uint64(base))).astype(np.uint8)
    return keep
