"""Told: the statistics of a queue, as a client that may not receive everything gets them.

What the log counts as a whole (files, segments, duplicates, rates, what was evicted) would tell what other products
weigh, and when they came. So such a client gets what can be counted for its feeds alone, and its own cursors. The rest
is 0, empty or None. The sequences and the size of the queue are no secret: every description of a site has them.
"""

from collections.abc import Collection

import msgspec

from headrace.link.rights import Feeds
from headrace.log.statistics import Statistics
from headrace.relay.holdings import Held


def told_to(whole: Statistics, feeds: Feeds, held: Held, cursors: Collection[str]) -> Statistics:
    """The part for who may receive these `feeds`, of which the queue holds `held`, and may know these cursors."""
    shown = [each for each in whole.feeds if each.feed in feeds]
    return msgspec.structs.replace(
        whole,
        held_products=held.products,
        held_bytes=held.payload_bytes,
        file_bytes=0,
        oldest_age_s=None,
        inserted_products=sum(each.products for each in shown),
        inserted_bytes=sum(each.bytes for each in shown),
        duplicates=0,
        evicted_products=0,
        evicted_bytes=0,
        deleted_products=0,
        segments=0,
        pinned_evictions=0,
        recoveries=0,
        undurable=0,
        rates=[msgspec.structs.replace(each, products=0.0, bytes=0.0, duplicates=0.0) for each in whole.rates],
        readers=0,
        writers=0,
        attached=[],
        cursors=[each for each in whole.cursors if each.name in cursors],
        feeds=shown,
        flush_failure=None,
    )
