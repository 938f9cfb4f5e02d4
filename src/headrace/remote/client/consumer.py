"""RemoteConsumer: a consumer of a station at another site; get one from `RemoteStation.attach`.

It implements `AnyConsumer`. The site holds a real consumer on its behalf, with its leases, while it is connected
and for the time `keep` after that. So a connection that breaks and comes back costs nothing. If the client stays away
for longer, or the site was restarted, the next `get` attaches again: the products that were leased go to the consumer
that asks first, and acknowledging them raises LeaseLostError. An acknowledgement that the site stored just before it
was killed raises that too, because the restarted site does not remember its calls; such a product is not
delivered again. The loops `batches` and `for` go on in that case: what is not acknowledged is delivered again.

A `get` whose reply was lost is repeated under its number, and returns the products that were leased to it then.
If the task of a `get_async` is cancelled, the client ends the get at the site. What it had leased by then goes back,
unless the next `get` takes it over.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace.errors import HeadraceError, LeaseLostError, QueueClosedError, SiteUnreachableError
from headrace.log.append import Receipt
from headrace.log.in_thread import started
from headrace.log.seams import Timeout
from headrace.product.batch import Batch
from headrace.product.product import Product
from headrace.remote.client.arguments import timeout_of
from headrace.remote.client.connection import Connection, Detached, Fetch, PartsLost, within_s
from headrace.remote.client.pending import SlowReply
from headrace.remote.client.waiting import AWAITING, BLOCKING, Wait, finish
from headrace.remote.protocol.calls import Attach, DescribeConsumer, Detach, Get, Interrupt, Revise, Settle
from headrace.remote.protocol.fields import WAIT_S_MAX
from headrace.remote.protocol.products import RemoteBatch, batch_of, expired_in, part_of, places_at_site
from headrace.remote.protocol.replies import Attached, Details, Done, Products, decode_reply
from headrace.station.consumer import GET_MAX
from headrace.station.draft import Draft, draft_columns, new_drafts
from headrace.station.leases import (
    Leased,
    check_attached,
    check_payloads,
    find_leases,
    find_revised,
    is_failure,
    iterate,
    iterate_async,
    not_a_number,
    not_leased,
    recent_batches,
)
from headrace.station.statistics import ConsumerStatistics
from headrace.units import format_age

if TYPE_CHECKING:
    import asyncio

    from headrace.remote.client.queue import RemoteQueue

_LEAVE_S = 1.0  # patience of `detach`: the site notices by itself
_EMPTY = Products(0, 0)

log = logging.getLogger("headrace.remote")


class _Left:
    """A Get whose task was cancelled. Its reply is handled by the first to claim it: what came goes back, or the next
    get takes it over.
    """

    __slots__ = ("_claimed", "pending")

    def __init__(self, pending: SlowReply) -> None:
        self.pending, self._claimed = pending, threading.Lock()

    def claim(self) -> bool:
        return self._claimed.acquire(blocking=False)


class RemoteConsumer:
    """An attachment to a station of a site, for one thread at a time."""

    def __init__(
        self, queue: "RemoteQueue", station_name: str, connection: Connection, attached: Attached, keep_s: float
    ) -> None:
        self._queue, self.station_name = queue, station_name
        self._connection, self._keep_s = connection, keep_s
        self._attachment, self._place = attached.attachment, attached.place
        self._attaching = 0  # number of a repeated Attach that has no reply yet
        self._getting = 0  # number of a Get that has no reply yet
        self._pending: tuple[SlowReply, int] | None = None  # its query, and when it was sent
        self._fetch: Fetch | None = None  # its reply, while parts of it are missing
        self._rest = 0  # number of the Get whose batch the next one acknowledges
        self._each_s = 0.0  # how long a product takes to arrive; 0: unknown
        self._recent = recent_batches()
        self._pid = os.getpid()
        self._interrupted = self._detached = False
        self._one_at_a_time = threading.Lock()
        self._one_task: asyncio.Lock | None = None
        self._leaving = threading.Lock()  # of the two words below
        self._begun = 0  # gets so far
        self._left: _Left | None = None

    # --- get --------------------------------------------------------------------------------------

    def get(self, n: int = 1, timeout: Timeout = None) -> Batch:
        """Up to `n` products, waiting for the first; an empty batch at the timeout. None waits without limit.

        SiteUnreachableError if the site has not replied for `patience`, unless the queue was connected with
        `on_loss="wait"`.
        """
        seconds = self._seconds(n, timeout)
        with self._one_at_a_time:
            return finish(self._get(BLOCKING, n, seconds))

    async def get_async(self, n: int = 1, timeout: Timeout = None) -> Batch:
        """As `get`; no thread waits for it. If the task is cancelled, products that arrive afterwards go back."""
        import asyncio  # slow to load, and loaded already where this runs

        seconds = self._seconds(n, timeout)
        self._one_task = self._one_task or asyncio.Lock()
        async with self._one_task:
            try:
                return await self._get(AWAITING, n, seconds)
            except asyncio.CancelledError:
                begun = self._begun
                self._connection.sender.submit(lambda: self._let_go(begun))  # after what the task has sent
                raise

    def _seconds(self, n: int, timeout: Timeout) -> float | None:
        """The timeout in seconds, once the arguments of a get are valid."""
        seconds = timeout_of(timeout)
        if n.__class__ is not int or n < 1:
            raise not_a_number(n)
        self._check()
        return seconds

    async def _get(self, wait: Wait, n: int, seconds: float | None) -> Batch:
        begun = time.monotonic()
        until = None if seconds is None else begun + seconds
        turn = 0
        self._take_over()
        while True:
            left = WAIT_S_MAX if until is None else max(0.0, until - time.monotonic())
            batch = await self._attempt(wait, n, min(left, WAIT_S_MAX), begun, until)
            is_over = until is not None and time.monotonic() >= until
            if batch is not None and (len(batch) or is_over or self._interrupted):
                return self._hand_out(batch)
            if batch is None and not self._interrupted and self._connection.silence.is_hopeless(begun, until):
                raise self._connection.silence.error(begun)
            if batch is None and (is_over or self._interrupted):
                return self._hand_out(batch_of(_EMPTY, b"", self._connection.names))
            if batch is None:
                await self._connection.pause_by(wait, turn, until)
                turn += 1

    def get_nowait(self, n: int = 1) -> Batch:
        """Up to `n` products that wait at the station now."""
        return self.get(n, 0)

    def _hand_out(self, batch: RemoteBatch) -> RemoteBatch:
        self._interrupted = False
        if len(batch):
            self._recent.append(batch)
        return batch

    async def _attempt(
        self, wait: Wait, n: int, wait_s: float, begun: float, until: float | None
    ) -> RemoteBatch | None:
        """Ask once, or repeat the call that has no reply; None if no reply came or the site has to attach us again.

        A reply that comes after `until`, because the link is slow, is waited for by the next attempt.
        """
        if not self._attachment and not await self._attach_again(wait, until):
            return None
        number = self._getting = self._getting or self._connection.numbers.begin_get()
        try:
            if self._pending is None:
                part_bytes = self._connection.part_bytes
                call = Get(self._attachment, min(n, GET_MAX), wait_s, self._rest, self._each_s, part_bytes)
                await wait.start(self._connection.sender, lambda: self._send(call, number))
            assert self._pending is not None
            pending, sent_ns = self._pending
            if not await wait.has_ended(pending, within_s(self._connection.silence.ends_at(begun, until))):
                return None
            came = await self._whole(wait, pending, until)
        except Detached:
            self._lose()
            return None
        except Exception:
            self._end_get()
            raise
        if came is None:
            return None
        self._end_get()
        batch = batch_of(*came, self._connection.names, number, self._attachment)
        if len(batch) > n:  # the reply to an earlier get, which had asked for more
            await self._return(wait, Settle(self._attachment, number, len(batch), "nack"), until)
            return None
        return await self._without_expired(wait, batch, came[0], sent_ns, until)

    async def _whole(self, wait: Wait, pending: SlowReply, until: float | None) -> tuple[Products, bytes] | None:
        """The reply to a get, with all of its parts; None if there is none, or not all of it until then.

        The get stays as it is until everything has come: the next attempt goes on with it, and a get whose task is
        cancelled gives its products back.
        """
        if self._fetch is None:
            try:
                came = self._connection.read(pending.take(), Products, pending)
            except BaseException:
                self._pending = None
                raise
            if came is None or not came[0].download:
                self._pending = None
                return came
            self._fetch = Fetch(*came)
        try:
            whole = await self._connection.whole_by(wait, self._fetch, within_s(until))
        except SiteUnreachableError:
            return None
        except PartsLost:  # the site makes the reply again
            self._pending = self._fetch = None
            return None
        self._pending = self._fetch = None
        return whole

    def _send(self, call: Get, number: int) -> SlowReply:
        """Send a Get; it is noted in the thread that sends it, because its task may have been cancelled by then."""
        sent_ns = time.monotonic_ns()
        pending = self._connection.start_slow(call, number, call.wait_s)
        self._pending = pending, sent_ns
        return pending

    async def _without_expired(
        self, wait: Wait, batch: RemoteBatch, reply: Products, sent_ns: int, until: float | None
    ) -> RemoteBatch | None:
        """Give back what expired on the way: the station counts it as expired. None if nothing is left."""
        if not len(batch):
            return batch
        clock = self._connection.clock
        clock.note(sent_ns, reply.sent_ns, reply.waited_ns)
        now_ns = clock.now_ns() or 0
        each_s = max(1, now_ns - reply.sent_ns) / 1e9 / len(batch)
        self._each_s = (self._each_s + each_s) / 2 if self._each_s else each_s
        late = expired_in(batch, reply, now_ns)
        if not late.any():
            return batch
        places = np.flatnonzero(late).astype(np.uint32)
        call = Settle(self._attachment, batch.got, len(places), "nack", places.tobytes())
        if not await self._return(wait, call, until) or late.all():
            return None
        return part_of(batch, reply, ~late, self._connection.names)

    async def _return(self, wait: Wait, call: Settle, until: float | None) -> bool:
        """Give products back that nobody is to get; False if the site has released them all.

        If the site is silent until then, a thread goes on, so that the get ends by its timeout.
        """
        number, is_ended = self._connection.numbers.begin(), True
        try:
            await self._connection.ask_by(wait, call, Done, number=number, within_s=within_s(until))
        except SiteUnreachableError:
            if until is None:
                raise
            is_ended = False
            started(lambda: self._return_later(call, number), "give-back")
        except Detached:
            self._lose()
            return False
        finally:
            if is_ended:
                self._connection.numbers.end(number)
        return True

    def _return_later(self, call: Settle, number: int) -> None:
        try:
            self._connection.ask(call, Done, number=number)
        finally:
            self._connection.numbers.end(number)

    def _end_get(self) -> None:
        self._getting = self._rest = 0

    # --- a get whose task was cancelled -----------------------------------------------------------

    def _let_go(self, begun: int) -> None:
        """The task of a get was cancelled: end the get, and give back what was leased to it. In the sender's thread."""
        with self._leaving:
            pending = self._pending[0] if self._pending is not None else None
            if pending is None or self._begun != begun or self._detached:
                return  # nothing was sent, or the next get has taken it over
            left = self._left = _Left(pending)
            number, attachment = self._getting, self._attachment
        pending.when_ended(lambda: self._give_back(left, number, attachment))
        self._wake()

    def _take_over(self) -> None:
        """A get begins: it continues the one that was left, unless what that one got goes back already."""
        with self._leaving:
            self._begun += 1
            left, self._left = self._left, None
        if left is not None and not left.claim():
            self._pending = self._fetch = None
            self._end_get()

    def _give_back(self, left: _Left, number: int, attachment: int) -> None:
        """Give back what came for a get that was left. Without products there is nothing to do, and nothing claimed."""
        with suppress(HeadraceError):  # nobody is left to hear of it; `detach` returns what remains
            came = left.pending.take()
            reply = decode_reply(came[0]) if came is not None else None
            if isinstance(reply, Products) and reply.count and left.claim():
                call = Settle(attachment, number, reply.count, "nack")
                started(lambda: self._connection.once(call, Done), "give-back")  # this thread is Zenoh's

    # --- attach again -----------------------------------------------------------------------------

    async def _attach_again(self, wait: Wait, until: float | None) -> bool:
        number = self._attaching = self._attaching or self._connection.numbers.begin()
        try:
            call = Attach(self.station_name, self._keep_s)
            limit_s = within_s(until)
            came = await self._connection.attempt_by(wait, call, Attached, number=number, limit_s=limit_s)
        except Exception:
            self._connection.numbers.end(number)
            self._attaching = 0
            raise
        if came is None:
            return False
        self._connection.numbers.end(number)
        self._attaching = 0
        self._attachment, self._place = came[0].attachment, came[0].place
        return True

    def _lose(self) -> None:
        """The site has released our attachment, and all leases with it."""
        log.warning("station %s of site %s: the site released our leases; attaching again",
                    self.station_name, self._connection.site)  # fmt: skip
        self._end_get()
        self._fetch = None
        self._attachment = 0

    # --- acknowledge ------------------------------------------------------------------------------

    def ack(self, what: Leased, payloads: Sequence[Any] | None = None) -> None:
        """The work on these is done: a batch, a product or products that `get` returned.

        `payloads`, one for each (None: unchanged), become new revisions, which the stations behind this one see.
        """
        if payloads is None:
            finish(self._settle(BLOCKING, what, "ack"))
            return
        for batch, places, new in find_revised(self._recent, what, payloads):
            self._settle_revised(batch, places, new)

    def discard(self, what: Leased) -> None:
        """End these here: the stations behind do not get them."""
        finish(self._settle(BLOCKING, what, "discard"))

    def nack(self, what: Leased, *, failed: bool = False) -> None:
        """Give these back to the station, for any consumer. `failed` counts as a delivery; there is a limit."""
        finish(self._settle(BLOCKING, what, "failed" if failed else "nack"))

    async def _settle(self, wait: Wait, what: Leased, how: str) -> None:
        error = None
        for batch, places in find_leases(self._recent, what):
            try:
                await self._settle_places(wait, batch, places, how)
            except LeaseLostError as lost:  # the others first
                error = lost
        if error is not None:
            raise error

    async def _settle_places(self, wait: Wait, batch: Batch, places: npt.NDArray[np.uint32] | None, how: str) -> None:
        count = len(batch) if places is None else len(places)
        number = self._number_of(batch, count)
        if not count:
            return
        at = places_at_site(batch, places)
        call = Settle(self._attachment, number, count, how, None if at is None else at.tobytes())
        await self._call_for_leases(wait, call, b"")
        if places is None and self._recent and self._recent[-1] is batch:
            self._recent.pop()

    def _settle_revised(self, batch: Batch, places: npt.NDArray[np.uint32], payloads: list[Any]) -> None:
        parts = [payload for payload in payloads if payload is not None]
        check_payloads(parts)
        sizes = [-1 if payload is None else memoryview(payload).nbytes for payload in payloads]
        number = self._number_of(batch, len(places))
        at = places_at_site(batch, places)
        assert at is not None
        call = Revise(self._attachment, number, at.tobytes(), np.array(sizes, np.int64).tobytes())
        finish(self._call_for_leases(BLOCKING, call, b"".join(parts)))

    def _number_of(self, batch: Batch, count: int) -> int:
        """The number of the Get that returned a batch; LeaseLostError if its attachment has ended."""
        self._check()
        if not count:
            return 0
        if not isinstance(batch, RemoteBatch) or not batch.got:
            raise not_leased(count, count, self.station_name)
        if batch.attachment != self._attachment:
            raise self._lost()
        return batch.got

    async def _call_for_leases(self, wait: Wait, call: Settle | Revise, payload: bytes) -> None:
        try:
            await self._connection.once_by(wait, call, Done, payload)
        except Detached:
            self._lose()
            raise self._lost() from None

    def _check(self) -> None:
        check_attached(self.station_name, self._detached, self._pid)

    def _lost(self) -> Exception:
        self._check()
        return LeaseLostError(
            f"site {self._connection.site} has released the leases of this consumer of {self.station_name!r}: it was "
            f"restarted, or the connection was broken for longer than {format_age(self._keep_s)}",
            "call get again: products that are not acknowledged are delivered again; an acknowledgement that was under "
            "way may have been stored, or not; to bridge longer breaks: station.attach(keep=…)",
        )

    # --- iterate, and put new products ------------------------------------------------------------

    def __iter__(self) -> Iterator[Product]:
        """One product after another, without end; each is acknowledged when you ask for the next.

        A `break` acknowledges nothing: the product in hand stays leased. Acknowledge it yourself if its work is done;
        otherwise it goes back to the station when the consumer detaches, at the end of its `with`.
        """
        for batch in self.batches(1):
            yield batch[0]

    def batches(self, n: int = 100, timeout: Timeout = None) -> Iterator[Batch]:
        """Batches of up to `n`; each is acknowledged when you ask for the next. Ends after an empty `timeout`.

        What you settle yourself in the loop stays as you settled it. A `break` acknowledges nothing: the batch in hand
        stays leased until you acknowledge it, or goes back when the consumer detaches.
        """
        return iterate(self.get, self._ack_rest, n, timeout)

    async def __aiter__(self) -> AsyncIterator[Product]:
        """As `__iter__`, `break` included."""
        async for batch in self.batches_async(1):
            yield batch[0]

    def batches_async(self, n: int = 100, timeout: Timeout = None) -> AsyncIterator[Batch]:
        """As `batches`, for `async for`, `break` included."""
        return iterate_async(self.get_async, self._ack_rest, n, timeout)

    def _ack_rest(self, batch: Batch) -> None:
        """Acknowledge what the loop has not settled itself, together with the next get."""
        self._check()
        if isinstance(batch, RemoteBatch) and batch.attachment == self._attachment:
            self._rest = batch.got

    def new(self, count: int = 1, size: int = 0, *, feed: str, ident: str = "") -> list[Draft]:
        """Products to be filled in and put: `count` drafts with `size` zero bytes each."""
        return new_drafts(count, size, feed, ident)

    def put(self, drafts: Sequence[Draft]) -> Receipt:
        """Store drafts from `new` as one batch of new products; duplicates among them are not stored again."""
        return self._queue.put_many(**draft_columns(drafts))

    # --- life -------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Make a `get` that waits in another thread return an empty batch."""
        self._interrupted = True
        self._wake()

    def _wake(self) -> None:
        """Make a `get` that waits in another thread look again whether to stop."""
        self._connection.send(Interrupt(self._attachment))

    def statistics(self) -> ConsumerStatistics:
        self._check()
        try:
            told = self._connection.ask(DescribeConsumer(self._attachment), Details)[0].consumers
        except Detached:
            raise self._lost() from None
        assert told
        return told[0]

    def detach(self, *, failed: bool = False) -> None:
        """Leave the station; unacknowledged products go back to its input. `failed`: as in `nack`."""
        finish(self._leave(BLOCKING, died=False, failed=failed))

    def abandon(self) -> None:
        """Leave as a dead consumer does: its products are restored by the station's terms, and count as delivered."""
        finish(self._leave(BLOCKING, died=True, failed=False))

    async def _leave(self, wait: Wait, *, died: bool, failed: bool) -> None:
        if self._detached or self._pid != os.getpid():
            return
        self._detached = True
        self._recent.clear()
        if self._pending is not None:
            self._pending[0].cancel()
        has_ended = not wait.is_async and self._one_at_a_time.acquire(timeout=_LEAVE_S)  # a get of another thread
        try:
            with suppress(SiteUnreachableError, QueueClosedError, Detached):
                if self._attachment:
                    call = Detach(self._attachment, died, failed)
                    await self._connection.ask_by(wait, call, Done, patience_s=_LEAVE_S)
            self._connection.numbers.end(self._attaching)
        finally:
            if has_ended:
                self._one_at_a_time.release()

    async def __aenter__(self) -> "RemoteConsumer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave(AWAITING, died=False, failed=is_failure(error))

    def __enter__(self) -> "RemoteConsumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach(failed=is_failure(error))

    def __del__(self) -> None:
        """Dropped without `detach`: tell the site, and do not wait for its reply."""
        if not getattr(self, "_detached", True) and not sys.is_finalizing():
            self._detached = True
            self._connection.numbers.end(self._attaching)
            if self._attachment:
                self._connection.send(Detach(self._attachment, died=True))

    def __repr__(self) -> str:
        return f"<RemoteConsumer {self._place} of {self.station_name!r}{', detached' if self._detached else ''}>"
