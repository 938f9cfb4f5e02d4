"""ServedConsumer: a consumer that a site holds for a remote user, with a thread of its own.

The thread does what the user asks in the order of asking; while it waits for products it sleeps in the kernel as any
consumer does, and what comes is sent from there without a further step. What was got is remembered until it is
settled, because only those batches have the leases; and the last get until the next one, for whoever asks once more.
"""

import logging
import queue as line_of
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import FabricError, FabricMessageError, HeadraceError, LeaseLostError
from headrace.product.batch import Batch
from headrace.remote.protocol.calls import CALL_BYTES_MAX, PAGE_BYTES_MAX, Get, Revise, Settle
from headrace.remote.protocol.products import products_of
from headrace.remote.protocol.replies import Done, Unattached, failure_of
from headrace.remote.server.pending_call import Busy, PendingCall
from headrace.station import Consumer
from headrace.station.leases import not_leased

BATCHES_MAX = 20_000  # got and not settled

log = logging.getLogger("headrace.attending")


class _Held:
    """A batch of which the first products are leased to the user, and which of these are settled."""

    __slots__ = ("batch", "settled")

    def __init__(self, batch: Batch, count: int) -> None:
        self.batch, self.settled = batch, np.zeros(count, np.bool_)

    @property
    def all(self) -> npt.NDArray[np.uint32] | None:
        """All places that the user got; None if that is the whole batch."""
        count = len(self.settled)
        return None if count == len(self.batch) else np.arange(count, dtype=np.uint32)

    @property
    def left(self) -> npt.NDArray[np.uint32] | None:
        """Those that are not settled; None if that is the whole batch."""
        return np.flatnonzero(~self.settled).astype(np.uint32) if self.settled.any() else self.all


