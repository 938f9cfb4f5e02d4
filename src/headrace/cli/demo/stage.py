"""Stage: starts the processes of a demonstration, listens to them, and ends them whatever happens.

The watchers are there before the feeder starts. When the feeder is done, its end is passed on to the watchers, who
stop there. A signal to end is held back while a child is being started, so that there is never half a child; the
child inherits that, and leaves Ctrl-C to the stage, which ends it.
"""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from headrace.cli.demo.actors import ENDINGS, Report, load_sightings, run_feeder, run_watcher
from headrace.cli.demo.plan import WATCHERS, Plan
from headrace.cli.verdicts import expectation
from headrace.errors import HeadraceError
from headrace.selection import Selection
from headrace.testing import Verdict
from headrace.testing.verdict import judge

_START_S_MAX = 30.0
_DRAIN_S_MAX = 30.0
REFRESH_S = 0.25
_FEEDER = "feeder"


class Stage:
    """The running demonstration; `latest` has the last report of every actor."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._processes: dict[str, Any] = {}
        self._pipes: dict[str, Connection] = {}
        self.latest: dict[str, Report] = {}

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
        return self.latest.get(_FEEDER, Report())

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def play(self, refresh: Callable[["Stage"], None]) -> None:
        """Run to the end; `refresh` is called a few times a second. HeadraceError if an actor could not go on."""
        for watcher in WATCHERS:
            self._start(watcher.name, run_watcher, self._plan, watcher)
        self._listen(lambda: len(self.latest) == len(WATCHERS), _START_S_MAX, refresh)
        self._start(_FEEDER, run_feeder, self._plan)
        self._listen(lambda: self.feeder.done, _START_S_MAX + self._plan.seconds, refresh)
        for watcher in WATCHERS:
            with suppress(BrokenPipeError):  # it has died, which is noticed below
                self._pipes[watcher.name].send(self.feeder.next)
        self._listen(lambda: all(report.done for report in self.latest.values()), _DRAIN_S_MAX, refresh)

    def verdicts(self) -> dict[str, Verdict]:
        """The oracle's judgement on each watcher, after the play."""
        sent = load_sightings(self._plan.notes_of(_FEEDER))
        return {
            watcher.name: judge(
                sent, load_sightings(self._plan.notes_of(watcher.name)), expectation(Selection(watcher.select))
            )
            for watcher in WATCHERS
        }

    def _start(self, name: str, run: Callable[..., None], *arguments: object) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=run, args=(*arguments, theirs), name=f"headrace-demo-{name}", daemon=True)
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
            names = {pipe: name for name, pipe in self._pipes.items() if not self.latest.get(name, Report()).done}
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
