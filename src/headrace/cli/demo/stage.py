"""Stage: starts the processes of a demonstration, listens to them, and ends them whatever happens.

Watchers and workers are there before the feeder starts. Half way one worker is told to take its time, and is killed
(SIGKILL) as soon as it says that it has products in hand. When the feeder is done, its end is passed on to the
watchers, who stop there; the workers stop when their station has nothing more to hand out.

A signal to end is held back while a child is being started, so that there is never half a child; the child inherits
that, and leaves Ctrl-C to the stage, which ends it.
"""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from headrace.cli.demo.actors import ENDINGS, Report, run_feeder, run_watcher
from headrace.cli.demo.plan import VICTIM, WATCHERS, WORKERS, Plan
from headrace.cli.demo.workers import END, TAKE_YOUR_TIME, run_worker
from headrace.cli.output import format_short_age
from headrace.errors import HeadraceError
from headrace.station import Station

_START_S_MAX = 30.0
_DRAIN_S_MAX = 30.0
REFRESH_S = 0.25
FEEDER = "feeder"


@dataclass(slots=True)
class Kill:
    """What became of the worker that was killed, and of what it had in hand."""

    pid: int
    after_s: float  # since the feeder began
    at_s: float  # time.monotonic
    held: int
    back_after_s: float | None = None  # until another worker had put them

    def __str__(self) -> str:
        told = f"killed at {self.after_s:.1f} s with {self.held} in hand"
        return told if self.back_after_s is None else f"{told}, back in {format_short_age(self.back_after_s)}"


class Stage:
    """The running demonstration; `latest` has the last report of every actor."""

    def __init__(self, plan: Plan, station: Station) -> None:
        self._plan, self.station = plan, station
        self._processes: dict[str, Any] = {}
        self._pipes: dict[str, Connection] = {}
        self._fed_s: float | None = None
        self.latest: dict[str, Report] = {}
        self.kill: Kill | None = None

    def __enter__(self) -> "Stage":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.join()
        for pipe in self._pipes.values():
            pipe.close()

    @property
    def feeder(self) -> Report:
        return self.latest.get(FEEDER, Report())

    @property
    def elapsed_s(self) -> float:
        """Since the feeder began."""
        return 0.0 if self._fed_s is None else time.monotonic() - self._fed_s

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def play(self, refresh: Callable[["Stage"], None]) -> None:
        """Run to the end; `refresh` is called a few times a second. HeadraceError if an actor could not go on."""
        for watcher in WATCHERS:
            self._start(watcher.name, run_watcher, self._plan, watcher)
        for worker in WORKERS:
            self._start(worker, run_worker, self._plan, worker)
        self._listen(lambda: len(self.latest) == len(WATCHERS) + len(WORKERS), _START_S_MAX, refresh)
        self._start(FEEDER, run_feeder, self._plan)
        half_s = self._plan.seconds / 2
        self._listen(lambda: self.elapsed_s >= half_s or self.feeder.done, _START_S_MAX + half_s, refresh)
        self._kill_one(refresh)
        self._listen(lambda: self.feeder.done, _START_S_MAX + self._plan.seconds, refresh)
        self._tell([watcher.name for watcher in WATCHERS], self.feeder.next)
        self._listen(self._is_station_idle, _DRAIN_S_MAX, refresh)
        self._tell([worker for worker in WORKERS if worker != VICTIM], END)
        self._listen(lambda: not self._unfinished(), _DRAIN_S_MAX, refresh)

    def _kill_one(self, refresh: Callable[["Stage"], None]) -> None:
        """With products in hand, if there are any left to take."""
        self._tell([VICTIM], TAKE_YOUR_TIME)
        self._listen(lambda: self.latest[VICTIM].held > 0 or self.feeder.done, _START_S_MAX, refresh)
        victim = self._processes[VICTIM]
        self.kill = Kill(victim.pid, self.elapsed_s, time.monotonic(), self.latest[VICTIM].held)
        victim.kill()
        victim.join()

    def _is_station_idle(self) -> bool:
        told = self.station.statistics()
        return told.waiting == told.leased == told.behind == 0

    def _unfinished(self) -> list[str]:
        return [name for name, report in self.latest.items() if not report.done and not self._was_killed(name)]

    def _was_killed(self, name: str) -> bool:
        return name == VICTIM and self.kill is not None

    def _tell(self, names: list[str], word: object) -> None:
        for name in names:
            with suppress(BrokenPipeError):  # it has died, which is noticed by whoever listens
                self._pipes[name].send(word)

    def _start(self, name: str, run: Callable[..., None], *arguments: object) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        title = f"headrace-demo-{name.replace(' ', '-')}"
        process = spawn.Process(target=run, args=(*arguments, theirs), name=title, daemon=True)
        resource_tracker.ensure_running()  # which would let the signals through if it were started inside
        with _endings_held():
            process.start()
            self._processes[name], self._pipes[name] = process, ours
        theirs.close()

    def _listen(self, is_over: Callable[[], bool], seconds_max: float, refresh: Callable[["Stage"], None]) -> None:
        """Take in reports until `is_over`."""
        give_up_s = time.monotonic() + seconds_max
        refresh_s = 0.0
        while not is_over():
            names = {
                pipe: name
                for name, pipe in self._pipes.items()
                if not self.latest.get(name, Report()).done and not self._was_killed(name)
            }
            for pipe in wait(list(names), timeout=REFRESH_S):
                assert isinstance(pipe, Connection)
                self._take(names[pipe], pipe)
            if time.monotonic() - refresh_s >= REFRESH_S:
                refresh(self)
                refresh_s = time.monotonic()
            if time.monotonic() > give_up_s:
                raise HeadraceError(
                    f"the demo made no progress in {seconds_max:.0f} s", "try it on a less busy machine"
                )
        refresh(self)

    def _take(self, name: str, pipe: Connection) -> None:
        try:
            report = pipe.recv()
        except (EOFError, ConnectionResetError):
            self._processes[name].join()
            code = self._processes[name].exitcode
            raise HeadraceError(f"the process {name!r} of the demo ended early, with exit code {code}") from None
        if report.problem:
            raise HeadraceError(f"the process {name!r} of the demo stopped: {report.problem}", report.hint)
        self.latest[name] = report
        if name == FEEDER and self._fed_s is None:
            self._fed_s = time.monotonic()
        if report.again and self.kill is not None and self.kill.back_after_s is None:
            self.kill.back_after_s = time.monotonic() - self.kill.at_s


@contextmanager
def _endings_held() -> Iterator[None]:
    """Ctrl-C and SIGTERM come afterwards. The mask is for the child; here any other thread may get the signal."""
    came: list[int] = []
    before = {ending: signal.signal(ending, lambda number, frame: came.append(number)) for ending in ENDINGS}
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        for ending, handler in before.items():
            signal.signal(ending, handler)
    for number in came:
        signal.raise_signal(number)
