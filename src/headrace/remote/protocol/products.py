"""RemoteBatch: products that lie in a message from a site, with the places that the site's queue gives them.

It is a Batch in every respect. Its payloads are views of the message, which lives for as long as any of them.
"""

from headrace.errors import FabricMessageError, RecordsDamagedError
from headrace.kernel import _kernel as kernel
from headrace.log.records import Names, read_batch, rows_of
from headrace.product.batch import Batch, Lost
from headrace.remote.protocol.replies import Products


class RemoteBatch(Batch):
    """`got` is the number of the call that got it from a station, through `attachment`; otherwise 0."""

    __slots__ = ("attachment", "got")

    def __init__(self, batch: Batch, lost: Lost | None, got: int, attachment: int) -> None:
        rows = rows_of(batch)
        super().__init__(rows, rows.names, lost)
        self.got, self.attachment = got, attachment


def batch_of(answer: Products, records: bytes, names: Names, got: int = 0, attachment: int = 0) -> RemoteBatch:
    """The batch in an answer; FabricMessageError says what is wrong with it."""
    try:
        batch = read_batch(records, names)
        kernel.place_rows(rows_of(batch), answer.places, answer.next, answer.passed_over)
    except RecordsDamagedError as error:
        raise FabricMessageError(f"products in an answer: {error.problem}", error.hint) from None
    except (ValueError, OverflowError):
        raise FabricMessageError("an answer has other products than it says", "ask once more") from None
    lost = Lost(answer.lost_first, answer.lost_last) if answer.lost_last else None
    return RemoteBatch(batch, lost, got, attachment)


# --- merged from remote.server.products: Products: batches of a queue as they go to remote users.
#


def products_of(batch: Batch, head: int, count: int | None = None) -> tuple[Products, bytes]:
    """The answer with a batch, or its first `count` products, and their records."""
    rows = rows_of(batch)
    places, records = kernel.gather_placed(rows, len(rows) if count is None else count)
    lost = batch.lost
    first, last = (lost.first, lost.last) if lost is not None else (0, 0)
    return Products(batch.next, head, rows.bytes, places, first, last, rows.passed_over), records
