"""RemoteShare and RemoteSeat: a group of processing nodes at a site, and the place of one node in it.

They implement AnyShare and AnySeat (share/interface.py) by calls to the site. A node draws the number that proves which
seat is its own, so that a join whose reply was lost finds its seat, and a restarted site needs nothing but the call.
Calls that are harmless if they are repeated have no number; the table decides what counts.

The version of a seat is known from each exchange, and from one call that waits at the site for another version. That
call is made, and made again, when the version is asked for: a node asks many times a second.
"""

import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.errors import HeadraceError, QueueClosedError, SeatLostError
from headrace.remote.client.connection import Connection
from headrace.remote.client.pending import SlowReply
from headrace.remote.client.waiting import BLOCKING, finish
from headrace.remote.protocol import share_calls as calls
from headrace.remote.protocol.fields import WAIT_S_MAX
from headrace.remote.protocol.replies import Done, Number
from headrace.remote.protocol.share_calls import column
from headrace.remote.protocol.share_replies import Seated, SeatTold, ShareOpened, ShareTold, state_of
from headrace.share.interface import Exchanged, Parked, Progress, Reason, Sample, ShareState, ShareTerms, Slices
from headrace.share.share import check_node, default_node, new_instance

if TYPE_CHECKING:
    from headrace.remote.client.queue import RemoteQueue

_REPLY_S = 3.0  # for the reply of a site that has waited, beyond that
_PAUSE_S = 0.5  # before the next attempt, if the site did not reply
_LOST = -1  # a version that no seat has: the next exchange says why

log = logging.getLogger("headrace.remote")


class RemoteSeat:
    """A node's place; get one from `RemoteShare.join`. One thread at a time, and another one in `wait`."""

    def __init__(self, connection: Connection, terms: ShareTerms, seated: Seated, instance: int) -> None:
        self.number, self.name = seated.seat, seated.name
        self._connection, self._terms, self._instance = connection, terms, instance
        self._version = 0
        self._watch: SlowReply | None = None  # the call that waits for another version
        self._not_before = 0.0  # the next one
        self._told = ""  # to the log
        self._lock = threading.Lock()  # of the call that waits

    @property
    def _place(self) -> tuple[str, str, int, int]:
        return self._terms.stream, self._terms.group, self.number, self._instance

    # --- versions ---------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Changes whenever the node has to look again at what it holds. Without a call that would wait."""
        watch = self._watch
        if (watch is None or watch.ended.done()) and self._lock.acquire(blocking=False):
            try:
                self._take()
                self._call()
            finally:
                self._lock.release()
        return self._version

    def wait(self, seen: int, timeout_s: float) -> int:
        """Sleep until the version is another one, or the timeout passes; the version.

        A site that does not reply ends nothing: the next exchange raises what there is to raise.
        """
        deadline = time.monotonic() + timeout_s
        while (version := self.version) == seen and (left_s := deadline - time.monotonic()) > 0:
            watch = self._watch
            if watch is not None:
                watch.has_ended(left_s)
            else:
                time.sleep(min(left_s, max(0.001, self._not_before - time.monotonic())))
        return version

    def _call(self) -> None:
        """Ask for the next version, unless that failed a moment ago."""
        if time.monotonic() < self._not_before or self._version == _LOST:
            return
        call = calls.WatchSeat(*self._place, self._version, WAIT_S_MAX)
        started = finish(
            self._connection.start_by(BLOCKING, call, wait_s=WAIT_S_MAX, limit_s=WAIT_S_MAX + _REPLY_S, slow=True)
        )
        assert started is None or isinstance(started, SlowReply)
        self._watch = started
        if started is None:  # the link is full
            self._not_before = time.monotonic() + _PAUSE_S

    def _take(self) -> None:
        """Use the reply of the call that has ended."""
        watch, self._watch = self._watch, None
        if watch is None:
            return
        came = None
        try:
            came = self._connection.read(watch.take(), Number, watch)
        except SeatLostError:
            self._version = _LOST
        except QueueClosedError:
            raise
        except HeadraceError as error:  # exchanges tell of changes as well, later
            if str(error) != self._told:
                log.warning("node %s is not told of changes at once: %s", self.name, error)
            self._told = str(error)
        if came is None:
            self._not_before = time.monotonic() + _PAUSE_S
        else:
            self._version = max(self._version, came[0].value)

    # --- work -------------------------------------------------------------------------------------

    def exchange(self, progress: Progress) -> Exchanged:
        """Confirm, release and report; what the node holds, if that is not what it knows.

        SeatLostError if the node was not heard of for too long.
        """
        told = self._connection.ask(calls.Exchange.of(*self._place, progress), SeatTold)[0]
        self._version = max(self._version, told.version)
        return told.exchanged()

    def begin(self, slice: int, epoch: int, sequence: int) -> bool:
        return bool(self._connection.ask(calls.BeginProduct(*self._place, slice, epoch, sequence), Number)[0].value)

    def fail(self, slice: int, epoch: int, sequence: int) -> int:
        return self._connection.once(calls.FailProduct(*self._place, slice, epoch, sequence), Number)[0].value

    def park(self, slice: int, epoch: int, sequence: int, error: str) -> bool:
        call = calls.ParkProduct(*self._place, slice, epoch, sequence, error[:1000])
        return bool(self._connection.ask(call, Number)[0].value)

    def leave(self) -> None:
        """Give the seat back. Slices that it still has wait for the balancer."""
        self._connection.once(calls.LeaveSeat(*self._place), Done)

    def __repr__(self) -> str:
        return f"<RemoteSeat {self.number} {self.name!r} of {self._terms.group!r}>"


