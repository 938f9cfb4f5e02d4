"""ProcessingNode: works on its share of a stream, together with other nodes, here or on other machines.

    def work(product): ...

    with ProcessingNode("wx.queue", "radar", work) as node:      or "tcp/site:7447"
        node.wait()

A node owns some slices of the stream. It reads them all with one reader (intake.py), gives products to its workers
(crew.py), keeps account of what is done (conductor.py), stores results in a sink if there is one, confirms, and reports
its load (confirming.py). One thread does all of that but reading and working; it never waits for either.
"""

import logging
import math
import os
import queue as queues
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Literal, Self, Unpack

import numpy as np

from headrace.errors import HeadraceError, ShareError, SiteUnreachableError
from headrace.guard import OnceThread
from headrace.queue.interface import AnyQueue
from headrace.remote import connect
from headrace.share.interface import AnyShare, Progress, ShareOptions
from headrace.slices.balancer import Balancer
from headrace.slices.conductor import Conductor
from headrace.slices.confirming import RETRY_S, Confirming
from headrace.slices.crew import Crew
from headrace.slices.intake import Intake, Intaken
from headrace.slices.load import LoadMeter, Metrics
from headrace.slices.options import check_flag, check_labour, check_place, check_results, publishing
from headrace.slices.sinks.interface import Sink
from headrace.slices.tasks import Outcome, Task, Work
from headrace.slices.workers import Worker
from headrace.units import parse_age

_LEAVE_S = 10.0  # for the balancer to move the slices of a node that stops
_TWICE_S = 0.1  # between two signals that are one request

log = logging.getLogger("headrace.slices")
Age = float | str | timedelta
_Event = Intaken | Exception | tuple[Worker, Task, Outcome] | None


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """What a node has done since it was started."""

    products: int = 0  # done
    slices: int = 0  # owned now
    failed: int = 0  # attempts
    parked: int = 0
    lost: int = 0  # sequences that were evicted before they were read, of whatever feed and slice
    refused: int = 0  # confirmations that came too late: the slice was another's
    rejoined: int = 0  # times that the node was given up, and joined again
    waiting: int = 0


