"""WaitingReads: where questions wait that have no answer yet, all of them with one thread.

It sleeps until something is put, or until the first of those who wait has waited long enough, and hands whoever may be
answered back to those who answer. While nobody waits, puts do not wake it.
"""

import threading
import time
from collections.abc import Callable

from headrace.errors import SelectionError
from headrace.queue import Queue
from headrace.remote.server.pending_call import Busy, PendingCall
from headrace.selection import Selection

WAITING_MAX = 4096
WAITING_OF_ONE_MAX = 256
_SLEEP_S = 1.0


class WaitingReads:
    """`call` takes an errand whose time has come."""

    def __init__(self, queue: Queue, call: Callable[[PendingCall], None]) -> None:
        self._queue, self._call = queue, call
        self._waiting: list[PendingCall] = []
        self._lock = threading.Lock()
        self._is_used = threading.Event()  # somebody waits
        self._waiter = queue.follow(queue.next)
        self._wakes_at = 0.0
        self._is_called = False  # the waiter was stopped, and is of no more use
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="headrace-lobby")
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, errand: PendingCall) -> None:
        """Wait until there is something at the errand's position, or its deadline has come."""
        with self._lock:
            if errand.position < self._queue.next or self._stopped:
                is_due = True
            else:
                if len(self._waiting) >= WAITING_MAX or errand.client.waiting >= WAITING_OF_ONE_MAX:
                    raise Busy
                is_due = False
                errand.client.waiting += 1
                self._waiting.append(errand)
                self._is_used.set()
                if errand.deadline < self._wakes_at:
                    self._is_called = True
                    self._waiter.stop()
        if is_due:
            self._call(errand)

    def _run(self) -> None:
        while not self._stopped:
            self._is_used.wait()
            for errand in self._due():
                self._call(errand)
            if self._is_used.is_set():
                self._waiter.wait(max(0.0, self._wakes_at - time.monotonic()))

    def _due(self) -> list[PendingCall]:
        """Whose time has come; and when to look again."""
        with self._lock:
            if self._is_called:
                self._waiter, self._is_called = self._queue.follow(self._queue.next), False
            now = time.monotonic()
            head = self._waiter.position = self._queue.next
            due = [errand for errand in self._waiting if errand.position < head or errand.deadline <= now]
            if due:
                self._waiting = [errand for errand in self._waiting
                                 if errand.position >= head and errand.deadline > now]  # fmt: skip
            for errand in due:
                errand.client.waiting -= 1
            if not self._waiting and not self._stopped:
                self._is_used.clear()
            self._wakes_at = min([now + _SLEEP_S, *(errand.deadline for errand in self._waiting)])
            return due

    def close(self) -> None:
        """Everybody is answered as if the time was over."""
        with self._lock:
            self._stopped = True
            left, self._waiting = self._waiting, []
            self._is_used.set()
            self._waiter.stop()
        self._thread.join()
        for errand in left:
            errand.deadline = 0.0
            self._call(errand)


# --- merged from remote.server.readers: RecentReads: what u
#


READ_S = 30.0  # who follows asks again much sooner
SELECTIONS_MAX = 1000
_EVERYTHING = "**"


class RecentReads:
    """Of one site. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}  # by the text of a selection

    def __len__(self) -> int:
        return len(self._last)

    def note(self, selection: str) -> None:
        """Somebody reads what this selection wants."""
        now = time.monotonic()
        with self._lock:
            if len(self._last) > SELECTIONS_MAX:
                self._last = {text: then for text, then in self._last.items() if now - then < READ_S}
            if len(self._last) <= SELECTIONS_MAX or selection in self._last:
                self._last[selection] = now

    def patterns(self) -> set[str]:
        """The feeds that somebody has read just now; all of them, if those are too many to tell."""
        now = time.monotonic()
        with self._lock:
            recent = [text for text, then in self._last.items() if now - then < READ_S]
        return {_feeds(text) for text in recent} if len(recent) <= SELECTIONS_MAX else {_EVERYTHING}


def _feeds(selection: str) -> str:
    try:
        return Selection.parse(selection).feed or _EVERYTHING
    except SelectionError:  # it was refused, too
        return _EVERYTHING
