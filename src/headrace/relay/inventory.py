"""The log path, serving side: what the log holds, without payloads. Only index rows and headers of records are read.

    list_held   what a selection wants, in the order of the log
    locate      under which sequences products with given signatures are held

Feeds that the client may not receive are left out of both, as from pages, and so is what does not leave the site.
"""

from contextlib import suppress

import numpy as np
import numpy.typing as npt

from headrace.errors import FabricMessageError, ProductDamagedError
from headrace.link.rights import Feeds
from headrace.log.records import rows_of
from headrace.product.batch import ROW, Batch
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.messages.inventory import InventoryReply, make_reply
from headrace.relay.messages.page import queue_id
from headrace.relay.messages.query import Inventory, Locate, LocateReply, selection_in

_NOTHING = (0, 0)
_WHOLE = 1 << 62  # bytes
_STRETCH = 4096  # sequences that are looked at together


def _leaving(batch: Batch) -> npt.NDArray[np.void]:
    """The rows of the products that may be passed on."""
    staying = rows_of(batch).staying()
    return batch.columns if staying is None else batch.columns[np.frombuffer(staying, np.uint8) == 0]


def list_held(queue: Queue, query: Inventory, allowed: Feeds) -> InventoryReply:
    """Reply to a query; `allowed` are the feeds that the client may receive.

    Expired products are listed: whether they are sent is decided when they are read. What is damaged beyond its index
    row cannot be listed, and counts as lost here.
    """
    log, test = log_of(queue), allowed.test
    read = log.reader(selection_in(query), query.products, _WHOLE, allowed=test, heads=True)
    is_partial = test is not None
    start, columns, lost = query.after + 1, np.zeros(0, ROW), _NOTHING
    upto = max(query.after, queue.next - 1)
    if start < queue.next:
        try:
            batch = read(start)
            columns, upto = _leaving(batch), batch.next - 1
            lost = (batch.lost.first, batch.lost.last) if batch.lost else _NOTHING
            is_partial |= rows_of(batch).passed_over[3] > 0
        except ProductDamagedError as error:
            upto, lost = error.next - 1, (error.sequence, error.next - 1)
    return make_reply(
        queue_id(queue), (queue.oldest, queue.next), (query.after, max(query.after, upto)), lost, columns,
        log.kernel.names, is_partial=is_partial,
    )  # fmt: skip


def _check_columns(query: Locate) -> None:
    count = len(query.kinds)
    if len(query.signatures) != 16 * count or len(query.origin_numbers) != 2 * count:
        raise FabricMessageError(
            "a query has columns of different lengths", "run the same Headrace version at both sites"
        )
    if count and int(np.frombuffer(query.origin_numbers, np.uint16).max()) >= len(query.origins):
        raise FabricMessageError("a query has an unknown origin", "run the same Headrace version at both sites")


def locate(queue: Queue, query: Locate, allowed: Feeds) -> LocateReply:
    """Reply to a query. FabricMessageError if its columns are invalid."""
    _check_columns(query)
    log = log_of(queue)
    signatures, kinds = np.frombuffer(query.signatures, "V16"), np.frombuffer(query.kinds, np.uint8)
    places = np.frombuffer(query.origin_numbers, np.uint16)
    origins = [query.origins[place] for place in places.tolist()]
    sequences = log.find_signatures(signatures, kinds, origins)
    read = log.reader(selection_in(query), _STRETCH, _WHOLE, allowed=allowed.test, heads=True)
    held, shown = np.unique(sequences[sequences > 0]), [np.zeros(0, np.uint64)]
    while len(held):
        first = int(held[0])
        near = held[held < np.uint64(first + _STRETCH)]
        with suppress(ProductDamagedError):  # what cannot be read is not held
            shown.append(_leaving(read(first, int(near[-1]) + 1))["sequence"].copy())
        held = held[len(near) :]
    sequences = np.where(np.isin(sequences, np.concatenate(shown)), sequences, np.uint64(0))
    return LocateReply(queue_id(queue), sequences.tobytes())
