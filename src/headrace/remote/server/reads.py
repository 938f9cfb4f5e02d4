"""Reads that remote clients make of the queue: those that continue, those that wait, and which feeds they read.

ClientRead      a reader that a client continues with its next call, so that `every` counts through
WaitingReads    reads that have nothing to return yet; one thread serves them all
RecentReads     the selections that were read lately, for sites that ask whether a feed is wanted
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable

from headrace.errors import HeadraceError, SelectionError
from headrace.guard import GuardedThread, counted
from headrace.link.fair import Busy
from headrace.log.read import Read
from headrace.product.batch import Batch
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.remote.server.pending_call import PendingCall
from headrace.remote.server.principal import Principal
from headrace.selection import Selection

WAITING_MAX = 4096
WAITING_OF_ONE_MAX = 256
WAITING_OF_PRINCIPAL_MAX = 2048  # where principals have quotas
RECENT_S = 30.0  # a client that follows calls again much sooner
SELECTIONS_MAX = 1000
_SLEEP_S = 1.0
_EVERYTHING = "**"
_SLICES = re.compile(r" slice [0-9,-]+")


class ClientRead:
    """A reader that serves one client; one thread at a time."""

    __slots__ = ("_lock", "_read")

    def __init__(self, read: Read) -> None:
        self._read, self._lock = read, threading.Lock()

    def read(self, position: int, stop: int | None, most: int) -> Batch:
        with self._lock:
            return self._read(position, stop, most)


class WaitingReads:
    """Holds reads that have nothing to return yet; one thread serves them all.

    The thread sleeps until a product is put or the first deadline passes, and hands reads that can be answered to
    `resume`. While no read waits, puts do not wake it.
    """

    def __init__(self, queue: Queue, resume: Callable[[PendingCall], None]) -> None:
        self._queue, self._resume = queue, resume
        self._waiting: list[PendingCall] = []
        self._of = Counter[Principal]()  # how many reads of each principal wait
        self._lock = threading.Lock()
        self._is_used = threading.Event()  # at least one read waits
        self._follower = queue.follow(queue.next)
        self._wakes_at = 0.0
        self._is_woken = False  # the follower was stopped, and must be replaced
        self._stopped = False
        self._thread = GuardedThread(self._run, "headrace-waiting", until=lambda: self._stopped)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, read: PendingCall) -> None:
        """Wait until there is a product at the read's position, or its deadline passes. Busy if too many wait."""
        with self._lock:
            if self._stopped:
                read.deadline = 0.0
            is_due = self._stopped or read.position < self._queue.next
            if not is_due:
                if len(self._waiting) >= WAITING_MAX or read.client.waiting >= WAITING_OF_ONE_MAX:
                    raise Busy
                if read.client.principal.has_limits and self._of[read.client.principal] >= WAITING_OF_PRINCIPAL_MAX:
                    raise Busy
                read.client.waiting += 1
                self._of[read.client.principal] += 1
                self._waiting.append(read)
                self._is_used.set()
                if read.deadline < self._wakes_at:
                    self._is_woken = True
                    self._follower.stop()
        if is_due:
            self._resume(read)

    def _run(self) -> None:
        while not self._stopped:
            self._is_used.wait()
            for read in self._due():
                with counted("headrace-waiting"):
                    self._resume(read)
            if self._is_used.is_set():
                self._follower.wait(max(0.0, self._wakes_at - time.monotonic()))

    def _due(self) -> list[PendingCall]:
        """Take out the reads that can be answered, and decide when to look again."""
        with self._lock:
            usable = self._is_usable()
            if self._is_woken and usable:
                self._follower, self._is_woken = self._queue.follow(self._queue.next), False
            now = time.monotonic()
            head = self._follower.position = self._queue.next
            due = [read for read in self._waiting if not usable or read.position < head or read.deadline <= now]
            if due:
                gone = set(due)
                self._waiting = [read for read in self._waiting if read not in gone]
            for read in due:
                read.client.waiting -= 1
                self._of[read.client.principal] -= 1
                if not self._of[read.client.principal]:
                    del self._of[read.client.principal]
            if not self._waiting and not self._stopped:
                self._is_used.clear()
            self._wakes_at = min([now + _SLEEP_S, *(read.deadline for read in self._waiting)])
            return due

    def _is_usable(self) -> bool:
        """False if the queue refuses to be read, as after its directory was moved; the clients then hear why."""
        try:
            log_of(self._queue).check_open()
        except HeadraceError:
            return False
        return True

    def close(self) -> None:
        """Answer every read as if its deadline had passed."""
        with self._lock:
            self._stopped = True
            left, self._waiting = self._waiting, []
            self._is_used.set()
            self._follower.stop()
        self._thread.join()
        for read in left:
            read.deadline = 0.0
            self._resume(read)


class RecentReads:
    """The selections that clients of one site read lately. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}  # moment of the last read, by the text of the selection

    def __len__(self) -> int:
        return len(self._last)

    def note(self, selection: str) -> None:
        """A client reads by this selection now. Its slices do not matter: nodes change theirs all the time."""
        now, selection = time.monotonic(), _SLICES.sub("", selection)
        with self._lock:
            if len(self._last) > SELECTIONS_MAX:
                self._last = {text: then for text, then in self._last.items() if now - then < RECENT_S}
            if len(self._last) <= SELECTIONS_MAX or selection in self._last:
                self._last[selection] = now

    def patterns(self) -> set[str]:
        """The feeds that were read lately; all feeds if there are too many selections to list."""
        now = time.monotonic()
        with self._lock:
            recent = [text for text, then in self._last.items() if now - then < RECENT_S]
        return {_feeds(text) for text in recent} if len(recent) <= SELECTIONS_MAX else {_EVERYTHING}


def _feeds(selection: str) -> str:
    try:
        return Selection.parse(selection).feed or _EVERYTHING
    except SelectionError:  # the read itself was refused as well
        return _EVERYTHING