class ProcessingNode:
    """A node; several may run in one process. Use it by `with`, or call `run`."""

    def __init__(
        self, queue: AnyQueue | str | os.PathLike[str], stream: str, work: Work, *, group: str = "main",
        name: str = "", batches: bool = False, workers: int = 1, use: Literal["threads", "processes"] = "threads",
        sink: Sink | None = None, publish: str | None = None, retry: Age = "1s", hung_after: Age = "10min",
        metrics: Metrics | None = None, confirm: Age | None = None, balance: bool = True, **terms: Unpack[ShareOptions],
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
        labour = check_labour(work, workers, batches, use, retry, hung_after)
        check_place(queue, stream, name, terms)
        check_results(sink, publish, metrics)
        check_flag("balance", balance)
        confirm_s = None if confirm is None else parse_age(confirm, "confirm")
        self._opened = connect(queue) if isinstance(queue, str | os.PathLike) else None
        self._queue: AnyQueue = self._opened or queue  # type: ignore[assignment]
        try:
            self._share: AnyShare = self._queue.share(stream, group, **terms)
            own, feed = self._share.terms, self._share.feed
            stored = sink if publish is None else publishing(self._queue, feed, publish)
        except BaseException:
            if self._opened is not None:
                self._opened.close()
            raise
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._inbox: queues.SimpleQueue[_Event] = queues.SimpleQueue()
        self._intake = Intake(self._queue, feed, own.slices, self._inbox.put, lambda: self._crew.has_room())
        self._conductor = Conductor(own.slices, own.tries_max, self._intake.change, batches=batches)
        meter = LoadMeter(float(workers), metrics)
        self._confirming = Confirming(
            self._share, name, self._conductor, stored, meter, confirm_s, labour.retry_s, self._stopping
        )
        self._crew = Crew(labour, self._conductor, self._confirming, lambda *done: self._inbox.put(done))
        self._hung_after_s = labour.hung_after_s
        self._balancer = (
            Balancer(self._share, stream, group=group, name=name or f"node-{os.getpid()}") if balance else None
        )
        self._stop_s: float | None = None  # from then on, a node that stops waits for nobody
        self._alone_s = 0.0  # from then on, it lets go of its slices by itself
        self._ask_s = 0.0  # whether others take them
        self._gone = threading.Event()  # and not Thread.join: a signal during one would make the next return at once
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Work in the background. A node that was stopped or has ended does not start again: make another one."""
        if self._stopping.is_set():
            raise ShareError("the node was stopped, or has ended", "make another one")
        if self._thread is None:
            self._thread = OnceThread(self._run, "headrace-node")
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
        if self._thread is None:
            raise ShareError("the node has not been started", "call start, or use it by `with`")
        has_ended = self._gone.wait(timeout)
        if self._error is not None:
            raise self._error
        return has_ended

    def stop(self) -> None:
        """Finish what is in work, hand the slices over, and leave the group.

        If the site of the queue does not reply, this takes as long as one call: the `patience` of `connect`.
        """
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
        return self._confirming.name

    def statistics(self) -> NodeStatistics:
        conductor, confirming = self._conductor, self._confirming
        return NodeStatistics(
            products=conductor.done, slices=int(np.count_nonzero(conductor.owned)), failed=conductor.failed,
            parked=confirming.parked, lost=conductor.lost_all, refused=confirming.refused,
            rejoined=confirming.rejoined, waiting=len(conductor.backlog),
        )  # fmt: skip

    # --- the loop ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._confirming.join_first()
            self._intake.start()
            if self._balancer is not None:
                assert self._confirming.seat is not None
                self._balancer.stand_by(self._confirming.seat.number).start()
            OnceThread(self._watch, "headrace-watch").start()
            while True:
                if self._stopping.is_set():
                    self._leave()
                    if self._is_hopeless():
                        break
                self._confirming.exchange()
                if self._confirming.is_draining and (self._is_free() or self._is_hopeless()):
                    break
                self._crew.watch()
                self._crew.dispatch(self._intake.nudge)
                self._take_events()
        except BaseException as error:  # the caller of wait, run or stop gets it
            self._error = error
            log.exception("node %s ended", self.name)
        finally:
            try:
                self._end()
            finally:
                self._gone.set()

    def _leave(self) -> None:
        """Let the balancer move the slices; let go of them if nobody takes them, or it takes too long."""
        now_s = time.monotonic()
        if self._stop_s is None:
            self._stop_s = self._alone_s = now_s + _LEAVE_S
            self._confirming.is_draining = True
            self._crew.replace_none()
        if self._ask_s <= now_s < self._alone_s and not self._confirming.is_away:
            self._ask_s = now_s + RETRY_S
            if not self._ask_to_drain():
                self._alone_s = now_s
        if now_s >= self._alone_s:  # each time: the group does not know, and says otherwise
            self._conductor.leaving[:] = self._conductor.owned

    def _ask_to_drain(self) -> bool:
        """Ask the balancer to move the slices; False if it cannot: there is none, or no other node."""
        seat = self._confirming.seat
        assert seat is not None
        try:
            state = self._share.state()
            mine = (seat.number, seat.name)
            if mine in {(node.seat, node.name) for node in state.nodes}:
                self._share.drain(seat.number)  # nothing is given to it any more
            others = (node for node in state.nodes if node.seat != seat.number)
            return bool(state.leader) and any(node.is_alive and not node.draining for node in others)
        except HeadraceError as error:
            self._confirming.is_away = isinstance(error, SiteUnreachableError)
            log.warning("node %s leaves without being drained: %s", self.name, error)
            return False

    def _is_free(self) -> bool:
        return not self._conductor.owned.any() and not self._conductor.tasks

    def _is_hopeless(self) -> bool:
        """Whether a node that stops has waited long enough for a sink or a site that is away."""
        confirming = self._confirming
        is_late = self._stop_s is not None and time.monotonic() >= self._stop_s
        if not confirming.is_away and not (confirming.is_stuck and is_late):
            return False
        log.warning("node %s leaves without its last confirmations; other nodes repeat that work", self.name)
        return True

    def _end(self) -> None:
        self._stopping.set()
        self._ended.set()
        self._intake.stop()
        self._crew.end()
        self._confirming.leave()
        if self._balancer is not None:
            self._balancer.stop(resigns=not self._confirming.is_away)
        if self._opened is not None:
            self._opened.close()

    def _watch(self) -> None:
        """Wake the loop whenever the group says that the node has to look again; while it waits for a sink, beat."""
        confirming = self._confirming
        while not self._ended.is_set():
            try:
                seat, seen, since_s = confirming.seat, confirming.seen, confirming.in_sink_s
                if seat is None:
                    self._ended.wait(confirming.beats_s)
                elif since_s is not None and time.monotonic() > since_s + confirming.beats_s:
                    if time.monotonic() < since_s + self._hung_after_s:
                        seat.exchange(Progress(seen))
                    self._ended.wait(confirming.beats_s)
                elif seat.wait(seen, confirming.beats_s) != seen:
                    self._inbox.put(None)
                    self._ended.wait(0.001)  # the loop looks
            except HeadraceError:
                self._ended.wait(RETRY_S)

    def _take_events(self) -> None:
        """Wait for something to happen, and take in all that has."""
        left_s = 0.0 if self._confirming.has_news else self._confirming.due_s - time.monotonic()
        try:
            event = self._inbox.get(timeout=max(0.0, min(left_s, 0.25)))
        except queues.Empty:
            return
        while True:
            self._take(event)
            try:
                event = self._inbox.get_nowait()
            except queues.Empty:
                return

    def _take(self, event: _Event) -> None:
        if isinstance(event, Intaken):
            self._conductor.accept(event)
            self._confirming.is_dirty = True
        elif isinstance(event, HeadraceError):
            self._confirming.errors.add(f"node {self.name} reads on later", event)
        elif isinstance(event, Exception):
            raise event
        elif event is not None:
            self._crew.finish(*event)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, unless the program handles it in its own way.

    Some programs send it to a process and to its group, so that it comes twice at once: that is one request.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    last_s = -math.inf

    def terminate(*_: object) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s > last_s + _TWICE_S:
            last_s = now_s
            sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
