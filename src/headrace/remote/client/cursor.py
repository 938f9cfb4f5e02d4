"""RemoteCursor: a named, durable position in the queue of a site; get one from `RemoteQueue.cursor`.

It implements `AnyCursor`. The site keeps the position, so every look at it and every commit is a call; reading and
following go through the RemoteQueue.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.log.cursor import CursorState
from headrace.log.log import Wanted
from headrace.log.read import Start
from headrace.log.reading import Reading
from headrace.product.batch import Batch, Lost
from headrace.remote.client.arguments import checked_selection, timeout_of
from headrace.remote.client.connection import Connection, within_s
from headrace.remote.client.follower import ReadTerms, RemoteFollower, follow_from
from headrace.remote.protocol.calls import LoadCursor, RemoveCursor, SaveCursor
from headrace.remote.protocol.replies import CursorPosition, Done

if TYPE_CHECKING:
    from headrace.remote.client.queue import RemoteQueue


class RemoteCursor:
    """A reader's position under a name. Reading does not move it: `commit` does, after the work is done."""

    def __init__(self, queue: "RemoteQueue", connection: Connection, name: str) -> None:
        self._queue, self._connection, self.name = queue, connection, name

    @property
    def state(self) -> CursorState:
        return self._load(None)

    def _load(self, until: float | None) -> CursorState:
        told, _ = self._connection.ask(LoadCursor(self.name), CursorPosition, within_s=within_s(until))
        lost = Lost(told.lost_first, told.lost_last) if told.lost_last else None
        return CursorState(told.position, told.saved_ns, told.lost_products, lost, told.generation)

    @property
    def position(self) -> int:
        """The sequence to read next."""
        return self.state.position

    def read(self, selection: Wanted = None, *, limit: int | None = None) -> Reading:
        """All products from the position on, up to the end of the queue as it is now. Commit its batches."""
        checked = checked_selection(selection)
        return self._queue.read(self.position, checked, limit=limit)

    def read_batch(self, selection: Wanted = None, *, limit: int = 10_000, bytes_limit: int | str = "64MiB") -> Batch:
        """One batch from the position on; `batch.lost` is the exact range that was evicted, if any."""
        checked = checked_selection(selection)
        return self._queue.read_batch(self.position, checked, limit=limit, bytes_limit=bytes_limit)

    def follow(
        self, selection: Wanted = None, *, limit: int = 10_000, bytes_limit: int | str = "64MiB",
        timeout: float | str | None = None,
    ) -> RemoteFollower:  # fmt: skip
        """Batches from the position on, as they arrive. Commit each when its work is done."""
        terms, timeout_s, begun = ReadTerms.of(selection, limit, bytes_limit), timeout_of(timeout), time.monotonic()
        position = self._load(None if timeout_s is None else begun + timeout_s).position
        return follow_from(self._queue, self._connection, position, terms, timeout_s, begun)

    def commit(self, batch: Batch) -> None:
        """The work on `batch` is done; a lost range in it is added to the record of this cursor."""
        self._save(batch.next, batch.lost)

    def save(self, position: int) -> None:
        """Set the position to a sequence."""
        self._save(self._queue.resolve(position), None)

    def seek(self, start: Start) -> int:
        """Go to a sequence, "oldest", "next" or a time; the position that results."""
        position = self._queue.resolve(start)
        self._save(position, None)
        return position

    def _save(self, position: int, lost: Lost | None) -> None:
        first, last = (lost.first, lost.last) if lost is not None else (0, 0)
        self._connection.once(SaveCursor(self.name, position, first, last), Done)

    def remove(self) -> None:
        """Remove the cursor. Any further use of it is an error."""
        self._connection.once(RemoveCursor(self.name), Done)

    def __iter__(self) -> Iterator[Batch]:
        """Follow without end, committing each batch when the next one is requested.

        A `break` does not commit the batch in hand: the next loop begins with it again. Commit it yourself if its work
        is done.
        """
        for batch in self.follow():
            yield batch
            self.commit(batch)

    def __repr__(self) -> str:
        return f"<RemoteCursor {self.name!r} of {self._queue.path}>"
