"""WaitingGets: gets of remote consumers that found nothing yet, and the threads that serve all of them.

A site with a thousand remote consumers has as many threads as one with ten:

    headrace-get         eight. One leads: it sleeps until something is put or comes back, finds the stations at
                         which a get is worth an attempt, and leases products to the client that has waited longest.
                         Then it lets the next one lead, and sends the reply itself. So a product leaves as soon as it
                         was put. A client whose link is slow holds up one thread (outbox.py), and all clients of one
                         principal half of them: what they get beyond that is sent with their calls
    headrace-deadline    one. It hands gets whose time is over to the executor
    headrace-consumer    an executor. It executes the calls of consumers, in the order of each (consumer.py)
    headrace-scan        one for each chain at which functions of users decide, while there is something to scan
                         (scans.py): no other thread calls them

No wake-up is lost. The leader notes the wake number of the queue (`_seen`), looks at the stations, and sleeps only as
long as the number is the same. A get that finds nothing joins after its attempt. If the number has changed since before
that attempt, and the leader has seen the change already, it may have looked before the get had joined: then the get is
tried again.

The gets of one station are tried in the order in which they came, up to the first that finds nothing. Stations take
turns. What a waiting consumer of a program does beside waiting happens in these attempts too: it looks for dead
consumers and for a queue that was moved, and reads changed terms (LOOK_S, station/consumer.py).
"""

import enum
import heapq
import itertools
import logging
import math
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING

from headrace.guard import FAILURES, GuardedThread
from headrace.link.fair import Busy, FairThreads
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.remote.protocol.calls import Get
from headrace.remote.server.downloads import Downloads
from headrace.remote.server.pending_call import PendingCall
from headrace.remote.server.scans import FunctionScans
from headrace.station.served import Origin, find_ready, now_ns_of, origin_of

if TYPE_CHECKING:
    from headrace.remote.server.consumer import ServedConsumer

GET_THREADS = 8
THREADS = 8  # that execute calls, at most
LOOK_S = 0.2  # how long the leader sleeps at most: dead consumers and start times wake nobody

Send = Callable[[], None]  # sends a reply

log = logging.getLogger("headrace.remote.server")


class NotYet(enum.Enum):
    """Why a get was not answered."""

    EMPTY = enum.auto()  # nothing waits for it, and it may wait longer
    FILLING = enum.auto()  # products wait, and its batch may still fill
    BUSY = enum.auto()  # another thread executes a call of its consumer, and tries the get afterwards


class WaitingGet:
    """A get that has no reply yet. Its consumer owns it; `ServedConsumer.deliver` answers it once."""

    __slots__ = (
        "__weakref__", "call", "deadline", "ends", "filling_until", "is_filled", "pending", "served", "tried_at",
    )  # fmt: skip

    def __init__(self, served: "ServedConsumer", pending: PendingCall, call: Get) -> None:
        self.served, self.pending, self.call = served, pending, call
        self.deadline = time.monotonic() + call.wait_s
        self.ends = False  # an empty reply rather than waiting
        self.filling_until: float | None = None  # pacing: when its batch has had enough time to fill
        self.is_filled = False
        self.tried_at = math.inf  # when it is tried again at the latest

    @property
    def is_due(self) -> bool:
        return self.ends or time.monotonic() >= self.deadline


Station = dict[WaitingGet, None]  # the gets that wait at it, in the order in which they came


