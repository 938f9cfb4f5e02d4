"""Reading: everything from a position to the end of the queue, product by product or batch by batch.

    for product in queue.read("oldest"):            # to the end of the queue as it was at the call
        ...
    for batch in queue.read(1000, "wx/**").batches():
        ...

It reads a batch when the one before is used up, so that memory stays bounded however much the queue holds. Products
that are evicted before the reading gets to them are never skipped silently: iterating products raises
ProductsLostError, and `batches` returns a batch whose `lost` is the range. The same class serves local and remote
queues; it is given a function that makes a reader.
"""

from collections.abc import Callable, Iterator

from headrace.errors import ProductsLostError
from headrace.log.read import Read, check_limit
from headrace.product.batch import Batch, Lost
from headrace.product.product import Product

BATCH_PRODUCTS = 10_000
BATCH_BYTES = "64MiB"

MakeReader = Callable[[int, int | str], Read]  # with the limits of a batch: products and bytes


class Reading:
    """What `Queue.read` and `Cursor.read` return. Each iteration starts at the same position."""

    def __init__(
        self, make_reader: MakeReader, oldest: Callable[[], int], start: int, stop: int, limit: int | None
    ) -> None:
        self._make_reader, self._oldest = make_reader, oldest
        self.start, self.stop = start, stop  # the first sequence, and the one after the last
        self._limit = None if limit is None else check_limit(limit)

    def batches(self, limit: int = BATCH_PRODUCTS, bytes_limit: int | str = BATCH_BYTES) -> Iterator[Batch]:
        """Batches of at most `limit` products; the product that crosses `bytes_limit` is the last one of its batch.

        A batch whose `lost` is set may be empty; `batch.next` is where to read on. After a `break`, too.
        """
        return self._read(self._make_reader(check_limit(limit), bytes_limit))

    def _read(self, read: Read) -> Iterator[Batch]:
        position, left = self.start, self._limit
        while position < self.stop and left != 0:
            batch = read(position, self.stop, left)
            position = batch.next
            if batch.lost is not None and batch.lost.last >= self.stop:
                batch.lost = Lost(batch.lost.first, self.stop - 1)
            if left is not None:
                left -= len(batch)
            if len(batch) or batch.lost:
                yield batch

    def __iter__(self) -> Iterator[Product]:
        """Each product; ProductsLostError if some were evicted before they were read.

        A `break` needs no care: reading changes nothing in the queue, and the next iteration starts at the same
        position. To go on later, keep `product.sequence + 1`, or use a cursor.
        """
        for batch in self.batches():
            if batch.lost is not None and batch.lost.first < self._oldest():  # not sequences that were never given
                raise ProductsLostError(
                    f"products {batch.lost} were evicted before they were read",
                    f"read on at {batch.lost.last + 1}, or in batches, which report what is lost: read(…).batches()",
                    batch.lost.first,
                    batch.lost.last,
                )
            yield from batch

    def __repr__(self) -> str:
        return f"<Reading from {self.start} up to {self.stop}>"
