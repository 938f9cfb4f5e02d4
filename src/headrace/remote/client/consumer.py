"""RemoteConsumer: one of those who share a station's products, from elsewhere; get one from `RemoteStation.attach`.

The site holds a real consumer on our behalf, with its leases. It does so while we are connected, and for the time
`keep` after that; so a connection that breaks and comes back costs nothing. Whoever stays away for longer, or finds
the site restarted, is attached anew by the next `get`: what was leased goes to whoever comes first, and to put it is
refused with LeaseLostError. The loops of `batches` and of `for` go on in that case: the products come again.

A `get` whose answer got lost is asked again under its number, and gives what was leased to us then.
"""

import logging
import os
import sys
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headrace.errors import LeaseLostError, OptionError, QueueClosedError, SiteUnreachableError
from headrace.kernel import _kernel as kernel
from headrace.product.batch import Batch
from headrace.remote.client.connection import Connection, Detached
from headrace.remote.protocol.calls import WAIT_S_MAX, Attach, Detach, Get, Interrupt, Revise, Settle, TellConsumer
from headrace.remote.protocol.products import RemoteBatch, batch_of
from headrace.remote.protocol.replies import Attached, Done, Products, Told
from headrace.station.consumer import GET_MAX, Consumer
from headrace.station.leases import REMEMBERED, Timeout
from headrace.station.statistics import ConsumerStatistics
from headrace.units import format_age, parse_age

if TYPE_CHECKING:
    from headrace.remote.client.station import RemoteStation

_LEAVE_S = 1.0  # patience of `detach`: the site finds out by itself
_HOW = {number: name for name, number in kernel.SETTLE.items()}
_EMPTY = Products(0, 0)

log = logging.getLogger("headrace.remote")


