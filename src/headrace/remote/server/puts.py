"""Puts of remote clients: from a call to the log, and the puts that wait for a blocking station.

`decode_put_many` validates the columns of a call and splits its payloads; the bytes of properties go to the log as they
came. A put is tried at once. If a station is full and the client has time left, the put waits in a thread of its own
(`BlockedPuts`). There are a few such threads, and each waits a few seconds at most: the client then hears that nothing
was stored yet, and calls again. So a client that has disconnected leaves no put behind that is stored hours later.
"""

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.errors import BlockedError, FabricMessageError, HeadraceError
from headrace.guard import FAILURES, OnceThread
from headrace.log.append import Receipt
from headrace.log.columns import Columns, unpacked
from headrace.remote.protocol.calls import PutMany, decode_columns
from headrace.remote.protocol.replies import PutOutcome, Reply, StillBlocked, failure_of
from headrace.remote.server.pending_call import PendingCall
from headrace.remote.server.principal import Principal

BLOCKED_MAX = 32  # at the same time
BLOCKED_OF_ONE_MAX = 8  # of one principal, where principals have quotas
_WAIT_S = 5.0
_FIRST_WAIT_S = 1.0
_SMALL_BYTES = 4096  # a payload up to this size is cheaper to copy than to view

Store = Callable[[float], Reply]  # store within so many seconds
Payloads = list[bytes | memoryview]

log = logging.getLogger("headrace.remote.server")


def decode_put_many(call: PutMany, payload: bytes | memoryview) -> tuple[Payloads, Columns]:
    """The payloads and columns of a call, validated."""
    received = decode_columns(call.columns)
    payloads = _split(payload, call.lengths)
    return payloads, unpacked(len(payloads), received.feed, received.ident, received.facts)


def _split(payload: bytes | memoryview, lengths: bytes) -> Payloads:
    """Payloads by their lengths."""
    if len(lengths) % 4:
        raise FabricMessageError("the lengths of a put_many are truncated", "nothing was stored")
    ends = np.cumsum(np.frombuffer(lengths, np.uint32), dtype=np.uint64)
    if (int(ends[-1]) if len(ends) else 0) != len(payload):
        raise FabricMessageError(f"the payloads of a put_many do not have {len(payload)} bytes", "nothing was stored")
    places = [0, *ends.tolist()]
    whole: Any = payload if len(payload) <= _SMALL_BYTES * len(ends) else memoryview(payload)
    return [whole[a:b] for a, b in itertools.pairwise(places)]


def outcome_of(receipt: Receipt) -> PutOutcome:
    """A receipt as it travels."""
    outcomes = None
    if receipt.stored != receipt.products:
        sequences = receipt.sequences.astype(np.int64)
        outcomes = np.where(receipt.duplicates, -sequences, sequences).tobytes()
    return PutOutcome(receipt.products, receipt.stored, receipt.first, outcomes)


class BlockedPuts:
    """`store` may be called by any thread."""

    def __init__(self) -> None:
        self._room = threading.BoundedSemaphore(BLOCKED_MAX)
        self._of = Counter[Principal]()  # how many puts of each principal wait
        self._lock = threading.Lock()

    def store(self, pending: PendingCall, store: Store, timeout_s: float | None, again: bool) -> None:
        """Finish the call when the products are stored or refused; errors other than BlockedError are raised.

        The first wait of a put, not `again`, is short, so that the client hears early for whom it waits.
        """
        try:
            reply = store(0.0)
        except BlockedError as error:
            if timeout_s == 0:
                raise
            if self._enter(pending.client.principal):
                self._wait_in_thread(pending, store, timeout_s, _WAIT_S if again else _FIRST_WAIT_S)
            else:
                pending.finish(StillBlocked(error.waits_for))
            return
        pending.finish(reply)

    def _enter(self, principal: Principal) -> bool:
        with self._lock:
            has_room = not principal.has_limits or self._of[principal] < BLOCKED_OF_ONE_MAX
            may = has_room and self._room.acquire(blocking=False)
            if may:
                self._of[principal] += 1
            return may

    def _leave(self, principal: Principal) -> None:
        with self._lock:
            self._of[principal] -= 1
            if not self._of[principal]:
                del self._of[principal]
            self._room.release()

    def _wait_in_thread(self, pending: PendingCall, store: Store, timeout_s: float | None, wait_s: float) -> None:
        try:
            wait = OnceThread(self._wait, "headrace-blocked", args=(pending, store, timeout_s, wait_s))
            wait.start()
        except RuntimeError:  # no more threads: as if no room
            self._leave(pending.client.principal)
            pending.finish(StillBlocked())

    def _wait(self, pending: PendingCall, store: Store, timeout_s: float | None, wait_s: float) -> None:
        is_last = timeout_s is not None and timeout_s <= wait_s
        try:
            reply = store(wait_s if timeout_s is None else min(timeout_s, wait_s))
        except BlockedError as error:
            reply = failure_of(error) if is_last else StillBlocked(error.waits_for)
        except HeadraceError as error:
            reply = failure_of(error)
        except Exception as error:  # noqa: BLE001 the client hears it
            FAILURES.note("headrace-blocked", error)
            reply = failure_of(error)
        finally:
            self._leave(pending.client.principal)
        pending.finish(reply)
