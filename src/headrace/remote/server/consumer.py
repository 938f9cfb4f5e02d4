"""ServedConsumer: a consumer that a site holds for a remote client, with a thread of its own.

The thread executes the client's calls in the order in which they arrived. While it waits for products it sleeps in the
kernel, as any consumer does, and sends products from there without another step. Batches are kept until they are
settled, because only they have the leases. The last Get is kept until the next one, because the client may repeat it.
"""

import logging
import queue as stdlib_queue
import threading
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import FabricError, FabricMessageError, HeadraceError, LeaseLostError
from headrace.product.batch import Batch
from headrace.remote.protocol.calls import Get, Revise, Settle
from headrace.remote.protocol.envelope import CALL_BYTES_MAX
from headrace.remote.protocol.fields import PAGE_BYTES_MAX
from headrace.remote.protocol.products import arrive_in_time, products_of
from headrace.remote.protocol.replies import Done, NotAttached, Products, failure_of
from headrace.remote.server.pending_call import Busy, PendingCall
from headrace.station import Consumer
from headrace.station.consumer import deadlines, get_in_time, revise, settle
from headrace.station.leases import not_leased

BATCHES_MAX = 20_000  # got and not settled
_MARGIN = 1.5  # for a link that is sometimes slower than lately

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
    """Runs until `end`, which detaches the consumer."""

    def __init__(self, consumer: Consumer, keep_s: float) -> None:
        self.consumer, self.keep_s = consumer, keep_s
        self._leased: dict[int, _LeasedBatch] = {}  # by the number of the Get
        self._last: PendingCall | None = None  # the last Get
        self._calls: stdlib_queue.SimpleQueue[PendingCall | None] = stdlib_queue.SimpleQueue()
        self._lock = threading.Lock()
        self._ended = self._died = self._failed = False
        self._thread = threading.Thread(target=self._run, name="headrace-consumer", daemon=True)
        self._thread.start()

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
                self._calls.put(pending)
                return
        pending.finish(NotAttached())

    def end(self, died: bool = False, failed: bool = False) -> None:
        """Detach; if the client `died`, leave its leases to the station's terms. `failed` counts as a delivery."""
        with self._lock:
            self._ended, self._died, self._failed = True, died, failed
            self._calls.put(None)
        self.consumer.interrupt()

    def join(self) -> None:
        self._thread.join()

    # --- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ended and (pending := self._calls.get()) is not None:
                self._execute(pending)
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._ended = True
        self._leased.clear()
        try:
            if self._died:
                self.consumer.abandon()
            else:
                self.consumer.detach(failed=self._failed)
        except Exception:  # calls that wait still get their reply
            log.exception("detaching a remote consumer failed")
        while not self._calls.empty():
            if (pending := self._calls.get()) is not None:
                pending.finish(NotAttached())

    def _execute(self, pending: PendingCall) -> None:
        call = pending.call
        try:
            if isinstance(call, Get):
                self._get(pending, call)
                return
            if isinstance(call, Settle):
                self._settle(call)
            elif isinstance(call, Revise):
                self._revise(pending, call)
            pending.finish(Done())
        except HeadraceError as error:
            pending.finish(failure_of(error))
        except Exception as error:  # the client gets the error; the thread goes on
            log.exception("a call of a remote consumer failed")
            pending.finish(failure_of(error))

    def _get(self, pending: PendingCall, call: Get) -> None:
        if call.rest:
            self._ack_rest(call.rest)
        if len(self._leased) >= BATCHES_MAX:
            raise FabricError(
                f"this consumer holds {BATCHES_MAX} batches that are not acknowledged", "acknowledge them first"
            )
        batch = get_in_time(self.consumer, call.n, call.wait_s, call.each_s * _MARGIN)
        count = self._fit(batch, call.each_s * _MARGIN)
        if count:
            self._leased[pending.number] = _LeasedBatch(batch, count)
        pending.finish_with(lambda: self._reply(pending, batch, count))

    def _reply(self, pending: PendingCall, batch: Batch, count: int) -> tuple[Products, bytes]:
        """A batch, with what the client needs to know which of its products expire on the way."""
        reply, records = products_of(batch, batch.next, count)
        now_ns, timeout_ns, stop_ns = deadlines(self.consumer)
        more = {"sent_ns": now_ns, "waited_ns": pending.waited_ns, "timeout_ns": timeout_ns, "stop_ns": stop_ns}
        return msgspec.structs.replace(reply, **more), records

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
        count = min(len(batch), int(np.searchsorted(sizes, PAGE_BYTES_MAX)) + 1)
        now_ns, timeout_ns, _ = deadlines(self.consumer)
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
        payloads = _split(pending.payload, sizes.tolist())
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
