"""RemoteSupplier: pushes products into a channel of a site; get one from `RemoteChannel.supplier`.

The site holds the slot and enforces the terms. It keeps the slot for a while if the connection breaks. If it was
restarted, or the connection was broken for longer, the next push takes a new slot: SuppliersFullError if there is none.
"""

import threading
import time
from contextlib import suppress
from functools import cache, partial
from types import TracebackType
from typing import Any, Unpack

import msgspec

from headrace.channel.subtree import Subtree
from headrace.channel.supplier import Prepared, feed_within
from headrace.errors import ChannelError, HeadraceError, SiteUnreachableError
from headrace.log.append import Duplicate, Receipt
from headrace.log.columns import PutColumns, payload_column
from headrace.log.seams import Timeout
from headrace.product.put import PutFacts
from headrace.remote.client.arguments import timeout_of
from headrace.remote.client.connection import Connection, Detached, within_s
from headrace.remote.client.puts import Outcome, Put, Puts, many_put, one_put
from headrace.remote.client.waiting import AWAITING, BLOCKING, Wait, finish
from headrace.remote.protocol.channel_calls import CloseSupplier, OpenSupplier
from headrace.remote.protocol.replies import Done, Supplying

_LEAVE_S = 1.0  # patience of `close`: the site notices by itself


class RemoteSupplier:
    """A push supplier at a site. Several threads may use it; end it with `close`, or use it in a `with`."""

    push_s = 5.0  # as for a local supplier; a slow link needs some time for a product

    def __init__(self, connection: Connection, channel: str, keep_s: float) -> None:
        """Take a slot; SuppliersFullError if `suppliers_max` are connected."""
        self.channel_name = channel
        self._connection, self._keep_s, self._puts = connection, keep_s, Puts(connection)
        self._taking = threading.Lock()
        self._closed = False
        opened = finish(self._take(BLOCKING))
        self._number, self._subtree = opened.supplier, Subtree.of(opened.feed)

    def push(
        self, payload: Any, *, feed: str | None = None, ident: str = "", timeout: Timeout = None,
        **facts: Unpack[PutFacts],
    ) -> int | Duplicate:  # fmt: skip
        """Store one product in the channel, as `Supplier.push` does."""
        return self._repeat(self._one(payload, feed, ident, facts), timeout)

    def push_many(
        self, payloads: Any, *, feed: Any = None, ident: Any = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt:
        """Store many products as one batch, as `Supplier.push_many` does."""
        return self._repeat(self._many(payloads, feed, ident, facts), timeout)

    async def push_async(
        self, payload: Any, *, feed: str | None = None, ident: str = "", timeout: Timeout = None,
        **facts: Unpack[PutFacts],
    ) -> int | Duplicate:  # fmt: skip
        """As `push`; no thread waits for it. A cancellation is as for `RemoteQueue.put_async`."""
        return await self._push(AWAITING, self._one(payload, feed, ident, facts), timeout)

    async def push_many_async(
        self, payloads: Any, *, feed: Any = None, ident: Any = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt:
        """As `push_many`; no thread waits for it."""
        return await self._push(AWAITING, self._many(payloads, feed, ident, facts), timeout)

    def prepared(
        self, payload: Any, *, feed: str | None = None, ident: str = "", **facts: Unpack[PutFacts]
    ) -> Prepared:
        """A push that may be repeated until it succeeds, and is stored once."""
        put = cache(partial(self._one, payload, feed, ident, facts))
        return lambda timeout: self._repeat(put(), timeout)

    def prepared_many(
        self, payloads: Any, *, feed: Any = None, ident: Any = "", **facts: Unpack[PutColumns]
    ) -> Prepared:
        put = cache(partial(self._many, payloads, feed, ident, facts))
        return lambda timeout: self._repeat(put(), timeout)

    def close(self) -> None:
        """Free the slot for other suppliers: it is free on return, unless the site does not reply within a second.

        Such a site frees it after a while. Never raises.
        """
        if not self._closed:
            self._closed = True
            with suppress(HeadraceError):
                self._connection.ask(CloseSupplier(self._number), Done, patience_s=_LEAVE_S)

    def __enter__(self) -> "RemoteSupplier":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteSupplier of {self.channel_name!r} at {self._connection.endpoint}>"

    # --- calls ------------------------------------------------------------------------------------

    def _one(self, payload: Any, feed: str | None, ident: str, facts: PutFacts) -> Put[int | Duplicate]:
        feed = feed_within(self.channel_name, self._subtree, feed)
        return one_put(self._connection.endpoint, payload, feed, ident, facts, self._connection.dedup)

    def _many(self, payloads: Any, feed: Any, ident: Any, facts: PutColumns) -> Put[Receipt]:
        held = payloads if type(payloads) is list else payload_column(payloads)
        if feed is None or isinstance(feed, str):
            feed = feed_within(self.channel_name, self._subtree, feed)
        return many_put(self._connection.endpoint, held, feed, ident, facts, self._connection.dedup)

    def _repeat(self, put: Put[Outcome], timeout: Timeout = None) -> Outcome:
        """Push, for the first time or again."""
        return finish(self._push(BLOCKING, put, timeout))

    async def _push(self, wait: Wait, put: Put[Outcome], timeout: Timeout) -> Outcome:
        """Put as this supplier; if the site no longer knows it, as a new one."""
        if self._closed:
            raise ChannelError("this supplier is closed", "get another one: channel.supplier()")
        seconds, begun = timeout_of(timeout), time.monotonic()
        until = None if seconds is None else begun + seconds
        while True:
            number = self._number
            put.call = msgspec.structs.replace(put.call, supplier=number)
            left_s = None if until is None else max(0.0, until - time.monotonic())
            try:
                return await self._puts.put_by(wait, put, left_s)
            except SiteUnreachableError as error:
                error.retry = partial(self._repeat, put)
                raise
            except Detached:
                pass
            try:
                await self._take_again(wait, number, until)
            except SiteUnreachableError as error:  # nothing was stored
                error.retry = partial(self._repeat, put)
                raise

    async def _take_again(self, wait: Wait, number: int, until: float | None) -> None:
        """Take a new slot in place of that `number`, unless another thread or task has."""
        if wait.is_async:  # tasks must not wait for a lock of threads; a slot too many goes back
            opened = await self._take(wait, until)
            if self._number == number:
                self._number = opened.supplier
            else:
                self._connection.send(CloseSupplier(opened.supplier))
            return
        begun, left_s = time.monotonic(), within_s(until)
        if not self._taking.acquire(timeout=-1 if left_s is None else left_s):
            raise self._connection.silence.error(begun)
        try:
            if self._number == number:
                self._number = finish(self._take(BLOCKING, until)).supplier
        finally:
            self._taking.release()

    async def _take(self, wait: Wait, until: float | None = None) -> Supplying:
        call = OpenSupplier(self.channel_name, self._keep_s)
        return (await self._connection.once_by(wait, call, Supplying, within_s=within_s(until)))[0]
