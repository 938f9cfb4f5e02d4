"""ServedConsumer: a consumer that a site holds for a remote client.

The calls of a client are executed in the order in which they arrived, one at a time, in the executor that serves all
remote consumers. None of them waits there: a Get that finds nothing joins the gets that wait (gets.py), and calls that
arrive meanwhile are executed. Replies are sent when the next call may be executed already, because a client whose link
is slow takes its time to receive them. Batches are kept until they are settled, because only they have the leases. The
last Get is kept until the next one, because the client may repeat it.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import FabricError, FabricMessageError, HeadraceError, LeaseLostError
from headrace.link.fair import Busy
from headrace.product.batch import Batch
from headrace.remote.protocol.calls import Get, Revise, Settle
from headrace.remote.protocol.envelope import CALL_BYTES_MAX
from headrace.remote.protocol.fields import PAGE_BYTES_MAX
from headrace.remote.protocol.products import arrive_in_time, products_of
from headrace.remote.protocol.replies import Done, NotAttached, Products, failure_of
from headrace.remote.server.gets import NotYet, Send, WaitingGet, WaitingGets
from headrace.remote.server.pending_call import PendingCall
from headrace.station import Consumer
from headrace.station.leases import not_leased
from headrace.station.served import (
    count_waiting,
    deadlines,
    get_in_time,
    never_call,
    pacing_of,
    revise,
    settle,
    terms_number,
)

BATCHES_MAX = 20_000  # got and not settled
_PAGE_S = 2.0  # that a reply may take on a slow link: so long it holds up a thread of the site
_FIRST_BYTES = 1 << 20  # of a reply over a link whose speed is unknown
_MARGIN = 1.5  # for a link that is sometimes slower than lately
_CALLS_AT_ONCE = 32  # of one consumer, before others have their turn

log = logging.getLogger("headrace.remote.server")


class _LeasedBatch:
    """A batch whose first products are leased to the client, and which of these are settled."""

    __slots__ = ("batch", "settled")

    def __init__(self, batch: Batch, count: int) -> None:
        self.batch, self.settled = batch, np.zeros(count, np.bool_)

    @property
    def all(self) -> npt.NDArray[np.uint32] | None:
        """All places that the client got; None if that is the whole batch."""
        count = len(self.settled)
        return None if count == len(self.batch) else np.arange(count, dtype=np.uint32)

    @property
    def left(self) -> npt.NDArray[np.uint32] | None:
        """The places that are not settled; None if that is the whole batch."""
        return np.flatnonzero(~self.settled).astype(np.uint32) if self.settled.any() else self.all


class ServedConsumer:
    """Serves until `end`, which detaches the consumer."""

    def __init__(
        self, consumer: Consumer, keep_s: float, gets: WaitingGets, check: Callable[[], None] = lambda: None,
        turn: Hashable = None,
    ) -> None:  # fmt: skip
        """`check` raises AccessDeniedError if the client may not consume from the station on its terms of now.

        `turn` says with whom the consumer shares its turns in the threads that execute calls.
        """
        self.consumer, self.keep_s, self.turn, self._check = consumer, keep_s, turn, check
        self._checked = terms_number(consumer)  # of the terms that `check` has allowed
        self._gets = gets
        never_call(consumer)
        self._leased: dict[int, _LeasedBatch] = {}  # by the number of the Get
        self._last: PendingCall | None = None  # the last Get
        self._calls: deque[PendingCall] = deque()
        self._lock = threading.Lock()  # of the calls, and of the two words below
        self._is_running = False  # a thread executes calls, or is about to
        self._ended = False
        self._turn = threading.Lock()  # held by the thread that uses the consumer, and of the two words below
        self._get: WaitingGet | None = None  # has no reply yet
        self._interrupted = False

    # --- calls ------------------------------------------------------------------------------------

    def accept(self, get: PendingCall) -> PendingCall | None:
        """Accept a Get; if it is a repetition, return the one accepted before. Busy while another is executed."""
        last = self._last
        if last is not None and get.number <= last.number:
            if get.number < last.number:
                raise FabricMessageError("a get that had ended was repeated", "number calls upwards")
            return last
        if last is not None and not last.is_finished:
            raise Busy
        self._last = get
        return None

    def submit(self, pending: PendingCall) -> None:
        """Execute a call after those submitted before."""
        with self._lock:
            if not self._ended:
                self._calls.append(pending)
            if self._ended or self._is_running:
                is_new = False
            else:
                is_new = self._is_running = True
        if self._ended:
            self._refuse_calls(pending)
        elif is_new:
            self._run_soon()

    def _run_soon(self) -> None:
        try:
            self._gets.run(self.turn, self._run)
        except Busy:  # the site ends
            self._refuse_calls()

    def _refuse_calls(self, *more: PendingCall) -> None:
        with self._lock:
            left = [*self._calls, *more]
            self._calls.clear()
        for pending in left:
            pending.finish(NotAttached())

    def interrupt(self) -> None:
        """End the Get that waits, or the next one if it finds nothing, with an empty reply."""
        with self._turn:
            get = self._get
            if get is None:
                self._interrupted = True
            else:
                get.ends = True
        if get is not None:
            self._gets.serve_later(get)

    def end(self, died: bool = False, failed: bool = False) -> None:
        """Detach: after return the leases are back. If the client `died`, the station's terms decide about them.

        `failed` counts as a delivery.
        """
        with self._lock:
            if self._ended:
                return
            self._ended = True
        with self._turn:
            get, self._get = self._get, None
            self._leased.clear()
            try:
                if died:
                    self.consumer.abandon()
                else:
                    self.consumer.detach(failed=failed)
            except Exception:  # calls that wait still get their reply
                log.exception("detaching a remote consumer failed")
        if get is not None:
            self._gets.remove(get)
            get.pending.finish(Products(0, 0))
        self._refuse_calls()

    # --- in the executor --------------------------------------------------------------------------

    def _run(self) -> None:
        """Execute the calls that have arrived; let other consumers have their turn now and then."""
        for _ in range(_CALLS_AT_ONCE):
            with self._lock:
                if not self._calls:
                    self._is_running = False
                    return
                pending = self._calls.popleft()
            self._execute(pending)
        self._run_soon()

    def _execute(self, pending: PendingCall) -> None:
        with self._turn:
            send = self._perform(pending) if not self._ended else partial(pending.finish, NotAttached())
            get = self._get
        if send is not None:
            send()
        if get is not None:  # the call is a Get, or a get thread may have passed over one because of this call
            self._gets.serve(get)

    def _perform(self, pending: PendingCall) -> Send | None:
        """Execute a call; what sends its reply. None for a Get that has still to be tried."""
        call = pending.call
        try:
            if isinstance(call, Get):
                self._begin_get(pending, call)
                return None
            if isinstance(call, Settle):
                self._settle(call)
            elif isinstance(call, Revise):
                self._revise(pending, call)
        except HeadraceError as error:
            return partial(pending.finish, failure_of(error))
        except Exception as error:  # the client gets the error; the thread goes on
            log.exception("a call of a remote consumer failed")
            return partial(pending.finish, failure_of(error))
        return partial(pending.finish, Done())

    def _begin_get(self, pending: PendingCall, call: Get) -> None:
        if call.rest:
            self._ack_rest(call.rest)
        if len(self._leased) >= BATCHES_MAX:
            raise FabricError(
                f"this consumer holds {BATCHES_MAX} batches that are not acknowledged", "acknowledge them first"
            )
        self._get = WaitingGet(self, pending, call)
        self._get.ends, self._interrupted = self._interrupted, False

    # --- get, in any thread -----------------------------------------------------------------------

    def is_waiting(self, get: WaitingGet) -> bool:
        """Whether it has no reply yet."""
        return self._get is get

    def deliver(self, get: WaitingGet, *, at_once: bool) -> Send | NotYet:
        """Lease products to a get, if there are some; what sends its reply. The caller sends it, holding no lock.

        With `at_once`, do not wait for a thread that executes another call.
        """
        if not self._turn.acquire(blocking=not at_once):
            return NotYet.BUSY
        try:
            if self._get is not get:
                return _do_nothing  # it was answered meanwhile
            begun_s, principal = time.thread_time(), get.pending.client.principal
            outcome = self._try(get)
            principal.spend("selection_s", time.thread_time() - begun_s)
            if isinstance(outcome, NotYet):
                return outcome
            self._get = None
            return outcome
        finally:
            self._turn.release()

    def _try(self, get: WaitingGet) -> Send | NotYet:
        pending = get.pending
        try:
            self._check_terms()
            if not get.is_due and not self._has_filled(get):
                return NotYet.FILLING if get.filling_until is not None else NotYet.EMPTY
            is_due = get.is_due
            ahead_s = get.call.each_s * _MARGIN
            batch = get_in_time(self.consumer, get.call.n, 0.0, ahead_s)
            self._gets.scans.request(self.consumer)
            if not len(batch) and not is_due:
                return NotYet.EMPTY
            self._check_batch(batch)
            count = self._fit(batch, ahead_s)
        except HeadraceError as error:
            return partial(pending.finish, failure_of(error))
        except Exception as error:  # the client gets the error; the thread goes on
            log.exception("a get of a remote consumer failed")
            return partial(pending.finish, failure_of(error))
        if count:
            self._leased[pending.number] = _LeasedBatch(batch, count)
        return lambda: pending.finish_with(lambda: self._reply(pending, batch, count))

    def _check_terms(self) -> None:
        """The station may hand out more than before, and the client may not be allowed to have that."""
        number = terms_number(self.consumer)
        if number != self._checked:
            self._check()
            self._checked = number

    def _check_batch(self, batch: Batch) -> None:
        """The terms may have changed while the batch was leased; it goes back if the client may not have it."""
        try:
            self._check_terms()
        except HeadraceError:
            settle(self.consumer, batch, None, "nack")
            raise

    def _has_filled(self, get: WaitingGet) -> bool:
        """Pacing: once a product waits, give the batch time to fill; once for each get."""
        pacing_s = pacing_of(self.consumer)
        if not pacing_s or get.is_filled:
            return True
        waiting, is_enough = count_waiting(self.consumer, get.call.n)
        if waiting and get.filling_until is None:
            get.filling_until = time.monotonic() + pacing_s
        get.is_filled = is_enough or (get.filling_until is not None and time.monotonic() >= get.filling_until)
        return get.is_filled

    def _reply(self, pending: PendingCall, batch: Batch, count: int) -> tuple[Products, bytes]:
        """A batch, with what the client needs to know which of its products expire on the way."""
        reply, records = products_of(batch, batch.next, count, pending.client.access.rewrite(self._gets.queue))
        now_ns, timeout_ns, stop_ns = deadlines(self.consumer)
        more = {"sent_ns": now_ns, "waited_ns": pending.waited_ns, "timeout_ns": timeout_ns, "stop_ns": stop_ns}
        reply = msgspec.structs.replace(reply, **more)
        assert isinstance(pending.call, Get)
        return self._gets.downloads.first_part(pending.client, reply, records, pending.call.part_bytes)

    def _ack_rest(self, number: int) -> None:
        """Acknowledge what the client's loop has not settled itself; if a lease is lost, it is delivered again."""
        leased = self._leased.pop(number, None)
        if leased is not None:
            try:
                settle(self.consumer, leased.batch, leased.left, "ack")
            except LeaseLostError as error:
                log.warning("acknowledging for a remote consumer: %s", error)

    def _fit(self, batch: Batch, each_s: float) -> int:
        """How many products of a batch fit into one reply, and arrive in time; give back the others."""
        if len(batch) == 0:
            return 0
        sizes = np.cumsum(batch.sizes, dtype=np.uint64)
        count = min(
            len(batch), int(np.searchsorted(sizes, PAGE_BYTES_MAX if each_s else min(_FIRST_BYTES, PAGE_BYTES_MAX))) + 1
        )
        now_ns, timeout_ns, _ = deadlines(self.consumer)
        if each_s:
            count = min(count, max(1, int(_PAGE_S / each_s)))
        if timeout_ns and each_s:
            count = min(count, arrive_in_time(batch, now_ns, timeout_ns, int(each_s * 1e9)))
        if count < len(batch):
            settle(self.consumer, batch, np.arange(count, len(batch), dtype=np.uint32), "nack")
        if int(sizes[0]) > CALL_BYTES_MAX:
            settle(self.consumer, batch, np.arange(count, dtype=np.uint32), "failed")
            raise FabricError(
                f"product {batch.sequences[0]} has {sizes[0]} bytes, more than one message can carry",
                "get it on the machine of the queue",
            )
        return count

    def _settle(self, call: Settle) -> None:
        places = None if call.places is None else _numbers(call.places, np.uint32)
        leased = self._find(call.got, call.count)
        try:
            settle(self.consumer, leased.batch, leased.all if places is None else places, call.how)
        finally:
            self._note_settled(call.got, leased, places)

    def _revise(self, pending: PendingCall, call: Revise) -> None:
        places, sizes = _numbers(call.places, np.uint32), _numbers(call.lengths, np.int64)
        leased = self._find(call.got, len(places))
        if len(sizes) != len(places) or (len(places) and int(places.max()) >= len(leased.batch)):
            raise FabricError("the places and payloads of a call do not match", "nothing was acknowledged")
        feeds = leased.batch.feeds
        pending.client.access.check_publish({feeds[place] for place in places[sizes >= 0].tolist()})
        payloads = _split(bytes(pending.payload), sizes.tolist())
        revise(self.consumer, leased.batch, places, payloads)
        self._note_settled(call.got, leased, places)

    def _find(self, number: int, count: int) -> _LeasedBatch:
        leased = self._leased.get(number)
        if leased is None:
            raise not_leased(count, count, self.consumer.station_name)
        return leased

    def _note_settled(self, number: int, leased: _LeasedBatch, places: npt.NDArray[np.uint32] | None) -> None:
        """Release a batch once all its products are settled."""
        if places is None:
            leased.settled[:] = True
        else:
            leased.settled[places[places < len(leased.settled)]] = True
        if leased.settled.all():
            self._leased.pop(number, None)


def _numbers(data: bytes, kind: Any) -> Any:
    if len(data) % np.dtype(kind).itemsize:
        raise FabricMessageError("the places of a call are truncated", "nothing was acknowledged")
    return np.frombuffer(data, kind)


def _split(payload: bytes, sizes: list[int]) -> list[bytes | None]:
    """Payloads by their sizes; None for -1."""
    parts: list[bytes | None] = []
    place = 0
    for size in sizes:
        parts.append(None if size < 0 else payload[place : place + size])
        place += max(0, size)
    if place != len(payload):
        raise FabricError(f"payloads of {place} bytes came with {len(payload)} bytes", "nothing was acknowledged")
    return parts


def _do_nothing() -> None:
    """Send nothing: another thread has replied."""
