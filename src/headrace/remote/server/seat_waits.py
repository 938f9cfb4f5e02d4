"""WaitingSeats: calls of nodes that wait until something else is theirs; one thread serves them all.

A node holds slices, and balancers and other nodes change that, through this site or on its machine. Every change of a
table counts in its header (`changes`) and wakes those that sleep on one word of the queue (share/file.py: Changes).
Puts do not. The thread then looks at the seats of the groups that have changed, and at no others. While no call waits,
nothing wakes it.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from headrace.errors import FabricError, HeadraceError
from headrace.guard import GuardedThread, counted
from headrace.remote.protocol.replies import Number, failure_of
from headrace.remote.protocol.share_calls import WatchSeat
from headrace.remote.server.clients import Client
from headrace.remote.server.pending_call import PendingCall
from headrace.share.file import Changes
from headrace.share.interface import Flags
from headrace.share.share import Share

WAITING_MAX = 4096
WAITING_OF_ONE_MAX = 256
WAITING_OF_PRINCIPAL_MAX = 2048  # where principals have quotas
_TURN_S_MIN, _TURN_S_MAX = 0.02, 0.25  # between two looks at the deadlines; a change is seen at once

HandOver = Callable[[Callable[[PendingCall], None], PendingCall], None]


class _Group:
    """The calls that wait for changes of one group."""

    def __init__(self, share: Share) -> None:
        self.share, self.waiting = share, list[tuple[PendingCall, WatchSeat]]()
        self._looked = -1  # number of its changes when all seats were examined last

    def take_due(self, now: float) -> list[PendingCall]:
        """Take out the calls that can be answered."""
        number = int(self.share.table.header["changes"][0])
        has_changed, self._looked = number != self._looked, number
        changed = self._changed() if has_changed else np.zeros(len(self.waiting), np.bool_)
        pairs = list(zip(self.waiting, changed.tolist(), strict=True))
        taken = [each[0] for each, is_changed in pairs if is_changed or each[0].deadline <= now]
        if taken:
            self.waiting = [each for each, is_changed in pairs if not is_changed and each[0].deadline > now]
        return taken

    def _changed(self) -> Flags:
        """Which of the calls know another version than that of their seat, or have lost it."""
        calls, seats = [call for _, call in self.waiting], self.share.table.seats
        places = np.array([call.seat for call in calls], np.int64)
        seen = np.array([call.seen for call in calls], np.uint64)
        instances = np.array([call.instance for call in calls], np.uint64)
        changed: Flags = (seats["version"][places] != seen) | (seats["instance"][places] != instances)
        return changed


class WaitingSeats:
    """Serves from the first call on, until `close`."""

    def __init__(self, path: Path, hand_over: HandOver) -> None:
        """`hand_over` executes something with a call in another thread, or at once if there is none any more."""
        self._path, self._hand_over = path, hand_over
        self._groups: dict[int, _Group] = {}  # by the number of the group, which is never reused
        self._of_one: Counter[Client] = Counter()
        self._count = 0
        self._lock = threading.Lock()
        self._is_used = threading.Event()  # at least one call waits
        self._is_stopped = False
        self._changes: Changes | None = None
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """How many calls wait."""
        return self._count

    def add(self, pending: PendingCall, call: WatchSeat, share: Share) -> None:
        """Reply when the version of the seat is not `seen`, or the time of the call is over. FabricError at the limit.

        SeatLostError if it is not the seat of this node.
        """
        pending.deadline = time.monotonic() + call.wait_s
        with self._lock:
            version = share.seat(call.seat, call.instance).check()
            waits = version == call.seen and call.wait_s > 0 and not self._is_stopped
            if waits:
                self._check_room(pending.client)
                self._start()
                group = self._groups.setdefault(share.terms.number, _Group(share))
                group.waiting.append((pending, call))
                self._of_one[pending.client] += 1
                self._count += 1
                self._is_used.set()
        if not waits:
            pending.finish(Number(version))

    def _check_room(self, client: Client) -> None:
        of_principal = (
            sum(self._of_one[each] for each in client.principal.clients) if client.principal.has_limits else 0
        )
        is_full = len(self) >= WAITING_MAX or of_principal >= WAITING_OF_PRINCIPAL_MAX
        if is_full or self._of_one[client] >= WAITING_OF_ONE_MAX:
            raise FabricError(
                f"{WAITING_MAX} nodes, or {WAITING_OF_ONE_MAX} of one client, wait at the site already",
                "connect once more, or retry later",
            )

    def _start(self) -> None:
        if self._thread is None:
            self._changes = Changes(self._path)
            self._thread = GuardedThread(
                self._run, "headrace-seats", args=(self._changes,), until=lambda: self._is_stopped
            )
            self._thread.start()

    def _run(self, changes: Changes) -> None:
        while not self._is_stopped:
            self._is_used.wait()
            number = changes.number  # before the look: a change from now on is not slept through
            pause_s = self._turn(time.monotonic())
            if pause_s is not None:
                changes.wait(number, pause_s)

    def _turn(self, now: float) -> float | None:
        """Answer the calls that are due. How long to sleep; None if no call waits any more."""
        with self._lock:
            due = [(pending, group.share) for group in self._groups.values() for pending in group.take_due(now)]
            self._groups = {number: group for number, group in self._groups.items() if group.waiting}
            for pending, _ in due:
                self._count_off(pending.client)
            deadlines = [pending.deadline for group in self._groups.values() for pending, _ in group.waiting]
            if not deadlines and not self._is_stopped:
                self._is_used.clear()
        for pending, share in due:
            with counted("headrace-seats"):
                self._hand_over(partial(_reply, share), pending)
        return min(max(min(deadlines) - now, _TURN_S_MIN), _TURN_S_MAX) if deadlines else None

    def _count_off(self, client: Client) -> None:
        self._count -= 1
        self._of_one[client] -= 1
        if not self._of_one[client]:
            del self._of_one[client]

    def close(self) -> None:
        """Answer every call that waits."""
        with self._lock:
            self._is_stopped = True
            left = [(pending, group.share) for group in self._groups.values() for pending, _ in group.waiting]
            self._groups, self._of_one, self._count = {}, Counter(), 0
        self._is_used.set()
        if self._thread is not None and self._changes is not None:
            self._changes.tell()
            self._thread.join()
        for pending, share in left:
            _reply(share, pending)


def _reply(share: Share, pending: PendingCall) -> None:
    call = pending.call
    assert isinstance(call, WatchSeat)
    try:
        pending.finish(Number(share.seat(call.seat, call.instance).check()))
    except HeadraceError as error:
        pending.finish(failure_of(error))
