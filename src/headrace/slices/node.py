"""ProcessingNode: works on its share of a stream, together with other nodes, here or on other machines.

    def work(product): ...

    with ProcessingNode("wx.queue", "radar", work) as node:      or "tcp/site:7447"
        node.wait()

A node owns some slices of the stream. It reads them all with one reader (intake.py), gives products to its workers
(workers.py), keeps account of what is done (conductor.py), stores results in a sink if there is one, confirms, and
reports its load. One thread does all of that but reading and working; it never waits for either.

A node that cannot reach the queue's site goes on with what it has, and confirms later. If it was away for so long that
its slices went to others, it discards what is not confirmed and joins again.
"""

import logging
import os
import queue as queues
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Literal, Self, Unpack

import numpy as np

from headrace.channel.worker import ErrorLog
from headrace.errors import (
    HeadraceError,
    OptionError,
    SeatLostError,
    ShareMissingError,
    SinkFencedError,
    SinkRefusedError,
    SinkUnavailableError,
)
from headrace.queue.interface import AnyQueue
from headrace.remote import connect
from headrace.selection import Selection
from headrace.share.interface import NO_MARKS, AnySeat, AnyShare, Holding, Marks, Progress, ShareOptions
from headrace.share.interface import Work as Report
from headrace.slices.balancer import Balancer
from headrace.slices.conductor import Conductor, Failure
from headrace.slices.intake import Intake, Intaken
from headrace.slices.load import LoadMeter, Metrics
from headrace.slices.process_worker import ProcessWorker
from headrace.slices.sinks.interface import Result, Sink
from headrace.slices.sinks.queue import QueueSink
from headrace.slices.tasks import Outcome, Task, Work
from headrace.slices.workers import AsyncWorker, Loop, ThreadWorker, Worker, is_async
from headrace.units import parse_age

CONFIRM_S, STORE_S = 0.02, 0.5  # between two confirmations, while work goes on: without and with a sink
SLOW_S = 0.1  # of one product: the others of its task are taken back
BACKLOG_PRODUCTS, BACKLOG_BYTES = 16_384, 64 << 20
RESULTS_MAX = 65_536  # that wait for their sink
_LEAVE_S = 10.0  # for the balancer to move the slices of a node that stops
_RETRY_S = 0.5  # after an error of the queue or the sink

log = logging.getLogger("headrace.slices")
Age = float | str | timedelta


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """What a node has done since it was started."""

    products: int = 0  # done
    slices: int = 0  # owned now
    failed: int = 0  # attempts
    parked: int = 0
    lost: int = 0  # products that were evicted before they were read
    refused: int = 0  # confirmations that came too late: the slice was another's
    rejoined: int = 0  # times that the node was given up, and joined again
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class _Options:
    batches: bool
    retry_s: float
    hung_after_s: float