class RemoteConsumer(Consumer):
    """An attachment to a station of a site. One thread at a time, as with a Consumer."""

    def __init__(self, station: "RemoteStation", connection: Connection, attached: Attached, keep_s: float) -> None:
        self.station = station
        self._connection, self._keep_s = connection, keep_s
        self._attachment, self._place = attached.attachment, attached.place
        self._attaching = 0  # number of a call to attach anew that was not answered yet
        self._getting = 0  # number of a get that was not answered yet
        self._rest = 0  # number of the get whose batch is put with the next one
        self._recent: deque[Batch] = deque(maxlen=REMEMBERED)
        self._pid = os.getpid()
        self._interrupted = self._detached = False

    # --- get --------------------------------------------------------------------------------------

    def get(self, n: int = 1, timeout: Timeout = None) -> Batch:
        """As `Consumer.get`. While the site is away nothing comes; SiteUnreachableError when patience is over."""
        seconds = None if timeout is None else parse_age(timeout, "timeout")
        if n.__class__ is not int or n < 1:
            raise OptionError(f"{n!r} is not a number of products", "ask for one or more")
        self._check()
        until = None if seconds is None else time.monotonic() + seconds
        turn = 0
        while True:
            left = WAIT_S_MAX if until is None else max(0.0, until - time.monotonic())
            batch = self._attempt(n, min(left, WAIT_S_MAX))
            is_over = until is not None and time.monotonic() >= until
            if batch is not None and (len(batch) or is_over or self._interrupted):
                return self._hand_out(batch)
            if batch is None and (is_over or self._interrupted):
                if is_over and not self._connection.has_patience:
                    raise self._connection.unreachable()
                return self._hand_out(batch_of(_EMPTY, b"", self._connection.names))
            if batch is None:
                self._connection.pause(turn)
                turn += 1

    def _hand_out(self, batch: RemoteBatch) -> RemoteBatch:
        self._interrupted = False
        if len(batch):
            self._recent.append(batch)
        return batch

    def _attempt(self, n: int, wait_s: float) -> RemoteBatch | None:
        """Ask once, again if the last answer is due; None if the site does not answer, or has to attach us anew."""
        if not self._attachment and not self._attach_anew():
            return None
        number = self._getting = self._getting or self._connection.get_number()
        call = Get(self._attachment, min(n, GET_MAX), wait_s, self._rest)
        try:
            came = self._connection.attempt(call, Products, number=number, wait_s=wait_s)
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
        if len(batch) > n:  # an earlier get had asked for more
            self.nack(batch)
            return None
        return batch

    def _end_get(self) -> None:
        self._getting = self._rest = 0

    def _attach_anew(self) -> bool:
        number = self._attaching = self._attaching or self._connection.begin()
        try:
            came = self._connection.attempt(Attach(self.station.name, self._keep_s), Attached, number=number)
        except Exception:
            self._connection.end(number)
            self._attaching = 0
            raise
        if came is None:
            return False
        self._connection.end(number)
        self._attaching = 0
        self._attachment, self._place = came[0].attachment, came[0].place
        return True

    def _lose(self) -> None:
        """The site has given up our attachment, and all leases with it."""
        log.warning("station %s of site %s: the site gave up our leases; attaching anew",
                    self.station.name, self._connection.site)  # fmt: skip
        self._end_get()
        self._attachment = 0

    # --- put --------------------------------------------------------------------------------------

    def _settle(
        self, batch: Batch, places: npt.NDArray[np.uint32] | None, how: int,
        revisions: npt.NDArray[np.uint64] | None = None,
    ) -> None:  # fmt: skip
        count = len(batch) if places is None else len(places)
        number = self._number_of(batch, count)
        if not count:
            return
        call = Settle(self._attachment, number, count, _HOW[how], None if places is None else places.tobytes())
        self._ask_settled(call, b"")
        if places is None and self._recent and self._recent[-1] is batch:
            self._recent.pop()

    def _settle_revised(self, batch: Batch, places: npt.NDArray[np.uint32], payloads: list[Any]) -> None:
        parts = [payload for payload in payloads if payload is not None]
        for payload in parts:
            try:
                memoryview(payload)
            except TypeError:
                raise OptionError(f"payload of type {type(payload).__name__} is not bytes", "give bytes") from None
        sizes = [-1 if payload is None else memoryview(payload).nbytes for payload in payloads]
        number = self._number_of(batch, len(places))
        call = Revise(self._attachment, number, places.tobytes(), np.array(sizes, np.int64).tobytes())
        self._ask_settled(call, b"".join(parts))

    def _number_of(self, batch: Batch, count: int) -> int:
        """The number of the get that a batch comes from; LeaseLostError if that is over."""
        self._check()
        if not count:
            return 0
        if not isinstance(batch, RemoteBatch) or not batch.got:
            raise LeaseLostError(
                f"{count} of {count} products were not this consumer's at station {self.station.name!r}; the others "
                "are settled", "put each product once, and only what this consumer got",
            )  # fmt: skip
        if batch.attachment != self._attachment:
            raise self._lost()
        return batch.got

    def _ask_settled(self, call: Settle | Revise, payload: bytes) -> None:
        try:
            self._connection.once(call, Done, payload)
        except Detached:
            self._lose()
            raise self._lost() from None

    def _lost(self) -> Exception:
        self._check()
        return LeaseLostError(
            f"site {self._connection.site} has given up the leases of this consumer of {self.station.name!r}: it was "
            f"restarted, or the connection was broken for longer than {format_age(self._keep_s)}",
            "get anew, the products come again; to bridge longer breaks: station.attach(keep=…)",
        )

    def _put_rest(self, batch: Batch) -> None:
        """Put what the loop has not settled itself, together with the next get."""
        self._check()
        if isinstance(batch, RemoteBatch) and batch.attachment == self._attachment:
            self._rest = batch.got

    # --- life -------------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Make a `get` that waits in another thread return an empty batch."""
        self._interrupted = True
        self._connection.forsake(Interrupt(self._attachment))

    def statistics(self) -> ConsumerStatistics:
        self._check()
        try:
            told = self._connection.ask(TellConsumer(self._attachment), Told)[0].consumers
        except Detached:
            raise self._lost() from None
        assert told
        return told[0]

    def beat(self) -> None:
        """The site does so for us, while we are connected."""

    def leave_to_parent(self) -> None:
        """In a forked child: this consumer is the parent's, as its connection is."""

    def detach(self) -> None:
        """Leave the station; what was got and not put goes back to its input."""
        self._leave(died=False)

    def abandon(self) -> None:
        """Leave as the dead do: what was got and not put is restored by the station's terms, and was a delivery."""
        self._leave(died=True)

    def _leave(self, died: bool) -> None:
        if self._detached or self._pid != os.getpid():
            return
        self._detached = True
        self._recent.clear()
        with suppress(SiteUnreachableError, QueueClosedError, Detached):
            if self._attachment:
                self._connection.ask(Detach(self._attachment, died), Done, patience_s=_LEAVE_S)
        self._connection.end(self._attaching)

    def __enter__(self) -> "RemoteConsumer":
        return self

    def __del__(self) -> None:
        """Forgotten without a word: the site is told, and nobody waits for its answer."""
        if not getattr(self, "_detached", True) and not sys.is_finalizing():
            self._detached = True
            self._connection.end(self._attaching)
            if self._attachment:
                self._connection.forsake(Detach(self._attachment, died=True))
