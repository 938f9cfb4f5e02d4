"""Consumer: shares the products of a station with other consumers; get one from `Station.attach`.

    with queue.station("decode", "wx/radar/**").attach() as consumer:
        for product in consumer:            # each is acknowledged when you ask for the next
            decode(product.payload)

    batch = consumer.get(100, timeout=1)    # or explicitly, many at a time
    consumer.ack(batch)

A product that a consumer gets is leased: no other consumer gets it until it is acknowledged, discarded or given back,
or until its consumer dies or hangs. A consumer that was declared dead gets LeaseLostError, and its acknowledgements
are refused.

A Consumer belongs to one process and, at any time, to one thread. A forked child attaches for itself.

The hot path is `get` and `ack`: one call into the kernel each, without a look at the terms. Everything that may have
to be done first (new terms, dead consumers, selections that index rows do not decide) the kernel asks for by a code.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from headrace.errors import LeaseLostError, QueueMovedError, StationMissingError
from headrace.kernel import _kernel as kernel
from headrace.log import append
from headrace.log.explain import explain
from headrace.log.in_thread import in_thread
from headrace.log.log import Log
from headrace.log.place import moved
from headrace.log.seams import Timeout
from headrace.log.waits import Waits
from headrace.product.batch import Batch
from headrace.product.product import Product
from headrace.station.chain import NO_END, OpenChain
from headrace.station.draft import Draft, draft_columns, new_drafts
from headrace.station.heartbeat import heartbeat
from headrace.station.leases import (
    Getter,
    Leased,
    check_attached,
    check_payloads,
    find_leases,
    find_revised,
    get_async,
    is_failure,
    iterate,
    iterate_async,
    not_a_number,
    not_leased,
    recent_batches,
    settle_each,
)
from headrace.station.stations import Stations
from headrace.station.statistics import ConsumerStatistics
from headrace.station.terms import StationTerms
from headrace.units import parse_age

logger = logging.getLogger("headrace.queue")

GET_MAX = kernel.GET_MAX
_PORTION_S = 0.001  # how long the products that a loop leases at once may take
_HELD_S = 0.25  # how long a loop may be busy with one of them before the others go back
_CODES = kernel.CODES
_ACK, _DISCARD, _NACK, _FAILED = (kernel.SETTLE[how] for how in ("ack", "discard", "nack", "failed"))


class Consumer:
    """An attachment to a station."""

    def __init__(
        self, log: Log, stations: Stations, chain: OpenChain, terms: StationTerms, claim: tuple[int, int, int]
    ) -> None:
        self.station_name = terms.name
        self._log, self._stations, self._chain, self._kernel = log, stations, chain, chain.kernel
        self._member = terms.member
        self._place, self._epoch, self._lock_fd = claim
        self._pid = os.getpid()
        self._names = self._log.kernel.names
        self._by_clock = stations.now_ns() != 0  # the queue's own clock decides what has expired
        self._batch_max, self._pacing_s, self._paused = GET_MAX, 0.0, False
        self._timeout_ns = self._stop_ns = 0
        self._quick_max = 0  # how many `get` asks the kernel for directly; 0 after `detach`
        self._recent = recent_batches()
        self._waits = Waits()
        self._handing: kernel.LeasedProducts | None = None  # what a loop hands out, and
        self._handing_since = 0.0
        self._interrupted = False
        self._calls = True  # functions of users, to scan; a site leaves that to other threads (served.py)
        self._detached = False
        self._foreign = False  # detached, or in a forked child
        self._read_terms()
        heartbeat.add(self)
        stations.attached.add(self)

    # --- get --------------------------------------------------------------------------------------

    def get(self, n: int = 1, timeout: Timeout = None) -> Batch:
        """Up to `n` products; waits for the first. An empty batch after `timeout`; None waits without limit."""
        if n.__class__ is int and 0 < n <= self._quick_max:
            rows = self._kernel.get_plain(self._place, self._epoch, n, self._terms_seen)
            if rows is not None:
                self._interrupted = False
                batch = Batch(rows, self._names)
                self._recent.append(batch)
                return batch
        return self._get(n, timeout)

    def _get(self, n: int, timeout: Timeout, stop: threading.Event | None = None, ahead_ns: int = 0) -> Batch:
        """As `get`, with everything that may have to be done first.

        An empty batch soon after `stop` is set and `_wake` is called, unless products have come by then. What expires
        within `ahead_ns` expires now.
        """
        if timeout is None:
            seconds = -1.0
        else:
            seconds = timeout if timeout.__class__ is float and timeout >= 0 else parse_age(timeout, "timeout")
        if n.__class__ is not int or n < 1:
            raise not_a_number(n)
        if self._foreign:
            self._check()
        looked, paced = 0, 0.0
        while True:
            if self._pacing_s > paced:
                paced = self._pacing_s
                seconds = self._fill(min(n, self._batch_max), seconds, stop)
            limit = n if n <= self._batch_max else self._batch_max
            now_ns = self._stations.now_ns() if self._by_clock else 0
            if ahead_ns:
                now_ns = self._stations.time_ns() + ahead_ns
            outcome, found = self._kernel.get(
                self._place, self._epoch, limit, seconds, now_ns, looked, self._terms_seen
            )
            if outcome > 0:
                self._interrupted = False
                batch = Batch(found, self._names)  # type: ignore[arg-type]
                self._recent.append(batch)
                return batch
            if outcome == 0 or self._interrupted:
                return self._nothing()
            if stop is not None and stop.is_set():
                return Batch(self._log.kernel.rows(), self._names)
            seconds = cast(float, found)
            self._prepare(outcome)
            if outcome == _CODES["terms"]:
                self._read_terms()
                self._check_function()
            if not self._chain.conducts:
                looked = self._stations.conduct(self._chain, calls=self._calls)
                if seconds == 0 and self._chain.calls:  # slow functions: what they have found until now
                    looked = NO_END

    def get_nowait(self, n: int = 1) -> Batch:
        """Up to `n` products that are there now."""
        return self.get(n, 0)

    def _nothing(self) -> Batch:
        self._interrupted = False
        return Batch(self._log.kernel.rows(), self._log.kernel.names)

    def _prepare(self, outcome: int) -> None:
        """Do what the kernel asked for by its code; LeaseLostError if this consumer was declared dead."""
        if outcome == _CODES["lease_lost"]:
            raise self._lost()
        self._check()
        if outcome == _CODES["moved"]:
            self._log.check_open()
        if outcome == _CODES["look"]:
            self._stations.recover(self._chain)
            self._say_if_held_up()
            return
        self._chain.attend(outcome, lambda: self._stations.in_chain(self._chain.number))

    def _check_function(self) -> None:
        """An error if the station has got a selection by a function that this process does not have."""
        terms = self._stations.document.find(self.station_name)
        lacking = None if terms is None else self._chain.lacks(terms)
        if lacking is not None:
            raise lacking

    def _say_if_held_up(self) -> None:
        """A consumer waits: if its station delivers nothing on purpose, or cannot, say so now and then."""
        if self._paused and self._waits.is_due("get"):
            logger.warning(
                "waiting at station %s, which is paused; resume it: headrace station resume", self.station_name
            )
        for other in self._stations.document.chain(self._chain.number) if not self._chain.conducts else ():
            lacking = self._chain.lacks(other)
            if lacking is not None and self._waits.is_due("function"):
                logger.warning(
                    "waiting at station %s for a process that has the function of a station of its chain: %s",
                    self.station_name, lacking,
                )  # fmt: skip

    def _read_terms(self) -> None:
        """Read the terms that concern each get; their number first, so that a later change shows another."""
        self._terms_seen = self._kernel.terms_number
        for terms in self._stations.in_chain(self._chain.number):
            if terms.name == self.station_name:
                self._batch_max, self._pacing_s = terms.batch_max or GET_MAX, terms.pacing_s
                self._paused = terms.paused
                self._timeout_ns, self._stop_ns = int((terms.timeout_s or 0) * 1e9), terms.stop_ns or 0
                self._start_ns = terms.start_ns or 0
        self._quick_max = 0 if self._pacing_s or self._foreign or self._by_clock else min(self._batch_max, kernel.FEW)

    def _check(self) -> None:
        check_attached(self.station_name, self._detached, self._pid)

    def _lost(self) -> Exception:
        self._check()
        terms = self._stations.document.find(self.station_name)
        if terms is None:
            return StationMissingError(
                f"station {self.station_name!r} was removed", "create it again: queue.station(name, …)"
            )
        return LeaseLostError(
            f"this consumer of station {self.station_name!r} was declared dead, because it had no heartbeat for "
            f"{terms.hung_after_s:g} s; other consumers got its products",
            "attach again, and raise hung_after if the process may be stopped for that long",
        )

    def _fill(self, n: int, seconds: float, stop: threading.Event | None) -> float:
        """Pacing: once a product waits, give the batch time to fill. Returns what is left of the timeout."""
        deadline = None if seconds < 0 else time.monotonic() + seconds
        first: float | None = None
        while True:
            seen = self._log.kernel.wake_number
            self._log.check_open(always=False)
            self._stations.conduct(self._chain, calls=self._calls)
            waiting, now = self._kernel.waiting(self._member), time.monotonic()
            first = first or (now if waiting else None)
            ends = [end for end in (deadline, first and first + self._pacing_s) if end is not None]
            stops = self._interrupted or (stop is not None and stop.is_set())
            if waiting >= n or (ends and now >= min(ends)) or stops:
                return seconds if deadline is None else max(0.0, deadline - now)
            self._kernel.wait(seen, min([0.2, *(end - now for end in ends)]))

    # --- acknowledge ------------------------------------------------------------------------------

    def ack(self, what: Leased, payloads: Sequence[Any] | None = None) -> None:
        """Acknowledge a batch, a product or products that `get` returned: the work on them is done.

        `payloads`, one for each (None: unchanged), become new revisions, which the stations behind this one get
        instead; the original does not change.
        """
        if payloads is None and what.__class__ is Batch:
            self._settle(what, None, _ACK)
        elif payloads is not None:
            for batch, places, new in find_revised(self._recent, what, payloads):
                self._settle_revised(batch, places, new)
        else:
            self._settle_found(what, _ACK)

    def discard(self, what: Leased) -> None:
        """Acknowledge these without passing them on: the stations behind do not get them."""
        self._settle_found(what, _DISCARD)

    def nack(self, what: Leased, *, failed: bool = False) -> None:
        """Give these back to the station, for any consumer. `failed` counts as a delivery, towards `deliveries_max`."""
        self._settle_found(what, _FAILED if failed else _NACK)

    def _settle_found(self, what: Leased, how: int) -> None:
        settle_each(find_leases(self._recent, what), lambda batch, places: self._settle(batch, places, how))

    def _explain(self, error: kernel.KernelError) -> Exception:
        if error.code == _CODES["moved"]:
            return moved(self._log.kernel, self._log.path)
        return self._lost() if error.code == _CODES["lease_lost"] else explain(error, self._stations.path)

    def _settle(
        self, batch: Batch, places: npt.NDArray[np.uint32] | None, how: int,
        revisions: npt.NDArray[np.uint64] | None = None,
    ) -> None:  # fmt: skip
        if self._foreign:
            self._check()
        try:
            refused = self._kernel.settle(self._place, self._epoch, batch._rows, places, how, revisions)  # type: ignore[arg-type]
        except kernel.KernelError as error:
            raise self._explain(error) from None
        if places is None and self._recent and self._recent[-1] is batch:
            self._recent.pop()
        if refused:
            raise not_leased(refused, len(batch) if places is None else len(places), self.station_name)

    def _settle_revised(self, batch: Batch, places: npt.NDArray[np.uint32], payloads: list[Any]) -> None:
        changed = [number for number, payload in enumerate(payloads) if payload is not None]
        revisions = np.zeros(len(places), np.uint64)
        if changed:
            self._check_held()
            revisions[changed] = self._append_revisions(batch, places[changed], [payloads[i] for i in changed])
        self._settle(batch, places, _ACK, revisions)

    def _check_held(self) -> None:
        """LeaseLostError if this consumer was declared dead; asked before anything is appended."""
        if not self._kernel.heartbeat(self._place, self._epoch):
            raise self._lost()

    def _append_revisions(self, batch: Batch, places: Any, payloads: list[Any]) -> list[int]:
        check_payloads(payloads)
        stations, rows = self._stations, cast(kernel.Rows, batch._rows)
        while True:
            try:
                sequences = self._kernel.put_revisions(rows, places, payloads, stations.now_ns(), stations.elapsed_ns())
                break
            except kernel.KernelError as error:
                if error.code != _CODES["stations"]:
                    raise explain(error, stations.path) from None
                self._log.gate.make_gates()
        self._log.make_durable(sequences[-1])  # the stations behind get only what is on disk
        return sequences

    # --- new --------------------------------------------------------------------------------------

    def new(self, count: int = 1, size: int = 0, *, feed: str, ident: str = "") -> list[Draft]:
        """Drafts to fill in and `put`: `count` of them, with `size` zero bytes each."""
        return new_drafts(count, size, feed, ident)

    def put(self, drafts: Sequence[Draft]) -> append.Receipt:
        """Store drafts from `new` as one batch of new products; duplicates among them are not stored again."""
        return append.put_many(self._log, **draft_columns(drafts))

    # --- iterate ----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Product]:
        """One product after another, without end; each is acknowledged when you ask for the next.

        A `break` acknowledges nothing: the product in hand stays leased. Acknowledge it yourself if its work is done;
        otherwise it goes back to the station when the consumer detaches, at the end of its `with`.

        While a loop takes less than a millisecond for them, up to 16 products are leased at once; those that a `break`
        leaves over go back to the station, and so do those behind a product that takes long. A loop that takes longer
        leases one at a time, as other consumers would have to wait for the rest.
        """
        n = 1
        while len(batch := self.get(1 if self._pacing_s else n)):
            begun_s = time.monotonic()
            products = kernel.LeasedProducts(
                self._kernel, self._place, self._epoch, cast(kernel.Rows, batch._rows), self._names, self
            )
            self._handing, self._handing_since = products, begun_s
            try:
                yield from products
            except kernel.KernelError as error:
                raise self._explain(error) from None
            finally:
                self._handing = None
                products.give_back()
            taken_s = time.monotonic() - begun_s
            n = 1 if taken_s > _PORTION_S else min(2 * n, kernel.FEW) if 2 * taken_s < _PORTION_S else n

    def batches(self, n: int = 100, timeout: Timeout = None) -> Iterator[Batch]:
        """Batches of up to `n`; each is acknowledged when you ask for the next. Ends after an empty `timeout`.

        What you settle yourself in the loop stays as you settled it. A `break` acknowledges nothing: the batch in hand
        stays leased until you acknowledge it, or goes back when the consumer detaches.
        """
        return iterate(self.get, self._ack_rest, n, timeout)

    def _ack_rest(self, batch: Batch) -> None:
        """Acknowledge what the loop has not settled itself."""
        if self._foreign:
            self._check()
        try:
            self._kernel.settle(self._place, self._epoch, batch._rows, None, _ACK, None)  # type: ignore[arg-type]
        except kernel.KernelError as error:
            raise self._explain(error) from None

    async def __aiter__(self) -> AsyncIterator[Product]:
        """As `__iter__`, `break` included."""
        async for batch in self.batches_async(1):
            yield batch[0]

    def batches_async(self, n: int = 100, timeout: Timeout = None) -> AsyncIterator[Batch]:
        """As `batches`, for `async for`, `break` included."""
        return iterate_async(self.get_async, self._ack_rest, n, timeout)

    async def get_async(self, n: int = 1, timeout: Timeout = None) -> Batch:
        """As `get`, in a thread of its own. If it is cancelled, products that arrive afterwards go back."""
        return await get_async(self._getter, n, timeout)

    @property
    def _getter(self) -> Getter:
        return Getter(self._get, self._wake, self.nack)

    def interrupt(self) -> None:
        """Make a `get` that waits in another thread return an empty batch within a fifth of a second."""
        self._interrupted = True
        self._wake()

    def _wake(self) -> None:
        """Make those that wait in other threads look again whether to stop."""
        self._log.kernel.wake_all()

    # --- life -------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Mark this consumer as alive. A thread does so for all consumers of the process, four times a second.

        If a loop has been busy with one product for a while, the others that it leased go back.
        """
        if not self._detached and self._pid == os.getpid():
            self._kernel.heartbeat(self._place, self._epoch)
            handing = self._handing
            if handing is not None and time.monotonic() - self._handing_since > _HELD_S:
                handing.give_back()

    def _leave_to_parent(self) -> None:
        """In a forked child: this consumer belongs to the parent."""
        self._foreign, self._quick_max = True, 0
        os.close(self._lock_fd)

    def statistics(self) -> ConsumerStatistics:
        """This consumer now; LeaseLostError if it was declared dead."""
        self._check()
        for consumer in self._chain.consumers(self.station_name, self._member):
            if consumer.place == self._place:
                return consumer
        raise self._lost()

    def detach(self, *, failed: bool = False) -> None:
        """Leave the station; unacknowledged products go back to its input. `failed`: as in `nack`."""
        if self._detached or self._pid != os.getpid():
            return
        self._detached = self._foreign = True
        self._quick_max = 0
        heartbeat.remove(self)
        try:
            self._kernel.detach(self._place, self._epoch, failed)
        finally:
            os.close(self._lock_fd)  # the next process that looks takes back what is left
        self._recent.clear()
        with contextlib.suppress(QueueMovedError):  # the first process that opens the queue again does it
            terms = self._stations.document.find(self.station_name)
            if terms is not None and not terms.durable:
                with self._log.locked():
                    self._stations.end_if_unused(self.station_name)

    def abandon(self) -> None:
        """Leave as a process that dies: unacknowledged products are restored by the station's terms, as delivered."""
        if self._foreign:
            return
        self._detached = self._foreign = True
        self._quick_max = 0
        heartbeat.remove(self)
        os.close(self._lock_fd)
        self._recent.clear()
        with contextlib.suppress(QueueMovedError):
            self._stations.recover(self._chain, self._place)

    async def __aenter__(self) -> "Consumer":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(lambda: self.detach(failed=is_failure(error)), "detach")

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach(failed=is_failure(error))

    def __del__(self) -> None:
        """Dropped without `detach`: the next process that looks finds its lock released. Takes no lock itself."""
        if not getattr(self, "_foreign", True):
            self._detached = self._foreign = True
            os.close(self._lock_fd)

    def __repr__(self) -> str:
        return f"<Consumer {self._place} of {self.station_name!r}{', detached' if self._detached else ''}>"