class ProcessingNode:
    """A node; several may run in one process. Use it by `with`, or call `run`."""

    def __init__(
        self, queue: AnyQueue | str | os.PathLike[str], stream: str, work: Work, *, group: str = "main",
        name: str = "", batches: bool = False, workers: int = 1, use: Literal["threads", "processes"] = "threads",
        sink: Sink | None = None, publish: str | None = None, retry: Age = "1s", hung_after: Age = "10min",
        metrics: Metrics | None = None,
        confirm: Age | None = None, balance: bool = True, **terms: Unpack[ShareOptions],
    ) -> None:  # fmt: skip
        """`work` is called with each product, or with batches; a coroutine function is awaited.

        `workers` work at a time, in threads or processes; products of one slice one after the other. What `work`
        returns goes to the `sink`, or with `publish` to that feed of the queue. A product whose work raises is tried
        again after `retry`, `tries_max` times in all, then parked; so is one that takes longer than `hung_after`.
        `metrics` returns numbers of your own for the reports. `confirm` is how often results are stored and positions
        confirmed: every 20 ms, with a sink every 500 ms; after a crash, so much work is repeated. Every node stands by
        as the balancer of its group, unless `balance` is off. The other terms are those of the group, for the first
        node that names it.
        """
        self._opened = connect(queue) if isinstance(queue, str | os.PathLike) else None
        self._queue: AnyQueue = self._opened or queue  # type: ignore[assignment]
        try:
            self._options = _Options(batches, parse_age(retry, "retry"), parse_age(hung_after, "hung_after"))
            self._check(workers, use, work, sink, publish)
            self._share: AnyShare = self._queue.share(stream, group, **terms)
            self._sink = sink if publish is None else _publishing(self._queue, self._share.feed, publish)
        except BaseException:
            if self._opened is not None:
                self._opened.close()
            raise
        self._work, self._use, self._name = work, use, name
        own = self._share.terms
        self._inbox: queues.SimpleQueue[Intaken | Exception | tuple[Worker, Task, Outcome] | None]
        self._inbox = queues.SimpleQueue()
        self._intake = Intake(self._queue, self._share.feed, own.slices, self._inbox.put, self._has_room)
        self._conductor = Conductor(own.slices, own.tries_max, self._intake.change, batches=batches)
        self._loop = Loop() if is_async(work) else None
        self._workers = [self._new_worker() for _ in range(workers)]
        self._meter = LoadMeter(float(workers), metrics)
        self._balancer = (
            Balancer(self._share, stream, group=group, name=name or f"node-{os.getpid()}") if balance else None
        )
        self._seat: AnySeat | None = None
        self._seen = 0
        self._unsent: Report | None = None
        self._beat_s = self._confirm_s = self._look_s = 0.0  # when to do it again
        self._beats_s = min(0.5, own.dead_after_s / 6)
        often_s = CONFIRM_S if self._sink is None else STORE_S
        self._confirms_s = often_s if confirm is None else parse_age(confirm, "confirm")
        self._begin_s = 0.0  # not before
        self._is_seated = self._is_dirty = self._is_draining = False
        self._in_sink_s: float | None = None  # since when the loop waits for its sink
        self._has_announced = False  # a product of a careful slice
        self._has_news = False  # of its slices: the next exchange comes at once
        self._is_stuck = False  # the last attempt to store or to confirm has failed
        self._stop_s: float | None = None  # from then on, a node that stops waits for nobody
        self._alone_s = 0.0  # from then on, it lets go of its slices by itself
        self._ask_s = 0.0  # whether others take them
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._gone = threading.Event()  # and not Thread.join: a signal during one would make the next return at once
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._statistics, self._errors = NodeStatistics(), ErrorLog(log)
        self._tries_max = own.tries_max

    def _check(self, workers: int, use: str, work: Work, sink: Sink | None, publish: str | None) -> None:
        if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= 1024:
            raise OptionError(f"workers {workers!r} is out of range", "use 1 to 1024")
        if use not in ("threads", "processes"):
            raise OptionError(f"use {use!r} is unknown", "choose threads or processes")
        if not callable(work):
            raise OptionError("work is not a function", "give a function of a product, or of a batch with batches=True")
        if use == "processes" and is_async(work):
            raise OptionError("a coroutine function runs in the event loop of the node", "leave `use` out")
        if sink is not None and publish is not None:
            raise OptionError("sink and publish exclude each other", "give one of them")

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Work in the background."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headrace-node", daemon=True)
            self._thread.start()
        return self

    def run(self) -> None:
        """Work until `stop` is called, the node is drained, or Ctrl-C or SIGTERM comes; a second one ends at once."""
        self.start()
        try:
            with _terminable():
                self.wait()
        finally:
            self.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the node has ended; True if it has. An error that ended it is raised."""
        assert self._thread is not None, "start the node first"
        has_ended = self._gone.wait(timeout)
        if self._error is not None:
            raise self._error
        return has_ended

    def stop(self) -> None:
        """Finish what is in work, hand the slices over, and leave the group."""
        self._stopping.set()
        self._inbox.put(None)
        if self._thread is None:
            self._end()
        elif self._thread is not threading.current_thread():
            self._gone.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._error is not None and kind is None:
            raise self._error

    @property
    def name(self) -> str:
        """Its name in the group; empty before it has joined."""
        return self._seat.name if self._seat is not None else self._name

    def statistics(self) -> NodeStatistics:
        conductor = self._conductor
        return replace(
            self._statistics, products=conductor.done, slices=int(np.count_nonzero(conductor.owned)),
            failed=conductor.failed, waiting=len(conductor.backlog),
        )  # fmt: skip

    # --- the loop ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._join()
            self._intake.start()
            if self._balancer is not None:
                assert self._seat is not None
                self._balancer.stand_by(self._seat.number).start()
            threading.Thread(target=self._watch, name="headrace-watch", daemon=True).start()
            while True:
                if self._stopping.is_set():
                    self._leave()
                self._exchange()
                if self._is_draining and (self._is_free() or self._is_hopeless()):
                    break
                self._watch_over_workers()
                self._dispatch()
                self._take_events()
        except BaseException as error:  # the caller of wait, run or stop gets it
            self._error = error
            log.exception("node %s ended", self.name)
        finally:
            try:
                self._end()
            finally:
                self._gone.set()

    def _join(self) -> None:
        self._seat = self._share.join(self._name)
        self._seen, self._is_seated, self._has_announced, self._beat_s = 0, True, False, 0.0
        log.info("node %s joined group %s of %s", self._seat.name, self._share.terms.group, self._share.terms.stream)

    def _leave(self) -> None:
        """Let the balancer move the slices; let go of them if nobody takes them, or it takes too long."""
        now_s = time.monotonic()
        if self._stop_s is None:
            self._stop_s = self._alone_s = now_s + _LEAVE_S
            self._is_draining = True
        if self._ask_s <= now_s < self._alone_s:
            self._ask_s = now_s + _RETRY_S
            if not self._ask_to_drain():
                self._alone_s = now_s
        if now_s >= self._alone_s:  # each time: the group does not know, and says otherwise
            self._conductor.leaving[:] = self._conductor.owned

    def _ask_to_drain(self) -> bool:
        """Ask the balancer to move the slices; False if it cannot: there is none, or no other node."""
        assert self._seat is not None
        try:
            state = self._share.state()
            mine = (self._seat.number, self._seat.name)
            if mine in {(node.seat, node.name) for node in state.nodes}:
                self._share.drain(self._seat.number)  # nothing is given to it any more
            others = (node for node in state.nodes if node.seat != self._seat.number)
            return bool(state.leader) and any(node.is_alive and not node.draining for node in others)
        except HeadraceError as error:
            log.warning("node %s leaves without being drained: %s", self.name, error)
            return False

    def _is_free(self) -> bool:
        return not self._conductor.owned.any() and not self._conductor.tasks

    def _is_hopeless(self) -> bool:
        """Whether a node that stops has waited long enough for a sink or a site that is away."""
        if not self._is_stuck or self._stop_s is None or time.monotonic() < self._stop_s:
            return False
        log.warning("node %s leaves without its last confirmations; other nodes repeat that work", self.name)
        return True

    def _end(self) -> None:
        self._stopping.set()
        self._ended.set()
        self._intake.stop()
        for worker in self._workers:
            if worker.task is None:
                worker.stop()
            else:
                worker.give_up("the node ends")
        if self._seat is not None:
            try:
                self._seat.leave()
            except HeadraceError as error:
                log.info("node %s: %s", self.name, error)
        if self._balancer is not None:
            self._balancer.stop()
        if self._loop is not None:
            self._loop.stop()
        if self._opened is not None:
            self._opened.close()

    def _watch(self) -> None:
        """Wake the loop whenever the group says that the node has to look again; while it waits for a sink, beat."""
        while not self._ended.is_set():
            try:
                seat, seen, since_s = self._seat, self._seen, self._in_sink_s
                if seat is None:
                    self._ended.wait(self._beats_s)
                elif since_s is not None and time.monotonic() > since_s + self._beats_s:
                    if time.monotonic() < since_s + self._options.hung_after_s:
                        seat.exchange(Progress(seen))
                    self._ended.wait(self._beats_s)
                elif seat.wait(seen, self._beats_s) != seen:
                    self._inbox.put(None)
                    self._ended.wait(0.001)  # the loop looks
            except HeadraceError:
                self._ended.wait(_RETRY_S)

    def _take_events(self) -> None:
        """Wait for something to happen, and take in all that has."""
        now_s = time.monotonic()
        until_s = min(self._beat_s, self._confirm_s if self._is_dirty else self._beat_s)
        try:
            event = self._inbox.get(timeout=0.0 if self._has_news else max(0.0, min(until_s - now_s, 0.25)))
        except queues.Empty:
            return
        while True:
            self._take(event)
            try:
                event = self._inbox.get_nowait()
            except queues.Empty:
                return

    def _take(self, event: Intaken | Exception | tuple[Worker, Task, Outcome] | None) -> None:
        if isinstance(event, Intaken):
            self._conductor.accept(event)
            self._is_dirty = True
        elif isinstance(event, HeadraceError):
            self._errors.add(f"node {self.name} reads on later", event)
        elif isinstance(event, Exception):
            raise event
        elif event is not None:
            self._finish(*event)

    def _has_room(self) -> bool:
        backlog = self._conductor.backlog
        return backlog.products < BACKLOG_PRODUCTS and backlog.bytes < BACKLOG_BYTES

    # --- work -------------------------------------------------------------------------------------

    def _new_worker(self) -> Worker:
        post: Callable[[Worker, Task, Outcome], None] = lambda *done: self._inbox.put(done)  # noqa: E731
        if self._loop is not None:
            return AsyncWorker(self._work, self._options.batches, post, self._loop)
        kind = ProcessWorker if self._use == "processes" else ThreadWorker
        return kind(self._work, self._options.batches, post)

    def _dispatch(self) -> None:
        conductor, now_s = self._conductor, time.monotonic()
        if now_s < self._begin_s or not self._has_room_for_results(now_s):
            return
        had_room = self._has_room()
        conductor.take_back()
        for worker in self._workers:
            if worker.task is None:
                task = conductor.next_task(now_s)
                if task is None:
                    if not had_room:
                        conductor.set_aside()
                    break
                if self._may_begin(task):
                    worker.begin(task)
        if not had_room and self._has_room():
            self._intake.nudge()

    def _has_room_for_results(self, now_s: float) -> bool:
        if self._sink is None or len(self._conductor.results) < RESULTS_MAX:
            return True
        if not self._is_stuck:
            self._confirm_s = min(self._confirm_s, now_s)
        return False

    def _may_begin(self, task: Task) -> bool:
        """Announce a product of a careful slice; park one that has ended its nodes too often."""
        is_careful = len(task) == 1 and bool(self._conductor.careful[task.slices[0]])
        if not is_careful and not self._has_announced:
            return True
        place, sequence, epoch = int(task.slices[0]), int(task.sequences[0]), int(task.epochs[0])
        seat = self._seat
        assert seat is not None
        try:
            if not is_careful:  # whatever happens now, the product that was announced is not to blame
                seat.begin(place, epoch, 0)
                self._has_announced = False
                return True
            if self._conductor.is_given_up(task):
                why = "the node ended whenever it worked on this product"
                self._conductor.finish(task, _nothing_done(task), time.monotonic(), 0.0)
                self._give_up(Failure(place, epoch, sequence, why))
                return False
            self._has_announced = True
            if seat.begin(place, epoch, sequence):
                return True
        except HeadraceError as error:
            self._errors.add(f"node {self.name} begins product {sequence} later", error)
        self._conductor.finish(task, _nothing_done(task), time.monotonic(), _RETRY_S)
        return False

    def _finish(self, worker: Worker, task: Task, outcome: Outcome) -> None:
        if worker.task is not task:  # it was given up meanwhile
            return
        worker.task = None
        if outcome.ended:
            self._replace(worker)
            if not outcome.failures:  # it ended before it had begun: no product is to blame
                log.error("node %s: %s before it began", self.name, outcome.ended)
                self._begin_s = time.monotonic() + _RETRY_S
        for failure in self._conductor.finish(task, outcome, time.monotonic(), self._options.retry_s):
            self._fail(failure)
        self._is_dirty = True

    def _replace(self, worker: Worker) -> None:
        if self._stopping.is_set():
            return
        if self._loop is not None and not self._loop.responds():
            self._leave_loop(worker)
        self._workers[self._workers.index(worker)] = self._new_worker()

    def _leave_loop(self, worker: Worker) -> None:
        """This worker has blocked the event loop: leave it behind. The others do their tasks again in another one."""
        log.error("node %s: a coroutine blocks the event loop, without an await; it is left behind", self.name)
        self._loop = Loop()
        for place, other in enumerate(self._workers):
            if other is worker:
                continue
            self._workers[place] = self._new_worker()
            if other.task is not None:
                self._conductor.finish(other.task, _nothing_done(other.task), time.monotonic(), 0.0)
                other.task = None

    def _watch_over_workers(self) -> None:
        """Give up workers that hang; take back what a worker with a slow product has not begun."""
        now_s = time.perf_counter()
        limit = now_s - self._options.hung_after_s
        for worker in list(self._workers):
            since, task = worker.hangs_since(), worker.task
            if task is None or since is None:
                continue
            if since < now_s - SLOW_S and len(task) > 1:
                self._take_rest(worker, task)
            if since < limit:
                outcome = worker.give_up(f"the work did not end within {self._options.hung_after_s:g} s")
                log.warning("node %s: %s", self.name, outcome.ended)
                self._finish(worker, task, outcome)

    def _take_rest(self, worker: Worker, task: Task) -> None:
        """One product takes long: let other workers go on with the rest of its task."""
        kept = worker.keep_rest()
        if kept is not None:
            for failure in self._conductor.take_rest(task, *kept, time.monotonic(), self._options.retry_s):
                self._fail(failure)
            self._is_dirty = True

    def _fail(self, failure: Failure) -> None:
        log.warning("node %s: product %d of slice %d: %s", self.name, failure.sequence, failure.slice, failure.error)
        assert self._seat is not None
        try:
            tries = self._seat.fail(failure.slice, failure.epoch, failure.sequence)
            if tries >= self._tries_max:
                self._give_up(failure)
        except HeadraceError as error:  # tried again; a lost seat is found by the next exchange
            self._errors.add(f"node {self.name} counts a failure of product {failure.sequence} later", error)

    def _give_up(self, failure: Failure) -> None:
        """Park a product, as soon as everything before it in its slice is stored and confirmed."""
        self._conductor.give_up(failure)
        self._is_dirty, self._confirm_s = True, 0.0

    def _park(self, failure: Failure) -> None:
        assert self._seat is not None
        try:
            parked = self._seat.park(failure.slice, failure.epoch, failure.sequence, failure.error)
        except HeadraceError as error:  # tried again after the next exchange
            self._errors.add(f"node {self.name} parks product {failure.sequence} later", error)
            return
        self._conductor.park(failure, parked)
        self._is_dirty = True
        if parked:
            self._statistics = replace(self._statistics, parked=self._statistics.parked + 1)
            log.error("node %s parked product %d: %s", self.name, failure.sequence, failure.error)

    # --- exchange ---------------------------------------------------------------------------------

    def _exchange(self) -> None:
        """Store, confirm, let go and report, if it is time."""
        now_s = time.monotonic()
        if not self._is_seated and not self._join_again(now_s):
            return
        seat = self._seat
        assert seat is not None
        is_due = now_s >= self._beat_s
        confirm, release = self._progress(now_s)
        is_changed = seat.version != self._seen and now_s >= self._look_s
        if not (is_due or is_changed or self._has_news or confirm or release):
            return
        if confirm or release:
            confirm, release = self._store(confirm, release)
        self._unsent, self._has_news = self._unsent or self._conductor.report(), False
        load = self._meter.read(self._waiting(), len(self._conductor.tasks)) if is_due else None
        try:
            exchanged = seat.exchange(Progress(self._seen, confirm, release, load, self._unsent))
        except SeatLostError as error:
            self._rejoin(error)
            return
        except ShareMissingError:  # it was removed: nobody needs this work any more
            raise
        except HeadraceError as error:
            self._errors.add(f"node {self.name} confirms later", error)
            self._confirm_s = self._beat_s = now_s + _RETRY_S
            self._is_stuck = True
            return
        self._unsent = None
        if confirm or release:
            pause_s = max(self._confirms_s, exchanged.pause_s)
            self._confirm_s, self._is_dirty, self._is_stuck = now_s + pause_s, False, False
        if is_due:
            self._beat_s = now_s + self._beats_s
        self._conductor.confirmed(confirm, release, exchanged.refused)
        self._statistics = replace(
            self._statistics, refused=self._statistics.refused + len(exchanged.refused), lost=self._conductor.lost_all
        )
        for failure in self._conductor.to_park():
            self._park(failure)
        if exchanged.holding is not None:
            self._hold(exchanged.holding, exchanged.version)

    def _progress(self, now_s: float) -> tuple[Marks, Marks]:
        """What to confirm now, and what to let go."""
        is_time = self._is_dirty and now_s >= self._confirm_s
        if not is_time and not self._conductor.leaving.any():
            return NO_MARKS, NO_MARKS
        confirm, release = self._conductor.progress()
        self._is_dirty &= not is_time or bool(confirm or release)
        return (confirm, release) if is_time or release else (NO_MARKS, NO_MARKS)

    def _hold(self, holding: Holding, version: int) -> None:
        self._is_draining |= holding.draining
        try:
            self._conductor.hold(holding, self._claim)
        except SinkUnavailableError as error:
            self._errors.add(f"node {self.name} begins with its slices later", error)
            self._look_s = time.monotonic() + _RETRY_S
            return
        self._seen, self._is_dirty = version, True
        self._has_news = True  # say so: then the session is over

    def _rejoin(self, error: SeatLostError) -> None:
        log.warning("node %s discards what it has not confirmed, and joins again: %s", self.name, error)
        self._conductor.drop_all()
        self._statistics = replace(self._statistics, rejoined=self._statistics.rejoined + 1)
        self._is_seated, self._look_s = False, 0.0

    def _join_again(self, now_s: float) -> bool:
        if now_s < self._look_s or self._stopping.is_set():
            return False
        try:
            self._join()
        except ShareMissingError:
            raise
        except HeadraceError as error:
            self._errors.add(f"node {self.name} joins again later", error)
            self._look_s = now_s + _RETRY_S
        return self._is_seated

    def _waiting(self) -> int:
        conductor = self._conductor
        return len(conductor.backlog) + sum(map(len, conductor.tasks))

    # --- the sink ---------------------------------------------------------------------------------

    def _claim(self, added: Marks) -> Marks:
        """Where to begin: the sink knows best."""
        if self._sink is None:
            return added
        while added:
            try:
                with self._waiting_for_sink():
                    return added._replace(positions=self._sink.claim(self._share.terms.id, added))
            except SinkFencedError as error:  # the next exchange says who owns them
                added = added.where(~np.isin(added.slices, np.array(error.slices, np.uint32)))
        return added

    def _store(self, confirm: Marks, release: Marks) -> tuple[Marks, Marks]:
        """Store the results with the positions that pass them; what may be confirmed now."""
        if self._sink is None:
            self._conductor.results.clear()
        if self._sink is None or not (confirm or release):
            return confirm, release
        both = confirm.joined(release)
        passed = dict(zip(both.slices.tolist(), both.positions.tolist(), strict=True))
        ready = [each for each in self._conductor.results if each.sequence < passed.get(each.slice, 0)]
        try:
            with self._waiting_for_sink():
                self._sink.store(self._share.terms.id, ready, both)
        except SinkFencedError as error:
            return self._store(*self._without(error, confirm, release))
        except SinkRefusedError as error:
            self._refuse(error)
            return NO_MARKS, NO_MARKS
        except SinkUnavailableError as error:
            self._errors.add(f"node {self.name} stores later", error)
            self._confirm_s, self._is_stuck = time.monotonic() + _RETRY_S, True
            return NO_MARKS, NO_MARKS
        gone = set(map(id, ready))
        self._conductor.results = [each for each in self._conductor.results if id(each) not in gone]
        return confirm, release

    @contextmanager
    def _waiting_for_sink(self) -> Iterator[None]:
        self._in_sink_s = time.monotonic()
        try:
            yield
        finally:
            self._in_sink_s = None

    def _without(self, error: SinkFencedError, *of: Marks) -> Iterator[Marks]:
        """Forget slices that a later owner has claimed; the others."""
        log.warning("node %s: %s", self.name, error)
        fenced = np.array(error.slices, np.uint32)
        self._conductor.forget(fenced)
        return (each.where(~np.isin(each.slices, fenced)) for each in of)

    def _refuse(self, error: SinkRefusedError) -> None:
        """The result of one product can never be stored: that is a failed attempt of its work."""
        failure = Failure(error.slice, self._conductor.epoch(error.slice), error.sequence, error.problem)
        self._conductor.go_back(failure, time.monotonic() + self._options.retry_s)
        self._is_dirty, self._confirm_s = True, 0.0  # the others are stored at once
        self._fail(failure)


def _publishing(queue: AnyQueue, stream: str, feed: str) -> QueueSink:
    """A sink for results on a feed of the queue itself, which must be outside of the stream."""
    if Selection(stream).wants_feed(feed):
        raise OptionError(
            f"publish: feed {feed!r} is part of the stream {stream!r}; results would be worked on again, without end",
            "publish on a feed outside of the stream",
        )
    return QueueSink(queue, feed)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, unless the program handles it in its own way."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _nothing_done(task: Task) -> Outcome:
    return Outcome(np.zeros(len(task), np.bool_), np.zeros(len(task), np.uint64), [], [])


__all__ = ["NodeStatistics", "ProcessingNode", "Result"]
