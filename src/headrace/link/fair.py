"""FairThreads: a few threads that serve all principals in turn, so that none of them makes the others wait.

Work is queued by whom it is for, and the threads take one piece from each queue, round robin: who sends a thousand
calls waits for them, and who sends one call waits for one call of each of the others. One principal never occupies all
threads, because a call may take long and a reply may wait for a slow link.

A queue has room for WORK_MAX pieces, divided among those for whom something waits, and always for a few. Beyond that
the caller hears Busy (`check_room`).
"""

import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Any

from headrace.guard import FAILURES, GuardedThread

WORK_MAX = 1024  # pieces that wait, as long as few principals share the threads
SHARE_MIN = 16  # of each principal, however many there are

Work = tuple[Callable[[Any], None], Any]
_TURN_S = 0.0005  # of a thread that computes, while others wait


def take_short_turns() -> None:
    """Let no thread of this process keep the interpreter for long while others wait for it.

    A call needs the interpreter several times until its reply is sent. With the usual 5 ms, three threads that search
    the queue for one principal add more than 50 ms to every call of the others.
    """
    sys.setswitchinterval(_TURN_S)


class Busy(Exception):  # noqa: N818
    """A limit of the site is reached; the client may retry."""


class FairThreads:
    """Threads start when there is work for them. Any thread may submit."""

    def __init__(self, threads: int, name: str) -> None:
        self._most, self._name = threads, name
        self._waiting: OrderedDict[Hashable, deque[Work]] = OrderedDict()  # whose turn is next comes first
        self._running: Counter[Hashable] = Counter()
        self._threads: list[threading.Thread] = []
        self._idle = self._pieces = 0  # threads that wait, and pieces
        self._lock = threading.Lock()
        self._is_work = threading.Condition(self._lock)
        self._is_closed = False

    def __len__(self) -> int:
        """How many pieces wait."""
        return self._pieces

    def check_room(self, who: Hashable) -> None:
        """Busy if too much waits for this principal."""
        with self._lock:
            own = self._waiting.get(who)
            if own is not None and len(own) >= max(SHARE_MIN, WORK_MAX // len(self._waiting)):
                raise Busy

    def submit(self, who: Hashable, act: Callable[[Any], None], what: Any) -> None:
        """Call `act(what)` in a thread; Busy if they are closed."""
        with self._lock:
            if self._is_closed:
                raise Busy
            self._waiting.setdefault(who, deque()).append((act, what))
            self._pieces += 1
            if self._pieces > self._idle and len(self._threads) < self._most:  # an idle thread may be about to take one
                name = f"{self._name}_{len(self._threads)}"
                self._threads.append(GuardedThread(self._run, name, until=lambda: self._is_closed))
                self._threads[-1].start()
            self._is_work.notify()

    def shutdown(self, *, cancel: bool = False) -> None:
        """End the threads, after what waits was done; or at once, with `cancel`."""
        with self._lock:
            self._is_closed = True
            if cancel:
                self._waiting.clear()
                self._pieces = 0
            self._is_work.notify_all()
        for thread in self._threads:
            thread.join()

    # --- in the threads ---------------------------------------------------------------------------

    def _run(self) -> None:
        while (found := self._next()) is not None:
            who, (act, what) = found
            try:
                act(what)
            except Exception as error:  # noqa: BLE001 the others must be served
                FAILURES.note(self._name, error)
            finally:
                self._end(who)
                del act, what, found

    def _next(self) -> tuple[Hashable, Work] | None:
        """Wait for work; None at the end."""
        with self._lock:
            while True:
                who = self._whose_turn()
                if who is not None:
                    break
                if self._is_closed and not self._waiting:
                    self._is_work.notify_all()  # those that wait because one principal had its most
                    return None
                self._idle += 1
                self._is_work.wait()
                self._idle -= 1
            work = self._waiting[who]
            piece = work.popleft()
            self._pieces -= 1
            if work:
                self._waiting.move_to_end(who)
            else:
                del self._waiting[who]
            self._running[who] += 1
            return who, piece

    def _whose_turn(self) -> Hashable | None:
        """The first who may have another thread: one is always left to the others."""
        most = max(1, self._most - 1)
        return next((who for who in self._waiting if self._running[who] < most), None)

    def _end(self, who: Hashable) -> None:
        with self._lock:
            self._running[who] -= 1
            if not self._running[who]:
                del self._running[who]
            if self._waiting:
                self._is_work.notify()
