"""Unseen: ranges that one of several sites evicted before they could be compared with what has arrived.

Whether such a range is lost depends on what was in it, and the site has only numbers left: from which queue of which
other site the products came, and as which sequences there (relay/hops.py). If we take the same request from that site
too, and everything of those sequences has arrived from there, the range is supplied. Otherwise it is named as perhaps
lost, by the cause `evicted unseen`. It is looked at again until the other sites have caught up.

    begin    ask the site from where the products of a range came, and name the range
    settle   take back what the other sites have supplied by now

Only a stretch that arrived whole counts as supplied (`Known.whole`): where the other site lost something itself, or
left something out, nothing is concluded. So two sites that have their products from each other, and have both evicted
them, do not vouch for each other. What was put at the site itself is supplied if our own queue holds all of it.

Generators of actions, like the machines that use them.
"""

import logging
from collections.abc import Callable, Mapping

from headrace.errors import FabricError
from headrace.product.cause import CHOSEN
from headrace.relay.messages.page import PageHead
from headrace.relay.messages.query import Trace, TraceReply, Unreachable
from headrace.relay.messages.source import Source
from headrace.relay.receive.actions import Ask, FindMissing, Steps
from headrace.relay.receive.counts import Unseen, UpstreamStatistics
from headrace.relay.receive.track import Known

_LOOKS_MAX = 12  # into our own queue, after 1, 2, 4 … seconds: that takes long in a large queue

Others = Callable[[], Mapping[str, Known]]  # by site: the positions of the same request there, and our own queue

log = logging.getLogger("headrace.fabric")


def begin(site: str, queue: bytes, first: int, last: int, statistics: UpstreamStatistics, now: float) -> Steps[None]:
    """The site has evicted this range; it is named until it is known to have been supplied."""
    sources: tuple[Source, ...] = ()
    rest = (first, last)
    try:
        reply: TraceReply = yield Ask(site, Trace(first, last), TraceReply)
        if reply.queue == queue and (reply.rest_first > reply.rest_last or _is_within(reply, first, last)):
            sources, rest = reply.sources, (reply.rest_first, reply.rest_last)
    except (Unreachable, FabricError) as error:
        log.debug("site %s does not say from where products %d-%d came: %s", site, first, last, error)
    statistics.lose(first, last, "evicted unseen", now)
    statistics.watch(Unseen(first, last, sources, *rest, look_at=now))


def _is_within(reply: TraceReply, first: int, last: int) -> bool:
    return first <= reply.rest_first and reply.rest_last <= last


def settle(site: str, statistics: UpstreamStatistics, others: Others, since: int, now: float) -> Steps[None]:
    """Take back the ranges that other sites have supplied, and shrink those of which a part is left.

    `since` is that of the position at the site.
    """
    for unseen in statistics.unseen:
        positions = others()
        if not all(_has_supplied(positions.get(source.site), source) for source in unseen.sources):
            continue
        left = (unseen.rest_first, unseen.rest_last)
        if left[0] <= left[1] and now >= unseen.look_at and unseen.looks < _LOOKS_MAX:
            left = yield FindMissing(*left, since)
            statistics.looked_at(unseen, now + 2**unseen.looks)
        if left == (unseen.first, unseen.last):
            continue
        statistics.take_back(unseen, *left)
        _log_supplied(site, unseen, left)


def _has_supplied(known: Known | None, source: Source) -> bool:
    """Whether everything of these sequences has arrived from there."""
    if known is None or known.queue != source.queue or not known.whole:
        return False
    return known.whole <= source.first and source.last <= known.base


def _log_supplied(site: str, unseen: Unseen, left: tuple[int, int]) -> None:
    if left[0] > left[1]:
        log.warning("site %s: products %d-%d are not lost: other sites have supplied them", site, unseen.first,
                    unseen.last)  # fmt: skip
    else:
        log.warning("site %s: of products %d-%d, only %d-%d may be lost: other sites have supplied the rest", site,
                    unseen.first, unseen.last, *left)  # fmt: skip


def whole_after(head: PageHead, whole: int) -> int:
    """From where on everything has arrived, when a page from the log of a site has been taken."""
    return head.upto + 1 if any(cause not in CHOSEN for cause in head.left_out) else whole