class RemoteShare:
    """A group; get one from `RemoteQueue.share`. Several threads may use it."""

    def __init__(self, queue: "RemoteQueue", connection: Connection, opened: ShareOpened) -> None:
        self._queue = queue  # which closes the connection when it is collected
        self._connection, self._opened = connection, opened

    @property
    def terms(self) -> ShareTerms:
        return self._opened.terms

    @property
    def feed(self) -> str:
        """Of the channel, `wx/radar/**`."""
        return self._opened.feed

    @property
    def _place(self) -> tuple[str, str]:
        return self.terms.stream, self.terms.group

    def join(self, node: str = "") -> RemoteSeat:
        """Take a seat. Without a name, the node has that of this machine and this process."""
        name, instance = check_node(node or default_node()), new_instance()
        call = calls.JoinShare(*self._place, instance, name, os.getpid(), may_vary=not node)
        return RemoteSeat(self._connection, self.terms, self._connection.ask(call, Seated)[0], instance)

    # --- look -------------------------------------------------------------------------------------

    def _told(self, what: str) -> ShareTold:
        return self._connection.ask(calls.DescribeShare(*self._place, what), ShareTold)[0]

    def state(self) -> ShareState:
        """The whole group now."""
        return state_of(self._told("state").state, self.terms)

    def history(self) -> list[Sample]:
        """The loads of its nodes, the oldest first."""
        return self._told("history").history or []

    def parked(self) -> list[Parked]:
        """The products that were given up, the oldest first."""
        return self._told("parked").parked or []

    def unpark(self, sequences: Sequence[int] | None = None) -> list[Parked]:
        """Take products off the list of those given up, or all of them; those that were on it."""
        chosen = None if sequences is None else [int(each) for each in sequences]
        return self._connection.once(calls.UnparkProducts(*self._place, chosen), ShareTold)[0].parked or []

    # --- balance ----------------------------------------------------------------------------------

    def lead(self, balancer: str, lease_s: float, *, yields: bool = False) -> int:
        """Become or stay the balancer for so long; the term, 0 if another one leads. `yields`: to one that does not."""
        call = calls.LeadShare(*self._place, check_node(balancer), lease_s, yields)
        return self._connection.ask(call, Number)[0].value

    def begin(self, term: int, giver: int, taker: int, slices: Slices, reason: Reason) -> int:
        """Begin a session, by hand with term 0; how many slices will move."""
        return self._count(calls.MoveSlices(*self._place, term, giver, taker, _sent(slices), reason))

    def cancel(self, term: int, slices: Slices) -> int:
        """Leave slices in session with their givers after all; how many there were."""
        return self._count(calls.CancelMoves(*self._place, term, _sent(slices)))

    def give(self, term: int, taker: int, slices: Slices, reason: Reason) -> int:
        """Give slices without an owner to a node; how many there were."""
        return self._count(calls.GiveSlices(*self._place, term, taker, _sent(slices), reason))

    def seize(self, term: int, seat: int) -> int:
        """Take the slices of a dead node; how many there were. A node that is alive keeps them."""
        return self._count(calls.SeizeSeat(*self._place, term, seat))

    def _count(self, call: calls.NumberedShareCall) -> int:
        return self._connection.once(call, Number)[0].value

    def drain(self, seat: int) -> None:
        """Ask a node to leave as soon as its slices have moved."""
        self._connection.once(calls.DrainSeat(*self._place, seat), Done)

    def remove(self) -> None:
        """Remove the group with its positions; ShareError if nodes are alive. The products stay."""
        self._connection.once(calls.RemoveShare(*self._place), Done)

    def __repr__(self) -> str:
        return f"<RemoteShare {self.terms.group!r} of {self.terms.stream!r} at {self._queue.path}>"


def _sent(slices: Slices) -> bytes:
    return column(np.unique(slices), "<u4")
