"""The log path, serving side: what the log holds, without payloads. Only index rows and headers of records are read."""

from collections.abc import Sequence

import numpy as np

from headrace.errors import ProductDamagedError
from headrace.link.access import feed_test
from headrace.product.batch import ROW
from headrace.product.feed import FeedPattern
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.messages.inventory import InventoryReply, make_reply
from headrace.relay.messages.page import queue_id
from headrace.relay.messages.query import Inventory
from headrace.selection import Selection

_NOTHING = (0, 0)


def list_held(queue: Queue, query: Inventory, allowed: Sequence[FeedPattern]) -> InventoryReply:
    """Reply to a query; `allowed` are the feeds that the client may receive.

    Expired products are listed: whether they are sent is decided when they are read. What is damaged beyond its index
    row cannot be listed, and counts as lost here.
    """
    log = log_of(queue)
    read = log.reader(
        Selection.parse(query.selection), query.products, (1 << 62), allowed=feed_test(allowed), heads=True
    )
    start, columns, lost = query.after + 1, np.zeros(0, ROW), _NOTHING
    upto = max(query.after, queue.next - 1)
    if start < queue.next:
        try:
            batch = read(start)
            columns, upto = batch.columns, batch.next - 1
            lost = (batch.lost.first, batch.lost.last) if batch.lost else _NOTHING
        except ProductDamagedError as error:
            upto, lost = error.next - 1, (error.sequence, error.next - 1)
    return make_reply(
        queue_id(queue), (queue.oldest, queue.next), (query.after, max(query.after, upto)), lost, columns,
        log.kernel.names,
    )  # fmt: skip
