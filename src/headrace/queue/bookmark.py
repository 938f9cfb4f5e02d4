"""Bookmark: how far a program has come, kept beside its own results, so that each product has its effect once.

    with connect("site:denver") as queue, SqliteBookmark("readings.db", "metar") as bookmark:
        for batch in bookmark.follow(queue, "wx/text/metar"):
            with bookmark.store(batch) as database:
                database.executemany("INSERT INTO readings VALUES (?, ?)", [(each.ident, each.size) for each in batch])

A cursor is kept in the queue. A program that is killed after it has written its results and before the cursor has moved
writes them again. A bookmark moves in the same step in which the results are stored: either both have happened or
neither has. bookmark_sqlite.py does that by a transaction, bookmark_file.py by the length of a file.

Invariants: a stored position never goes back. It belongs to one queue, known by its uuid, and the last stored product
is remembered as well: a queue that was created again, or restored from an older copy, is refused. Two processes that
use one bookmark do not store a product twice.

Not here: work that several programs share (slices/sinks).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgspec

from headrace.decoding import Decoder
from headrace.errors import BookmarkError, OptionError
from headrace.log.documents import UNREADABLE
from headrace.log.follow import AnyFollower
from headrace.log.log import Wanted
from headrace.log.read import Start
from headrace.product.batch import Batch
from headrace.product.joined import JoinedBatch
from headrace.queue.interface import AnyQueue

NEW = (
    'start again with bookmark.forget(), or use another bookmark; "oldest" then means the oldest product of this queue'
)
_RESTORED = "the queue was restored from an older copy"

Target = TypeVar("Target")


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a bookmark keeps."""

    queue: str  # its uuid
    position: int  # the first product that is not stored
    last: int = 0  # the last product that is; 0: none
    inserted_ns: int = 0  # of that product
    signature: str = ""  # of that product, in hexadecimal digits

    def behind(self, batch: Batch) -> "Mark":
        """The mark once a batch is stored."""
        if not len(batch):
            return Mark(self.queue, batch.next, self.last, self.inserted_ns, self.signature)
        last = batch.columns[-1]
        return Mark(
            self.queue, batch.next, int(last["sequence"]), int(last["inserted_ns"]), bytes(last["signature"]).hex()
        )


class Bookmark(Generic[Target]):
    """What both kinds have in common. Used by one thread at a time."""

    name: str  # for messages
    _mark: Mark | None

    @property
    def position(self) -> int | None:
        """The first product that is not stored; None before the first `follow`."""
        return self._mark.position if self._mark else None

    def follow(
        self, queue: AnyQueue, selection: Wanted = None, *, start: Start = "oldest", limit: int = 10_000,
        bytes_limit: int | str = "64MiB", timeout: float | str | timedelta | None = None,
    ) -> AnyFollower:  # fmt: skip
        """Batches from the position on, as `queue.follow`; from `start` on if there is none yet.

        BookmarkError: the position belongs to another queue, or the queue was restored from an older copy.
        """
        if self._mark is None:
            self._replace(Mark(queue.config.uuid, queue.resolve(start)))
        assert self._mark is not None
        check_queue(self.name, self._mark, queue)
        return queue.follow(
            self._mark.position, selection, limit=limit, bytes_limit=bytes_limit, timeout=timeout
        )  # fmt: skip

    def store(self, batch: Batch) -> AbstractContextManager[Target]:
        """In the block, write the results of a whole batch; at its end, they and the position are stored, together.

        If the block raises, or the process dies, neither is. OptionError: the batch is not the next one.
        """
        return self._stored(self._after(batch))

    def _after(self, batch: Batch) -> Mark:
        """The mark behind a batch that follows."""
        if not isinstance(batch, Batch) or isinstance(batch, JoinedBatch):
            raise OptionError(f"{batch!r:.80} is not a batch of a follower", "store batches of bookmark.follow(...)")
        if self._mark is None:
            raise OptionError(f"{self.name} belongs to no queue yet", "store batches of bookmark.follow(...)")
        first = int(batch.sequences[0]) if len(batch) else batch.next
        if first < self._mark.position or batch.next <= self._mark.position:
            raise OptionError(
                f"a batch that begins with product {first} was stored before: {self.name} is at {self._mark.position}",
                "store each batch once, in the order in which they come",
            )
        return self._mark.behind(batch)

    def forget(self) -> None:
        """Belong to no queue again; results stay. The next `follow` begins at its `start`."""
        self._replace(None)

    def close(self) -> None:
        """Release what the bookmark holds. Nothing of an unfinished block is stored."""
        raise NotImplementedError

    # --- by kind ----------------------------------------------------------------------------------

    def _stored(self, after: Mark) -> AbstractContextManager[Target]:
        raise NotImplementedError

    def _replace(self, mark: Mark | None) -> None:
        """Set the mark, without results."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_queue(name: str, mark: Mark, queue: AnyQueue) -> None:
    """BookmarkError if the mark was not made with this queue, as it is now."""
    if queue.config.uuid != mark.queue:
        raise BookmarkError(
            f"{name} is at product {mark.position} of another queue: {queue.path} was created again, or is a copy", NEW
        )
    end = queue.next
    if mark.position > end:
        raise BookmarkError(
            f"{name} is at product {mark.position}, and {queue.path} ends at {end - 1}: {_RESTORED}", NEW
        )
    if queue.oldest <= mark.last < end:
        found = queue.read_batch(mark.last, limit=1, stop=mark.last + 1)  # empty if it expired or was deleted
        if len(found) and Mark(mark.queue, mark.position).behind(found) != msgspec.structs.replace(
            mark, position=found.next
        ):
            raise BookmarkError(
                f"product {mark.last} of {queue.path} is not the one that {name} remembers: {_RESTORED}", NEW
            )


@contextmanager
def explained(name: str) -> Iterator[None]:
    """An error of the operating system as one of ours."""
    try:
        yield
    except OSError as error:
        raise BookmarkError(
            f"{name} was not written: {error}", "check the disk and the permissions; nothing was stored"
        ) from error


def decoded(name: str, text: bytes, kind: Any) -> Any:
    """A document of a bookmark. BookmarkError if it is damaged."""
    try:
        return Decoder[Any](kind, encoding="json").decode(text)
    except UNREADABLE as error:
        raise BookmarkError(f"{name} is damaged: {error}", "restore it with the results that belong to it") from None
