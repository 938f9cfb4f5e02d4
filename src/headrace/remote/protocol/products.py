"""Batches as they travel from a site to its clients: `products_of` at the site, `batch_of` at the client.

A reply `Products` has the sequences and times that the site's queue gave to the products; their records are the payload
of the message. The batch at the client is a Batch in every respect. Its payloads are views of the message, which lives
for as long as any of them.
"""

from headrace.errors import FabricMessageError, RecordsDamagedError
from headrace.kernel import _kernel as kernel
from headrace.log.records import Names, read_batch, rows_of
from headrace.product.batch import Batch, Lost
from headrace.remote.protocol.replies import Products


class RemoteBatch(Batch):
    """`got` is the number of the Get that returned it, through `attachment`; 0 for a batch that was only read."""

    __slots__ = ("attachment", "got")

    def __init__(self, batch: Batch, lost: Lost | None, got: int, attachment: int) -> None:
        rows = rows_of(batch)
        super().__init__(rows, rows.names, lost)
        self.got, self.attachment = got, attachment


def products_of(batch: Batch, head: int, count: int | None = None) -> tuple[Products, bytes]:
    """The reply with a batch, or its first `count` products, and their records. `head`: the queue's next sequence."""
    rows = rows_of(batch)
    places, records = kernel.gather_placed(rows, len(rows) if count is None else count)
    lost = batch.lost
    first, last = (lost.first, lost.last) if lost is not None else (0, 0)
    return Products(batch.next, head, rows.bytes, places, first, last, rows.passed_over), records


def batch_of(reply: Products, records: bytes, names: Names, got: int = 0, attachment: int = 0) -> RemoteBatch:
    """The batch in a reply; FabricMessageError names what is invalid in it."""
    try:
        batch = read_batch(records, names)
        kernel.place_rows(rows_of(batch), reply.places, reply.next, reply.passed_over)
    except RecordsDamagedError as error:
        raise FabricMessageError(f"products in a reply: {error.problem}", error.hint) from None
    except (ValueError, OverflowError):
        raise FabricMessageError("a reply does not match the products in it", "retry") from None
    lost = Lost(reply.lost_first, reply.lost_last) if reply.lost_last else None
    return RemoteBatch(batch, lost, got, attachment)
