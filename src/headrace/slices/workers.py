"""Workers: who calls the user's function. One task at a time each.

    ThreadWorker     a thread
    AsyncWorker      a coroutine function, in the one event loop of the node
    process_worker   a process (process_worker.py)

A worker whose product hangs is given up: a thread cannot be ended, so it is left behind, and whatever it does later
counts for nothing; a process is killed. Another worker takes its place.
"""

import asyncio
import inspect
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from headrace.guard import OnceThread
from headrace.slices.tasks import (
    PRODUCTS_MAX,
    TASK_NS_MAX,
    Outcome,
    Pulse,
    Task,
    Work,
    error_text,
    given_up,
    results_of,
    work_on_batches,
    work_through,
)

_TURN_S = 1.0  # for a turn of the event loop

Finished = Callable[["Worker", Task, Outcome], None]


class Worker(Protocol):
    """Does one task at a time."""

    task: Task | None

    def begin(self, task: Task) -> None:
        """Start; `finished` is called from another thread when it is done."""

    def give_up(self, why: str) -> Outcome:
        """End what it does, for good; what became of its task."""

    @property
    def has_started(self) -> bool:
        """Whether it was ever ready to work."""

    @property
    def place(self) -> int:
        """Of the product in work, or the first one of the batch, as the worker counts; negative: none."""

    def keep_rest(self) -> tuple[int, Outcome | None] | None:
        """Begin no other product of its task; the place of the one in work, and what became of those before.

        None if nothing is in work, or its place is not certain yet. None instead of an outcome: that comes later.
        """

    def hangs_since(self) -> float | None:
        """Since when it works on one product, by `time.perf_counter`; None if it is idle."""

    def stop(self) -> None:
        """It is idle, and not needed any more."""


def run_task(task: Task, work: Work, batches: bool, pulse: Pulse) -> Outcome:
    if batches:
        return work_on_batches(task.batches(), work, pulse)
    return work_through(task.products(), task.slices.tolist(), work, pulse)


class ThreadWorker:
    """A thread that waits for tasks."""

    has_started = True

    def __init__(self, work: Work, batches: bool, finished: Finished) -> None:
        self.task: Task | None = None
        self._work, self._batches, self._finished = work, batches, finished
        self._pulse, self._is_given_up = Pulse(), False
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        OnceThread(self._run, "headrace-work").start()

    def begin(self, task: Task) -> None:
        self.task, self._pulse.stop = task, PRODUCTS_MAX
        self._tasks.put(task)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            outcome = run_task(task, self._work, self._batches, self._pulse)
            if self._is_given_up:
                return
            self._finished(self, task, outcome)

    def give_up(self, why: str) -> Outcome:
        self._is_given_up, self._pulse.stop = True, 0
        assert self.task is not None
        return given_up(len(self.task), self._pulse.place - self.task.begin, why)

    @property
    def place(self) -> int:
        return self._pulse.place

    def keep_rest(self) -> tuple[int, Outcome | None] | None:
        return None if self._batches else self._pulse.keep_rest()

    def hangs_since(self) -> float | None:
        return self._pulse.since_s if self._pulse.place >= 0 else None

    def stop(self) -> None:
        self._tasks.put(None)


class Loop:
    """The event loop of a node's coroutines, in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.tasks: weakref.WeakSet[Any] = weakref.WeakSet()  # of workers
        self._thread = OnceThread(self.loop.run_forever, "headrace-loop")
        self._thread.start()

    def is_held_by_another(self, task: "asyncio.Task[Any] | None") -> bool:
        """Whether another worker runs at this moment: if it has blocked the loop, this one is not to blame."""
        running = asyncio.current_task(self.loop)
        return running is not None and running is not task and running in self.tasks

    def responds(self) -> bool:
        """False if a coroutine has blocked it: no other one goes on."""
        turned = threading.Event()
        self.loop.call_soon_threadsafe(turned.set)
        return turned.wait(_TURN_S)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_TURN_S)
        if not self._thread.is_alive():
            self.loop.close()


class AsyncWorker:
    """Awaits one product after another of its task; many workers share the loop."""

    has_started = True

    def __init__(self, work: Work, batches: bool, finished: Finished, loop: Loop) -> None:
        self.task: Task | None = None
        self._work, self._batches, self._finished, self._loop = work, batches, finished, loop
        self._pulse = Pulse()
        self._future: Any = None
        self._task: asyncio.Task[Any] | None = None

    def begin(self, task: Task) -> None:
        self.task, self._pulse.stop = task, PRODUCTS_MAX
        self._future = asyncio.run_coroutine_threadsafe(self._run(task), self._loop.loop)

    async def _run(self, task: Task) -> None:
        self._task = asyncio.current_task()
        self._loop.tasks.add(self._task)
        steps = work_stepwise(task, self._work, self._batches, self._pulse)
        self._finished(self, task, await steps)

    def give_up(self, why: str) -> Outcome:
        self._pulse.is_given_up = True
        self._future.cancel()
        assert self.task is not None
        return given_up(len(self.task), self._pulse.place - self.task.begin, why)

    @property
    def place(self) -> int:
        return self._pulse.place

    def keep_rest(self) -> tuple[int, Outcome | None] | None:
        return None if self._batches else self._pulse.keep_rest()

    def hangs_since(self) -> float | None:
        if self._loop.is_held_by_another(self._task):
            return None
        return self._pulse.since_s if self._pulse.place >= 0 else None

    def stop(self) -> None:
        pass


async def work_stepwise(task: Task, work: Work, batches: bool, pulse: Pulse) -> Outcome:
    """As `work_through` and `work_on_batches`, for a coroutine function."""
    outcome = pulse.outcome = given_up(len(task), -1, "")
    slices = task.slices.tolist()
    failed: set[int] = set()
    place = 0
    last = time.perf_counter_ns() + TASK_NS_MAX
    for item in task.batches() if batches else task.products():
        count = len(item) if batches else 1  # type: ignore[arg-type]
        begin, place = place, place + count
        if slices[begin] in failed or (batches and failed):
            continue
        before = time.perf_counter_ns()
        if before > last:
            break
        pulse.since_s, pulse.place = before / 1e9, begin
        if begin >= pulse.stop:
            break
        try:
            value = await work(item)
            if batches:
                outcome.results.extend(results_of(item, value, begin))  # type: ignore[arg-type]
            elif value is not None:
                outcome.results.append((begin, value))
        except GeneratorExit:  # the loop has ended
            raise
        except BaseException as error:
            if pulse.is_given_up and isinstance(error, asyncio.CancelledError):
                raise
            outcome.failures.extend((each, error_text(error)) for each in range(begin, place))
            failed.update(slices[begin:place])
        else:
            outcome.done[begin:place] = True
        outcome.busy_ns[begin:place] = (time.perf_counter_ns() - before) // max(1, count)
    pulse.place = -1
    return outcome


def is_async(work: Work) -> bool:
    return inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(type(work).__call__)
