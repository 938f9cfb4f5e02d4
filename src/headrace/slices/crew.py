"""Crew: the workers of a node: who does what, who is slow, and who hangs.

Each worker has one task at a time (tasks.py). A product that takes long holds up no slice but its own: the rest of its
task goes to others. A worker whose product hangs, or that ends, is replaced.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headrace.errors import OptionError
from headrace.slices.conductor import Conductor
from headrace.slices.confirming import Confirming
from headrace.slices.process_worker import ProcessWorker
from headrace.slices.tasks import Outcome, Task, Work, nothing_done
from headrace.slices.workers import AsyncWorker, Finished, Loop, ThreadWorker, Worker, is_async

SLOW_S = 0.1  # of one product: the others of its task are taken back, and its time is reported before its end
STARTS_MAX = 5  # worker processes in a row that end before they are ready
BACKLOG_PRODUCTS, BACKLOG_BYTES = 16_384, 64 << 20
_RETRY_S = 0.5  # after a worker that ended before it had begun

log = logging.getLogger("headrace.slices")


@dataclass(frozen=True, slots=True)
class Labour:
    """What the workers do, and how."""

    work: Work
    workers: int
    batches: bool
    use: Literal["threads", "processes"]
    retry_s: float  # the pause after a failed attempt
    hung_after_s: float  # when an attempt is given up


class Crew:
    """The workers. One thread uses it; `post` is called by others, when a task is done."""

    def __init__(self, labour: Labour, conductor: Conductor, confirming: Confirming, post: Finished) -> None:
        self._labour, self._conductor, self._confirming, self._post = labour, conductor, confirming, post
        self._loop = Loop() if is_async(labour.work) else None
        self._begin_s = 0.0  # not before
        self._note_s = 0.0  # when to look again at what is in work
        self._starts = 0  # that failed, since the last one that did not
        self._is_ending = False
        self.workers = [self._new_worker() for _ in range(labour.workers)]

    def _new_worker(self) -> Worker:
        if self._loop is not None:
            return AsyncWorker(self._labour.work, self._labour.batches, self._post, self._loop)
        kind = ProcessWorker if self._labour.use == "processes" else ThreadWorker
        return kind(self._labour.work, self._labour.batches, self._post)

    def has_room(self) -> bool:
        """Whether more products may be read."""
        backlog = self._conductor.backlog
        return backlog.products < BACKLOG_PRODUCTS and backlog.bytes < BACKLOG_BYTES

    def dispatch(self, nudge: Callable[[], None]) -> None:
        """Give tasks to idle workers; `nudge` is called if that makes room for more products."""
        conductor, now_s = self._conductor, time.monotonic()
        if now_s < self._begin_s or not self._confirming.has_room_for_results(now_s):
            return
        had_room = self.has_room()
        conductor.take_back()
        for worker in self.workers:
            if worker.task is None:
                task = conductor.next_task(now_s)
                if task is None:
                    if not had_room:
                        conductor.set_aside()
                    break
                if self._confirming.may_begin(task):
                    worker.begin(task)
        if not had_room and self.has_room():
            nudge()

    def finish(self, worker: Worker, task: Task, outcome: Outcome) -> None:
        """Take in what became of a task."""
        if worker.task is not task:  # it was given up meanwhile
            return
        worker.task = None
        if outcome.ended:
            self._replace(worker)
            if not outcome.failures:  # it ended before it had begun: no product is to blame
                log.error("node %s: %s before it began", self._confirming.name, outcome.ended)
                self._begin_s = time.monotonic() + _RETRY_S
        self._count_starts(worker, outcome)
        for failure in self._conductor.finish(task, outcome, time.monotonic(), self._labour.retry_s):
            self._confirming.fail(failure)
        self._confirming.is_dirty = True

    def _count_starts(self, worker: Worker, outcome: Outcome) -> None:
        """Processes that never start own slices and do nothing: end the node, so that others get them."""
        self._starts = 0 if worker.has_started else self._starts + 1
        if self._starts >= STARTS_MAX:
            raise OptionError(
                f"{STARTS_MAX} worker processes in a row ended before they were ready: {outcome.ended}; "
                "what they have written to stderr says why",
                'start the node under `if __name__ == "__main__":`, and give a function that a new process can import',
            )

    def _replace(self, worker: Worker) -> None:
        if self._is_ending:
            return
        if self._loop is not None and not self._loop.responds():
            self._leave_loop(worker)
        self.workers[self.workers.index(worker)] = self._new_worker()

    def _leave_loop(self, worker: Worker) -> None:
        """This worker has blocked the event loop: leave it behind. The others do their tasks again in another one."""
        name = self._confirming.name
        log.error("node %s: a coroutine blocks the event loop, without an await; it is left behind", name)
        self._loop = Loop()
        for place, other in enumerate(self.workers):
            if other is worker:
                continue
            self.workers[place] = self._new_worker()
            if other.task is not None:
                self._conductor.finish(other.task, nothing_done(other.task), time.monotonic(), 0.0)
                other.task = None

    def watch(self) -> None:
        """Give up workers that hang; take back what a worker with a slow product has not begun."""
        now_s = time.perf_counter()
        limit = now_s - self._labour.hung_after_s
        notes = now_s >= self._note_s
        if notes:
            self._note_s = now_s + SLOW_S
        for worker in list(self.workers):
            since, task = worker.hangs_since(), worker.task
            if task is None or since is None:
                continue
            if since < now_s - SLOW_S and len(task) > 1:
                self._take_rest(worker, task)
            if notes and since < now_s - SLOW_S:
                place = worker.place
                if worker.hangs_since() == since:  # it is that of this product
                    self._conductor.note_in_work(task, place, int((now_s - since) * 1e9))
            if since < limit:
                outcome = worker.give_up(f"the work did not end within {self._labour.hung_after_s:g} s")
                log.warning("node %s: %s", self._confirming.name, outcome.ended)
                self.finish(worker, task, outcome)

    def _take_rest(self, worker: Worker, task: Task) -> None:
        """One product takes long: let other workers go on with the rest of its task."""
        kept = worker.keep_rest()
        if kept is not None:
            for failure in self._conductor.take_rest(task, *kept, time.monotonic(), self._labour.retry_s):
                self._confirming.fail(failure)
            self._confirming.is_dirty = True

    def replace_none(self) -> None:
        """The node stops: a worker that ends from now on is not replaced."""
        self._is_ending = True

    def end(self) -> None:
        for worker in self.workers:
            if worker.task is None:
                worker.stop()
            else:
                worker.give_up("the node ends")
        if self._loop is not None:
            self._loop.stop()
