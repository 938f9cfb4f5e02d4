"""Puts: what all puts of a remote client have in common, those of its queue and those of its suppliers.

A put whose reply is lost is repeated, and stored once. While a blocking station is full the site replies that nothing
was stored yet, and the put is made again, until its timeout; the log says for whom it waits. A task that is cancelled
makes no further attempt; what it has sent may be stored.

A put that ended without a reply can be made again as the same put (`SiteUnreachableError.retry`). Its number tells the
site that it is the same call, as long as the site runs and both remember it. A site that was restarted looks for the
products in what was stored since the put began (server/repeated.py).
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from headrace.errors import BlockedError, FabricMessageError, PayloadTooLargeError, SiteUnreachableError
from headrace.log.append import Duplicate, Receipt
from headrace.log.columns import PutColumns, Texts
from headrace.log.seams import Timeout
from headrace.log.waits import Waits
from headrace.product.put import PutFacts
from headrace.remote.client.arguments import put_call, put_many_call, timeout_of
from headrace.remote.client.connection import GRACE_S, Connection, NotYet, PartsLost
from headrace.remote.client.waiting import BLOCKING, Wait, finish
from headrace.remote.protocol.calls import PutBatch, PutMany, PutOne, PutPart
from headrace.remote.protocol.envelope import CALL_BYTES_MAX
from headrace.remote.protocol.replies import Number, PutOutcome
from headrace.units import format_size

Outcome = TypeVar("Outcome", int | Duplicate, Receipt)

log = logging.getLogger("headrace.queue")


@dataclass(slots=True)
class Put(Generic[Outcome]):
    """One put, however often it is made: the call, what its reply means, and what is known of it so far."""

    call: PutOne | PutMany | PutBatch
    payload: bytes
    reply: type[Number] | type[PutOutcome]
    outcome: Callable[[Any], Outcome]  # of a reply
    number: int = 0  # of a call that has no reply yet; 0: there is none
    since: int = 0  # where in the queue its products may be; 0: it was never made
    upload: bytes = b""  # under which its payload was sent in parts; empty: it goes with the call
    begun_s: float = field(default_factory=time.monotonic)  # the first attempt


class Puts:
    """The puts of one queue or supplier. Several threads may use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._waits = connection, Waits()

    def put(self, put: Put[Outcome], timeout: Timeout = None) -> Outcome:
        """Make the put, and repeat it while a blocking station is full."""
        return finish(self.put_by(BLOCKING, put, timeout))

    async def put_by(self, wait: Wait, put: Put[Outcome], timeout: Timeout) -> Outcome:
        """As `put`, waiting as `wait` does."""
        connection, seconds, begun_s = self._connection, timeout_of(timeout), time.monotonic()
        turn = 0
        while True:
            left = None if seconds is None else max(0.0, begun_s + seconds - time.monotonic())
            resumes = bool(put.number)
            try:
                reply = await self._attempt(wait, put, left, turn > 0)
                connection.note_next(_end_of(reply))
                self._waits.end("put")
                return put.outcome(reply)
            except SiteUnreachableError as error:
                error.retry = partial(self.put, put)
                error.has_patience = not connection.silence.is_hopeless(put.begun_s, None)
                raise
            except PartsLost:  # the site was restarted, or had too many: nothing was stored
                put.upload = b""
            except BlockedError as error:
                if resumes and (left is None or left > 0):  # its first attempt had less time
                    continue
                self._say(error.waits_for, begun_s)
                raise
            except NotYet as blocked:
                self._say(blocked.waits_for, begun_s)
                put.since = 0
                await connection.pause_by(wait, turn, None if seconds is None else begun_s + seconds)
                turn += 1

    async def _attempt(self, wait: Wait, put: Put[Any], left_s: float | None, again: bool) -> Number | PutOutcome:
        """Make the call until it has a reply; without one, its number stays valid for the next attempt."""
        connection = self._connection
        within_s = None if left_s is None else left_s + GRACE_S
        upload, payload = await self._send_parts(wait, put, within_s)
        begun, put.since = put.since, put.since or connection.known_next
        call = msgspec.structs.replace(put.call, timeout_s=left_s, again=again, since=begun, upload=upload)
        number, put.number = connection.numbers.resume(put.number) or connection.numbers.begin(), 0
        sent = time.monotonic()
        try:
            reply: Number | PutOutcome
            reply, _ = await connection.ask_by(
                wait, call, put.reply, payload, number=number, within_s=within_s,
                repeated=lambda call: msgspec.structs.replace(call, since=put.since),
            )  # fmt: skip
        except SiteUnreachableError:
            put.number = number
            connection.numbers.park(number)
            raise
        except BaseException:
            connection.numbers.end(number)
            raise
        connection.numbers.end(number)
        if payload and not again:
            connection.part.note(len(payload), time.monotonic() - sent)
        return reply

    async def _send_parts(self, wait: Wait, put: Put[Any], within_s: float | None) -> tuple[bytes, bytes]:
        """Send a large payload ahead in parts; the id under which the site has it, and what is left to send.

        Each part has the patience of a call. A put that is made again goes on where the parts ended.
        """
        connection, total = self._connection, len(put.payload)
        if total > CALL_BYTES_MAX and not connection.has_parts:
            raise PayloadTooLargeError(
                f"a payload of {total} bytes exceeds the {format_size(CALL_BYTES_MAX)} that one message can carry",
                "update the site, or put it on the machine of the queue",
            )
        if not connection.has_parts or (total <= connection.part.bytes and not put.upload):
            return b"", put.payload
        put.upload = put.upload or os.urandom(16)
        until = None if within_s is None else time.monotonic() + within_s
        view, offset = memoryview(put.payload), 0
        while offset < total:
            begun, part = time.monotonic(), view[offset : offset + connection.part.bytes]
            left_s = None if until is None else max(0.0, until - begun)
            call = PutPart(put.upload, offset, total)
            try:
                reply, _ = await connection.ask_by(wait, call, Number, bytes(part), within_s=left_s)
            except SiteUnreachableError:  # which names the size of the part
                raise connection.silence.error(begun, total) from None
            if reply.value - offset == len(part):
                connection.part.note(len(part), time.monotonic() - begun)
            elif not 0 <= reply.value <= total or reply.value == offset:
                raise FabricMessageError(f"site {connection.site} takes no part of a put", "update the site")
            offset = reply.value
        return put.upload, b""

    def _say(self, waits_for: str, begun_s: float) -> None:
        """A put waits: log for whom, now and then."""
        if self._waits.is_due("put", None, begun_s):
            log.warning("waiting for %s, at site %s", waits_for or "a blocking station", self._connection.site)


