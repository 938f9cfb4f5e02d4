"""Puts: what all puts of a remote client have in common, those of its queue and those of its suppliers.

A put whose reply is lost is repeated, and executed once. While a blocking station is full the site replies that nothing
was stored yet, and the put is made again, until its timeout; the log says for whom it waits. A task that is cancelled
makes no further attempt; what it has sent may be stored.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from headrace.errors import BlockedError
from headrace.log.append import Duplicate, Receipt
from headrace.log.seams import Timeout
from headrace.log.waits import Waits
from headrace.remote.client.arguments import timeout_of
from headrace.remote.client.connection import Connection, NotYet
from headrace.remote.client.waiting import BLOCKING, Wait, finish
from headrace.remote.protocol.calls import PutBatch, PutMany, PutOne
from headrace.remote.protocol.replies import Number, PutOutcome

Put = PutOne | PutMany | PutBatch
Putting = TypeVar("Putting", Number, PutOutcome)

_GRACE_S = 0.5  # beyond the timeout, for the reply of a site that has waited until then

log = logging.getLogger("headrace.queue")


class Puts:
    """The puts of one queue or supplier. Several threads may use it."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._waits = connection, Waits()

    def put(self, call: Put, payload: bytes, kind: type[Putting], timeout: Timeout) -> Putting:
        """Make the call, and repeat it while a blocking station is full."""
        return finish(self.put_by(BLOCKING, call, payload, kind, timeout))

    async def put_by(self, wait: Wait, call: Put, payload: bytes, kind: type[Putting], timeout: Timeout) -> Putting:
        """As `put`, waiting as `wait` does."""
        connection, seconds, begun_s = self._connection, timeout_of(timeout), time.monotonic()
        since, turn = connection.known_next, 0

        def repeated(call: Any) -> Any:
            """An earlier run of the site may have stored it; a queue without duplicates does not recognise it."""
            return msgspec.structs.replace(call, since=since) if connection.dedup == "none" else call

        while True:
            left = None if seconds is None else max(0.0, begun_s + seconds - time.monotonic())
            attempt = msgspec.structs.replace(call, timeout_s=left, again=turn > 0)
            within_s = None if left is None else left + _GRACE_S
            try:
                reply, _ = await connection.once_by(wait, attempt, kind, payload, within_s=within_s, repeated=repeated)
                connection.known_next = max(since, abs(reply.value if isinstance(reply, Number) else reply.first))
                self._waits.end("put")
                return reply
            except BlockedError as error:
                self._say(error.waits_for, begun_s)
                raise
            except NotYet as blocked:
                self._say(blocked.waits_for, begun_s)
                await connection.pause_by(wait, turn)
                turn += 1

    def _say(self, waits_for: str, begun_s: float) -> None:
        """A put waits: log for whom, now and then."""
        if self._waits.is_due("put", None, begun_s):
            log.warning("waiting for %s, at site %s", waits_for or "a blocking station", self._connection.site)


def bytes_of(payload: Any) -> bytes:
    return payload if isinstance(payload, bytes) else memoryview(payload).tobytes()


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