class WaitingGets:
    """One for a site. Threads run from the beginning until `close`."""

    def __init__(self, queue: Queue) -> None:
        self.downloads = Downloads()  # replies that clients fetch in parts, those of reads included
        self.queue, self._log = queue, log_of(queue).kernel
        self._stations: dict[Origin, Station] = {}
        self._lock = threading.Lock()
        self._is_used = threading.Condition(self._lock)
        self._sending = Counter[Hashable]()  # get threads that send, by whom it is for
        self._seen: int | None = None  # the wake number with which the leader sleeps; None: it will look again
        self._ready: deque[Station] = deque()  # found by the leader, and not tried yet; only it uses this
        self._tried: int | None = None  # the wake number at which it has tried all; only it uses this
        self._leading = threading.Lock()
        self._times: list[tuple[float, int, weakref.ref[WaitingGet]]] = []  # a heap: when to try a get again
        self._times_changed = threading.Condition(threading.Lock())
        self._ticks = itertools.count()
        self._stopped = False
        self.scans = FunctionScans()
        self._threads = FairThreads(THREADS, "headrace-consumer")
        names = [(self._run, "headrace-get")] * GET_THREADS + [(self._watch_times, "headrace-deadline")]
        self._own_threads = [GuardedThread(run, name, until=lambda: self._stopped, daemon=True) for run, name in names]
        for thread in self._own_threads:
            thread.start()

    def __len__(self) -> int:
        with self._lock:
            return sum(len(station) for station in self._stations.values())

    def run(self, turn: Hashable, act: Callable[[], None]) -> None:
        """Execute this in the threads for calls; Busy if the site has closed them."""
        self._threads.submit(turn, _call, act)

    def serve(self, get: WaitingGet) -> None:
        """Answer a get now, or let it wait."""
        while True:
            seen = self._log.wake_number
            outcome = get.served.deliver(get, at_once=False)
            if not isinstance(outcome, NotYet):
                self.remove(get)
                outcome()
                return
            if self._add(get, seen):
                return

    def serve_later(self, get: WaitingGet) -> None:
        """As `serve`, in the executor."""
        if not self._stopped:
            self.run(get.served.turn, lambda: self.serve(get))

    def remove(self, get: WaitingGet) -> None:
        """It waits no longer."""
        origin = origin_of(get.served.consumer)
        with self._lock:
            station = self._stations.get(origin)
            if station is not None:
                station.pop(get, None)
                if not station:
                    del self._stations[origin]

    def _add(self, get: WaitingGet, seen: int) -> bool:
        """Let a get wait; False if it must be tried once more. `seen` is the wake number before its attempt."""
        with self._lock:
            if self._stopped:
                get.ends = True
                return False
            self._stations.setdefault(origin_of(get.served.consumer), {})[get] = None
            self._is_used.notify()
            leaders, now = self._seen, self._log.wake_number
        self._note_time(get)
        return get.served.is_waiting(get) and (leaders in (None, seen) or leaders != now)

    # --- in the get threads -----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            try:
                with self._leading:
                    send = self._lead()
                if send is None:
                    return
                send()
            except Exception as error:  # noqa: BLE001 the others go on, and so must this thread
                FAILURES.note("headrace-get", error)

    def _lead(self) -> Send | None:
        """Sleep until a get can be answered; what sends the reply. None when the site ends."""
        while not self._stopped:
            while self._ready:
                station = self._ready.popleft()
                send = self._try(station)
                if send is not None:
                    self._ready.append(station)  # for those behind it, after the other stations
                    return send
            self._look()
        return None

    def _try(self, station: Station) -> Send | None:
        """Answer one get of a station: the first of them that may be answered."""
        with self._lock:
            gets = list(station)
        for get in gets:
            outcome = get.served.deliver(get, at_once=True)
            if not isinstance(outcome, NotYet):
                self.remove(get)
                return partial(self._send, get.served.turn, outcome)
            if outcome is NotYet.EMPTY:
                break
            self._note_time(get)
        return None

    def _send(self, turn: Hashable, send: Send) -> None:
        """Send a reply here, or with the calls of the principal if its slow links hold up half of these threads."""
        with self._lock:
            may = self._sending[turn] < GET_THREADS // 2
            self._sending[turn] += may
        if not may:
            try:
                self.run(turn, send)
            except Busy:  # the site ends
                send()
            return
        try:
            send()
        finally:
            with self._lock:
                self._sending[turn] -= 1
                if not self._sending[turn]:
                    del self._sending[turn]

    def _look(self) -> None:
        """Find the stations at which a get is worth an attempt; if they were tried, sleep until something happens."""
        with self._lock:
            if not self._stations:
                self._is_used.wait_for(lambda: self._stations or self._stopped)
                return
            seen = self._seen = self._log.wake_number
            origins, stations = list(self._stations), list(self._stations.values())
            some = next(iter(stations[0]))
        chains, members = [chain for chain, _ in origins], [member for _, member in origins]
        if seen != self._tried:
            found = find_ready(chains, members, now_ns_of(some.served.consumer))
            self._ready.extend(stations[index] for index in found)
            self._tried = seen
        if not self._ready and not self._stopped:
            chains[0].wait(seen, LOOK_S)
            self._tried = None
        self._seen = None

    # --- time -------------------------------------------------------------------------------------

    def _note_time(self, get: WaitingGet) -> None:
        """Have a get tried again when its time is over, or when its batch has filled for long enough."""
        filled = get.deadline if get.filling_until is None or get.is_filled else get.filling_until
        when = min(get.deadline, filled)
        if when >= get.tried_at:
            return
        with self._times_changed:
            get.tried_at = when
            heapq.heappush(self._times, (when, next(self._ticks), weakref.ref(get)))
            if self._times[0][0] == when:
                self._times_changed.notify()

    def _watch_times(self) -> None:
        """Try gets again whose time is over, or whose batch has filled for long enough."""
        while not self._stopped:
            with self._times_changed:
                left_s = self._times[0][0] - time.monotonic() if self._times else None
                if left_s is None or left_s > 0:
                    self._times_changed.wait(left_s)
                    continue
                get = heapq.heappop(self._times)[2]()
                if get is not None:
                    get.tried_at = math.inf
            if get is not None and get.served.is_waiting(get):
                self.serve_later(get)

    def close(self) -> None:
        """End the threads; the consumers have ended before, and no get waits."""
        with self._lock:
            self._stopped = True
            self._is_used.notify_all()
        self.scans.close()
        with self._times_changed:
            self._times_changed.notify_all()
        self._log.wake_all()
        for thread in self._own_threads:
            thread.join()
        self._threads.shutdown()


def _call(act: Callable[[], None]) -> None:
    act()
