"""Pool: a fixed number of threads that run everything that a receiver does with other sites, step by step.

    task = pool.task("denver", step)    # nothing happens yet
    task.wake()                         # from any thread: `step` runs soon; waking it again meanwhile is not forgotten
    task.wake_at(monotonic_seconds)     # it runs then, or earlier

A step must not wait for anything that another site does: it begins a query, say, and returns, and the reply wakes the
task. So however many sites there are, and whatever they say or do not say, the threads are the same. One thread at a
time runs a task. Sites take turns, and one site has a limited share of the threads, because a step may wait for a short
time for the disk, for a lock, or for room in the queue.

Threads are started when they are first needed, up to the fixed number; one more looks at the times.

No thread of the pool ends before `close`: what a step raises is counted (guard.py), and the others go on.
"""

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count

from headrace.guard import GuardedThread, counted

THREADS = 8
AT_A_TIME = 2  # of the tasks of one site
NAME = "headrace-receive"  # of the threads, and of what they outlive


class Task:
    """A step that is run whenever somebody wakes it. Made by a pool, and all of its fields are the pool's."""

    __slots__ = ("_pool", "due", "is_running", "is_woken", "site", "step")

    def __init__(self, pool: "Pool", site: str, step: Callable[[], None]) -> None:
        self._pool, self.site, self.step = pool, site, step
        self.is_woken = self.is_running = False
        self.due: float | None = None

    def wake(self) -> None:
        self._pool.wake(self)

    def wake_at(self, when: float) -> None:
        """At this time, in monotonic seconds. Of several times the earliest counts, so a step may be run in vain."""
        self._pool.wake_at(self, when)


class Pool:
    """Runs until `close`."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads_max = threads
        self._lock = threading.Lock()
        self._has_work, self._has_earlier = threading.Condition(self._lock), threading.Condition(self._lock)
        self._ready: OrderedDict[str, deque[Task]] = OrderedDict()  # by site; the next turn comes first
        self._running: Counter[str] = Counter()  # by site
        self._times: list[tuple[float, int, Task]] = []
        self._numbers = count()
        self._threads: list[GuardedThread] = []
        self._idle = 0  # threads that wait and have not been notified
        self._is_closed = False
        self._start(self._watch_times, "headrace-receive-times")
        self._start(self._work, f"{NAME}-0")

    def task(self, site: str, step: Callable[[], None]) -> Task:
        return Task(self, site, step)

    def wake(self, task: Task) -> None:
        with self._lock:
            self._wake(task)

    def wake_at(self, task: Task, when: float) -> None:
        with self._lock:
            if task.due is None or when < task.due:
                task.due = when
                heappush(self._times, (when, next(self._numbers), task))
                if self._times[0][2] is task:
                    self._has_earlier.notify()

    def close(self) -> None:
        """Return when no step runs any more; none is run after that."""
        with self._lock:
            self._is_closed = True
            self._has_work.notify_all()
            self._has_earlier.notify_all()
        for thread in self._threads:
            thread.join()

    # --- under the lock -----------------------------------------------------------------------------

    def _wake(self, task: Task) -> None:
        if task.is_woken or self._is_closed:
            return
        task.is_woken = True
        if not task.is_running:
            self._enqueue(task)

    def _enqueue(self, task: Task) -> None:
        self._ready.setdefault(task.site, deque()).append(task)
        if self._idle:
            self._idle -= 1
            self._has_work.notify()
        elif (number := len(self._threads) - 1) < self._threads_max:
            with suppress(RuntimeError):  # the system has no thread left: those that run do the work
                self._start(self._work, f"{NAME}-{number}")

    def _start(self, run: Callable[[], None], name: str) -> None:
        thread = GuardedThread(run, name, until=lambda: self._is_closed)
        thread.start()
        self._threads.append(thread)

    def _next(self) -> Task | None:
        """Take the next task whose site has not enough threads already; None: there is none."""
        for site, tasks in self._ready.items():
            if self._running[site] < AT_A_TIME:
                task = tasks.popleft()
                del self._ready[site]
                if tasks:
                    self._ready[site] = tasks  # behind all others
                return task
        return None

    # --- threads ------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._lock:
                while (task := None if self._is_closed else self._next()) is None:
                    if self._is_closed:
                        return
                    self._idle += 1
                    self._has_work.wait()
                task.is_woken, task.is_running = False, True
                self._running[task.site] += 1
            with counted(NAME):  # whatever it is, the other tasks must go on
                task.step()
            with self._lock:
                task.is_running = False
                self._running[task.site] -= 1
                if not self._running[task.site]:
                    del self._running[task.site]
                if task.is_woken:
                    self._enqueue(task)

    def _watch_times(self) -> None:
        with self._lock:
            while not self._is_closed:
                self._has_earlier.wait(self._wake_due())

    def _wake_due(self) -> float | None:
        """Wake the tasks whose time has come; how long it is until the next one."""
        now = time.monotonic()
        while self._times and self._times[0][0] <= now:
            when, _, task = heappop(self._times)
            if task.due == when:
                task.due = None
                self._wake(task)
        return self._times[0][0] - now if self._times else None