class ServedConsumer:
    """Lives until `end`, which detaches the consumer."""

    def __init__(self, consumer: Consumer, keep_s: float) -> None:
        self.consumer, self.keep_s = consumer, keep_s
        self._held: dict[int, _Held] = {}
        self._last: PendingCall | None = None  # get
        self._line: line_of.SimpleQueue[PendingCall | None] = line_of.SimpleQueue()
        self._lock = threading.Lock()
        self._ended = self._died = False
        self._thread = threading.Thread(target=self._run, name="headrace-consumer", daemon=True)
        self._thread.start()

    def take(self, get: PendingCall) -> PendingCall | None:
        """Take up a get; if it has come before, the one that we have already. Busy while another is under way."""
        last = self._last
        if last is not None and get.number <= last.number:
            if get.number < last.number:
                raise FabricMessageError("a get that was over has come again", "number calls upwards")
            return last
        if last is not None and not last.is_done:
            raise Busy
        self._last = get
        return None

    def give(self, errand: PendingCall) -> None:
        """To be done when its turn comes."""
        with self._lock:
            if not self._ended:
                self._line.put(errand)
                return
        errand.finish(Unattached())

    def end(self, died: bool = False) -> None:
        """Detach, or if the user has died leave the leases to the station's terms."""
        with self._lock:
            self._ended, self._died = True, died
            self._line.put(None)
        self.consumer.interrupt()

    def join(self) -> None:
        self._thread.join()

    # --- by the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ended and (errand := self._line.get()) is not None:
                self._do(errand)
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._ended = True
        self._held.clear()
        try:
            (self.consumer.abandon if self._died else self.consumer.detach)()
        except HeadraceError as error:
            log.warning("detaching a remote consumer: %s", error)
        while not self._line.empty():
            if (errand := self._line.get()) is not None:
                errand.finish(Unattached())

    def _do(self, errand: PendingCall) -> None:
        call = errand.call
        try:
            if isinstance(call, Get):
                self._get(errand, call)
                return
            if isinstance(call, Settle):
                self._settle(call)
            elif isinstance(call, Revise):
                self._revise(errand, call)
            errand.finish(Done())
        except HeadraceError as error:
            errand.finish(failure_of(error))
        except Exception as error:  # the user is told; the thread goes on
            log.exception("a call of a remote consumer failed")
            errand.finish(failure_of(error))

    def _get(self, errand: PendingCall, call: Get) -> None:
        if call.rest:
            self._put_rest(call.rest)
        if len(self._held) >= BATCHES_MAX:
            raise FabricError(f"{BATCHES_MAX} batches were got and not put", "put what you have got first")
        batch = self.consumer.get(call.n, call.wait_s)
        count = self._fitting(batch)
        if count:
            self._held[errand.number] = _Held(batch, count)
        errand.finish_with(lambda: products_of(batch, batch.next, count))

    def _put_rest(self, number: int) -> None:
        """What the loop has not settled itself; if the leases are lost, the products come again."""
        held = self._held.pop(number, None)
        if held is not None:
            try:
                self.consumer.settle(held.batch, held.left, "ack")
            except LeaseLostError as error:
                log.warning("a remote consumer's put: %s", error)

    def _fitting(self, batch: Batch) -> int:
        """How many products of a batch go into one answer; the others go back."""
        if len(batch) == 0:
            return 0
        sizes = np.cumsum(batch.sizes, dtype=np.uint64)
        count = min(len(batch), int(np.searchsorted(sizes, PAGE_BYTES_MAX)) + 1)
        if count < len(batch):
            self.consumer.settle(batch, np.arange(count, len(batch), dtype=np.uint32), "nack")
        if int(sizes[0]) > CALL_BYTES_MAX:
            self.consumer.settle(batch, np.arange(count, dtype=np.uint32), "failed")
            raise FabricError(
                f"product {batch.sequences[0]} has {sizes[0]} bytes, more than go over the network as one piece",
                "get it where the queue is",
            )
        return count

    def _settle(self, call: Settle) -> None:
        places = None if call.places is None else _numbers(call.places, np.uint32)
        held = self._find(call.got, call.count)
        try:
            self.consumer.settle(held.batch, held.all if places is None else places, call.how)
        finally:
            self._note(call.got, held, places)

    def _revise(self, errand: PendingCall, call: Revise) -> None:
        places, sizes = _numbers(call.places, np.uint32), _numbers(call.lengths, np.int64)
        held = self._find(call.got, len(places))
        if len(sizes) != len(places) or (len(places) and int(places.max()) >= len(held.batch)):
            raise FabricError("the places and payloads of a put do not fit", "nothing was put")
        feeds = held.batch.feeds
        errand.client.rights.check_publish({feeds[place] for place in places[sizes >= 0].tolist()})
        payloads = _parted(errand.payload, sizes.tolist())
        self.consumer.revise(held.batch, places, payloads)
        self._note(call.got, held, places)

    def _find(self, number: int, count: int) -> _Held:
        held = self._held.get(number)
        if held is None:
            raise not_leased(count, count, self.consumer.station_name)
        return held

    def _note(self, number: int, held: _Held, places: npt.NDArray[np.uint32] | None) -> None:
        """A batch whose products are all settled is let go."""
        if places is None:
            held.settled[:] = True
        else:
            held.settled[places[places < len(held.settled)]] = True
        if held.settled.all():
            self._held.pop(number, None)


def _numbers(data: bytes, kind: Any) -> Any:
    if len(data) % np.dtype(kind).itemsize:
        raise FabricMessageError("the places of a call are cut short", "nothing was put")
    return np.frombuffer(data, kind)


def _parted(payload: bytes, sizes: list[int]) -> list[bytes | None]:
    """Payloads by their sizes; -1 is none."""
    parts: list[bytes | None] = []
    place = 0
    for size in sizes:
        parts.append(None if size < 0 else payload[place : place + size])
        place += max(0, size)
    if place != len(payload):
        raise FabricError(f"payloads of {place} bytes came with {len(payload)}", "nothing was put")
    return parts