def _end_of(reply: Number | PutOutcome) -> int:
    """The queue's next sequence was at least this when the site replied."""
    return abs(reply.value) + 1 if isinstance(reply, Number) else reply.first + reply.stored


# --- the puts ---------------------------------------------------------------------------------------


def one_put(where: Any, payload: Any, feed: Any, ident: Any, facts: PutFacts, dedup: str) -> Put[int | Duplicate]:
    """A put of one product; `dedup` is the queue's rule."""
    call, is_own = put_call(where, payload, feed, ident, facts, dedup)
    held = payload if isinstance(payload, bytes) else memoryview(payload).tobytes()
    return Put(call, held, Number, partial(outcome_of, is_own=is_own))


def many_put(where: Any, held: list[Any], feed: Texts, ident: Texts, facts: PutColumns, dedup: str) -> Put[Receipt]:
    """A put of many products as one."""
    call, payload, is_own = put_many_call(where, held, feed, ident, facts, dedup)
    return Put(call, payload, PutOutcome, partial(receipt_of, is_own=is_own))


def outcome_of(reply: Number, is_own: bool) -> int | Duplicate:
    """A duplicate of a product that nobody else can have put is that product: an earlier attempt has stored it."""
    return reply.value if reply.value > 0 else -reply.value if is_own else Duplicate(-reply.value)


def receipt_of(reply: PutOutcome, is_own: Sequence[bool] = ()) -> Receipt:
    """As `outcome_of`, for many products."""
    if reply.outcomes is None:
        return Receipt(reply.products, reply.stored, reply.first)
    outcomes = np.frombuffer(reply.outcomes, np.int64)
    if any(is_own):
        outcomes = np.where(is_own, np.abs(outcomes), outcomes)
    new = outcomes[outcomes > 0]
    return Receipt(reply.products, len(new), int(new.min()) if len(new) else 0, tuple(outcomes.tolist()))
