"""RemoteFollower: batches of a site's queue as they arrive; made by `RemoteQueue.follow`.

It calls for the products at its position, and the site replies when there are some, in the order of its queue. While
the program works on one batch, the call for the next is sent already. So a product travels as soon as it is put, a slow
reader delays nobody, and no more than one batch waits here. A call whose reply does not arrive is repeated at the same
position: whatever happens to the connection, no product is lost and none arrives twice.

`read_all` reads a range with as many calls as it takes, for `RemoteQueue.read_batch`.
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING

from headrace.errors import ProductDamagedError, StartAheadError
from headrace.log.log import Wanted
from headrace.log.read import Start, check_limit
from headrace.product.batch import Batch
from headrace.remote.client.arguments import selection_text, start_text
from headrace.remote.client.connection import GRACE_S, Connection, Fetch, PartsLost, within_s
from headrace.remote.client.pending import PendingReply, RawReply, SlowReply
from headrace.remote.client.waiting import AWAITING, BLOCKING, Wait, finish
from headrace.remote.protocol.calls import ReadProducts, Resolve
from headrace.remote.protocol.fields import PAGE_PRODUCTS_MAX, WAIT_S_MAX
from headrace.remote.protocol.products import RemoteBatch, batch_of
from headrace.remote.protocol.replies import Number, Products
from headrace.selection import Selection
from headrace.units import parse_size

if TYPE_CHECKING:
    from headrace.remote.client.queue import RemoteQueue

_INACTIVE_S = 0.2  # longest sleep before it becomes active: `stop` ends it
_ASK_S = 60.0  # how often the site is asked meanwhile: its clock may be corrected


@dataclass(frozen=True, slots=True)
class ReadTerms:
    """What to read: by which selection, and how much at a time."""

    selection: str
    limit: int
    bytes_limit: int
    counts: bool = False  # the selection has `every`
    stop: int = 0  # read nothing from this sequence on; 0: no end
    expired: bool = False  # include expired products

    @classmethod
    def of(cls, selection: Wanted, limit: int, bytes_limit: int | str, stop: int = 0) -> "ReadTerms":
        check_limit(limit)
        wanted = Selection.of(selection)
        size = max(1, parse_size(bytes_limit, "bytes_limit"))
        return cls(selection_text(wanted), limit, size, wanted.every > 1, stop)

    def call(self, position: int | str, follower: int, connection: Connection, wait_s: float = 0.0) -> ReadProducts:
        page_bytes = connection.page.bytes
        limit, bytes_limit = min(self.limit, PAGE_PRODUCTS_MAX), min(self.bytes_limit, page_bytes)
        return ReadProducts(
            self.selection,
            position,
            limit,
            bytes_limit,
            wait_s,
            self.stop,
            follower,
            self.expired,
            connection.part_bytes,
        )

    def read(self, connection: Connection, position: int | str, follower: int) -> tuple[Products, bytes]:
        """Read one page."""
        while True:
            begun = time.monotonic()
            reply, records = connection.ask(self.call(position, follower, connection), Products)
            connection.page.note(len(records), time.monotonic() - begun)
            with suppress(PartsLost):
                return finish(connection.whole_by(BLOCKING, Fetch(reply, records)))


class _PendingRead:
    """A call for products whose reply was not used yet."""

    __slots__ = ("_has_come", "_raw", "begun_s", "pending", "position", "wait_s")

    def __init__(self, position: int, wait_s: float, pending: PendingReply) -> None:
        self.position, self.wait_s, self.pending = position, wait_s, pending
        self.begun_s = time.monotonic()
        self._raw: RawReply | None = None
        self._has_come = False

    async def has_ended(self, wait: Wait, deadline: float | None) -> bool:
        """Whether there is a reply, or will be none; waits for that until the deadline, and a moment longer."""
        if self._has_come or deadline is None or not isinstance(self.pending, SlowReply):
            return True
        return await wait.has_ended(self.pending, max(0.0, deadline - time.monotonic()) + GRACE_S)

    async def take(self, wait: Wait) -> RawReply | None:
        if not self._has_come:
            self._raw = await wait.take(self.pending)
            self._has_come = True
        return self._raw

    @property
    def is_ready(self) -> bool:
        """Whether its reply has arrived, or will at once."""
        return self._has_come or not self.wait_s


class RemoteFollower:
    """A read without end. It implements `AnyFollower`."""

    def __init__(
        self, queue: "RemoteQueue", connection: Connection, terms: ReadTerms, start: int, timeout_s: float | None,
        spent_s: float = 0.0, later: Resolve | None = None,
    ) -> None:  # fmt: skip
        """`spent_s` is what the calls that found the start took: they count towards the first timeout.

        `later` is the call that finds the start if that is a time in the future: until then the follower is inactive.
        """
        self._queue = queue  # which closes the connection when it is collected
        self._connection, self._terms, self._timeout_s, self._spent_s = connection, terms, timeout_s, spent_s
        self._number = connection.new_follower() if terms.counts else 0
        self._ahead: _PendingRead | None = None
        self._stopped = False
        self._later, self._asked_s, self._left_s = later, 0.0, 0.0
        self.position = start

    def stop(self) -> None:
        """End the iteration from another thread; it wakes up at once."""
        self._stopped = True
        ahead = self._ahead
        if ahead is not None:
            ahead.pending.cancel()

    # --- one batch --------------------------------------------------------------------------------

    def next_nowait(self) -> Batch | None:
        """The next batch, if the site has one now."""
        return finish(self._next_nowait(BLOCKING))

    async def _next_nowait(self, wait: Wait) -> Batch | None:
        self._connection.check_open()
        if await self._inactive_s(wait):
            return None
        ahead = self._ahead
        if ahead is not None and (not ahead.is_ready or ahead.position != self.position):
            ahead.pending.cancel()
            self._ahead = ahead = None
        came = await self._take(wait, ahead) if ahead is not None else None
        if came is None:
            call = self._terms.call(self.position, self._number, self._connection)
            came = await self._whole(wait, await self._connection.ask_by(wait, call, Products))
            if came is None:
                return None
        batch = self._move(*came)
        if batch is not None and self.position < came[0].head:
            await self._call(wait, 0.0)
        return batch

    def wait(self, timeout_s: float) -> None:
        """Sleep until there are products to examine, or `stop` is called."""
        finish(self._wait(BLOCKING, timeout_s))

    async def _wait(self, wait: Wait, timeout_s: float) -> None:
        if inactive_s := await self._inactive_s(wait):
            await self._connection.pause_for(wait, min(timeout_s, inactive_s, _INACTIVE_S))
            return
        ahead = self._ahead
        if ahead is None or ahead.position != self.position:
            ahead = await self._call(wait, min(timeout_s, WAIT_S_MAX))
        await ahead.take(wait)

    def __iter__(self) -> Iterator[Batch]:
        """The follower itself: after a `break`, another loop goes on with the batch after the last one."""
        return self

    def __next__(self) -> Batch:
        batch = finish(self._next(BLOCKING))
        if batch is None:
            raise StopIteration
        return batch

    async def _next(self, wait: Wait) -> Batch | None:
        """The next batch; None at the end of the iteration."""
        while not self._stopped and (inactive_s := await self._inactive_s(wait)):
            await self._connection.pause_for(wait, min(inactive_s, _INACTIVE_S))
        begun = time.monotonic()
        deadline = None if self._timeout_s is None else begun + self._timeout_s - self._spent_s
        self._spent_s, turn = 0.0, 0
        while not self._stopped:
            read, is_new = await self._pending_read(wait, deadline)
            ends_at = self._connection.silence.ends_at(begun, deadline)
            if not await read.has_ended(wait, ends_at):  # the next call goes on with it: the link may be slow
                raise self._connection.silence.error(begun)
            came = await self._take(wait, read)
            if came is not None and (batch := self._move(*came)) is not None:
                await self._call_ahead(wait, came[0])
                return batch
            if self._stopped or (is_new and deadline is not None and time.monotonic() >= deadline):
                if came is None and not self._stopped:
                    raise self._connection.silence.error(begun)
                break
            if came is None:
                if self._connection.silence.is_hopeless(begun, deadline):
                    raise self._connection.silence.error(begun)
                await self._connection.pause_by(wait, turn, deadline)
            turn = turn + 1 if came is None else 0
        return None

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """As `__iter__`; no thread waits for it.

        A `break` stops the follower: for the rest, follow again at its `position`.
        """
        try:
            while (batch := await self._next(AWAITING)) is not None:
                yield batch
        finally:
            self.stop()

    async def __aenter__(self) -> "RemoteFollower":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- calls ------------------------------------------------------------------------------------

    async def _inactive_s(self, wait: Wait) -> float:
        """How long until it becomes active, by the clock of the site; 0.0: it is."""
        if self._later is None or time.monotonic() < self._asked_s + min(self._left_s, _ASK_S):
            return 0.0 if self._later is None else max(0.001, self._left_s - (time.monotonic() - self._asked_s))
        try:
            reply = (await self._connection.ask_by(wait, self._later, Number))[0]
        except StartAheadError as error:
            self._asked_s, self._left_s = time.monotonic(), max(error.ahead_s, 0.001)
            return self._left_s
        self.position, self._later = reply.value, None
        return 0.0

    async def _pending_read(self, wait: Wait, deadline: float | None) -> tuple[_PendingRead, bool]:
        """The call at the position, and whether it is new: only a new one was sent after `__next__` was called."""
        ahead = self._ahead
        if ahead is not None and ahead.position == self.position:
            return ahead, False
        if ahead is not None:
            ahead.pending.cancel()
        return await self._call(wait, self._wait_s(deadline)), True

    async def _call_ahead(self, wait: Wait, reply: Products) -> None:
        """Call for the next batch, unless there is none and the follower would not wait for it."""
        wait_s = self._wait_s(None)
        if wait_s or reply.next < reply.head:
            await self._call(wait, wait_s)

    def _wait_s(self, deadline: float | None) -> float:
        left = self._timeout_s if deadline is None else max(0.0, deadline - time.monotonic())
        return WAIT_S_MAX if left is None else min(left, WAIT_S_MAX)

    async def _call(self, wait: Wait, wait_s: float) -> _PendingRead:
        call = self._terms.call(self.position, self._number, self._connection, wait_s)
        slow = self._timeout_s is not None or self._connection.silence.is_silent
        pending = await self._connection.start_by(wait, call, wait_s=wait_s, slow=slow)
        assert pending is not None  # it has no limit
        read = self._ahead = _PendingRead(self.position, wait_s, pending)
        if self._stopped:  # before there was anything to cancel
            read.pending.cancel()
        return read

    async def _take(self, wait: Wait, read: _PendingRead) -> tuple[Products, bytes] | None:
        raw = await read.take(wait)
        self._ahead = None
        came = None if raw is None and self._stopped else self._connection.read(raw, Products, read.pending)
        if came is None:
            return None
        self._connection.page.note(len(came[1]), time.monotonic() - read.begun_s)
        return await self._whole(wait, came)

    async def _whole(self, wait: Wait, came: tuple[Products, bytes]) -> tuple[Products, bytes] | None:
        """The reply with all of its parts; None as if none had come, if the site no longer has them."""
        try:
            return await self._connection.whole_by(wait, Fetch(*came))
        except PartsLost:
            return None

    def _move(self, reply: Products, records: bytes) -> RemoteBatch | None:
        batch = batch_of(reply, records, self._connection.names)
        self.position = batch.next
        return batch if len(batch) or batch.lost else None


def follow_from(
    queue: "RemoteQueue", connection: Connection, start: Start, terms: ReadTerms, timeout_s: float | None, begun: float
) -> RemoteFollower:
    """A follower; calls made since `begun` count towards its timeout."""
    until = None if timeout_s is None else begun + timeout_s
    resolve = Resolve(start_text(start))
    try:
        position = connection.ask(resolve, Number, within_s=within_s(until))[0].value
    except StartAheadError:
        return RemoteFollower(queue, connection, terms, 0, timeout_s, later=resolve)
    return RemoteFollower(queue, connection, terms, position, timeout_s, time.monotonic() - begun)


def read_all(connection: Connection, terms: ReadTerms, start: int | str) -> RemoteBatch:
    """Everything that the terms ask for in one batch, with as many calls as it takes."""
    number = connection.new_follower() if terms.counts else 0
    first, records = terms.read(connection, start, number)
    count, size, parts, replies, end = first.count, first.payload_bytes, [records], [first], first.head
    while replies[-1].next < end and count < terms.limit and size < terms.bytes_limit:
        rest = replace(terms, limit=terms.limit - count, bytes_limit=terms.bytes_limit - size)
        try:
            reply, records = rest.read(connection, replies[-1].next, number)
        except ProductDamagedError:  # the next read raises it
            break
        if reply.lost_last:
            break
        count, size = count + reply.count, size + reply.payload_bytes
        parts.append(records)
        replies.append(reply)
    return batch_of(_joined(replies) if len(replies) > 1 else first, b"".join(parts), connection.names)


def _joined(replies: list[Products]) -> Products:
    scanned, filtered, deleted, damaged, expired = (
        sum(counts) for counts in zip(*(reply.passed_over for reply in replies), strict=True)
    )
    return Products(
        replies[-1].next, replies[-1].head, sum(reply.payload_bytes for reply in replies),
        b"".join(reply.places for reply in replies), replies[0].lost_first, replies[0].lost_last,
        (scanned, filtered, deleted, damaged, expired),
    )  # fmt: skip
