"""Stage: starts the processes of a demonstration, listens to them, and ends them whatever happens.

The first site is there before the link, the link before the second site, and all others before the feeder starts; but
for the pipeline, which takes longest, and reads what it has missed. One worker is told to take its time, and is killed
(SIGKILL) as soon as it says that it has products in hand. Half way the link is cut for some seconds. When the feeder is
done and the second site has everything up to there, the watchers are told where its queue ends, and the pipeline that
everything is there; the workers stop when their station has nothing more to hand out.

A signal to end is held back while a child is being started, so that there is never half a child; the child inherits
that, and leaves Ctrl-C to the stage, which ends it.
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

from headrace.demo.actors import ENDINGS, End, Report, run_feeder, run_watcher
from headrace.demo.events import Cut, Kill
from headrace.demo.link import CUT, MEND, run_link
from headrace.demo.pipeline import run_pipeline
from headrace.demo.plan import (
    ALERT_FEED,
    CUT_AT,
    CUT_SHARE,
    FIRST,
    KILL_AT,
    SECOND,
    STATION,
    VICTIM,
    WATCHERS,
    WORKERS,
    Plan,
)
from headrace.demo.sites import run_site, write_first, write_second
from headrace.demo.workers import END, TAKE_YOUR_TIME, run_worker
from headrace.errors import HeadraceError
from headrace.link.endpoint import parse_endpoint
from headrace.queue import Queue

_START_S_MAX = 30.0
_DRAIN_S_MAX = 30.0
_END_S_MAX = 3.0  # for a site to stop in order
_SPARK_S_MAX = 180.0  # to read what is left, on a machine that has a lot to do besides
_SPARK_END_S_MAX = 15.0
REFRESH_S = 0.25
FEEDER, LINK, PIPELINE = "feeder", "link", "pipeline"
_SITES = {FIRST: f"site {FIRST}", SECOND: f"site {SECOND}"}

Refresh = Callable[["Stage"], None]


class Stage:
    """The running demonstration; `latest` has the last report of every actor."""

    def __init__(self, plan: Plan, first: Queue, second: Queue, pipeline: bool = True) -> None:
        self._plan, self.first, self.second = plan, first, second
        self._has_pipeline = pipeline
        self.station = second.station(STATION)
        self._processes: dict[str, Any] = {}
        self._pipes: dict[str, Connection] = {}
        self._fed_s: float | None = None
        self.latest: dict[str, Report] = {}
        self.kill: Kill | None = None
        self.cut: Cut | None = None

    def __enter__(self) -> "Stage":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        second = self._processes.get(_SITES[SECOND])
        if second is not None:  # alone: routers that leave each other at once may stumble inside Zenoh
            _end([second])
        pipeline = self._processes.pop(PIPELINE, None)
        if pipeline is not None:
            _end([pipeline], _SPARK_END_S_MAX)
        _end(list(self._processes.values()))
        for pipe in self._pipes.values():
            pipe.close()

    @property
    def feeder(self) -> Report:
        return self.latest.get(FEEDER, Report())

    @property
    def elapsed_s(self) -> float:
        """Since the feeder began."""
        return 0.0 if self._fed_s is None else time.monotonic() - self._fed_s

    @property
    def arrived(self) -> int:
        """Products of the first site at the second."""
        return sum(feed.products for feed in self.second.statistics().feeds if feed.feed != ALERT_FEED)

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def site(self, name: str) -> Report:
        """The latest of a site."""
        return self.latest.get(_SITES[name], Report())

    def play(self, refresh: Refresh) -> None:
        """Run to the end; `refresh` is called a few times a second. HeadraceError if an actor could not go on."""
        self._start_all(refresh)
        self._start(FEEDER, run_feeder, self._plan)
        self._wait_for(KILL_AT, refresh)
        self._kill_one(refresh)
        self._wait_for(CUT_AT, refresh)
        self._cut(refresh)
        self._listen(lambda: self.feeder.done, _START_S_MAX + self._plan.seconds, refresh)
        self._listen(lambda: self._has_all_below(self.feeder.next), _DRAIN_S_MAX, refresh)
        held_up_ns = (self.cut.at_ns, self.cut.level_ns) if self.cut else (0, 0)
        self._tell([watcher.name for watcher in WATCHERS], End(self.second.next, held_up_ns))
        self._tell([PIPELINE] if self._has_pipeline else [], END)
        self._listen(self._is_station_idle, _DRAIN_S_MAX, refresh)
        self._tell([worker for worker in WORKERS if worker != VICTIM], END)
        self._listen(lambda: not self._unfinished(), _SPARK_S_MAX, refresh)

    def _start_all(self, refresh: Refresh) -> None:
        notes = self._plan.notes
        if self._has_pipeline:
            self._start(PIPELINE, run_pipeline, self._plan)
        self._start(_SITES[FIRST], run_site, write_first(notes / "one.toml", self._plan.first))
        for watcher in WATCHERS:
            self._start(watcher.name, run_watcher, self._plan, watcher)
        for worker in WORKERS:
            self._start(worker, run_worker, self._plan, worker)
        endpoint = self._endpoint_of(_SITES[FIRST], refresh)
        self._start(LINK, run_link, parse_endpoint(endpoint).port)
        upstream = self._endpoint_of(LINK, refresh)
        self._start(_SITES[SECOND], run_site, write_second(notes / "two.toml", self._plan.second, upstream))
        needed = set(self._processes) - {PIPELINE}
        self._listen(lambda: needed <= set(self.latest) and self.site(SECOND).state == "live", _START_S_MAX, refresh)

    def _endpoint_of(self, name: str, refresh: Refresh) -> str:
        self._listen(lambda: name in self.latest, _START_S_MAX, refresh)
        return self.latest[name].endpoint

    def _wait_for(self, share: float, refresh: Refresh) -> None:
        """Until so much of the time has passed."""
        until_s = share * self._plan.seconds
        self._listen(lambda: self.elapsed_s >= until_s or self.feeder.done, _START_S_MAX + until_s, refresh)

    def _cut(self, refresh: Refresh) -> None:
        """The link, for some seconds, while the feeder goes on."""
        self._tell([LINK], CUT)
        self.cut = Cut(self.elapsed_s, time.monotonic(), time.time_ns())
        mend_s = self.cut.at_s + CUT_SHARE * self._plan.seconds
        self._listen(lambda: time.monotonic() >= mend_s, _START_S_MAX, refresh)
        self._tell([LINK], MEND)
        end = self.first.next
        self.cut.mended_s, self.cut.missing = time.monotonic(), end - 1 - self.arrived
        self._listen(lambda: self.arrived >= end - 1 or self._has_all_below(end), _DRAIN_S_MAX, refresh)
        self.cut.level_s, self.cut.level_ns = time.monotonic(), time.time_ns()

    def _kill_one(self, refresh: Refresh) -> None:
        """With products in hand, if there are any left to take."""
        self._tell([VICTIM], TAKE_YOUR_TIME)
        self._listen(lambda: self.latest[VICTIM].held > 0 or self.feeder.done, _START_S_MAX, refresh)
        victim = self._processes[VICTIM]
        self.kill = Kill(victim.pid, self.elapsed_s, time.monotonic(), self.latest[VICTIM].held)
        victim.kill()
        victim.join()

    def _has_all_below(self, end: int) -> bool:
        """The second site says that everything before `end` at the first has come."""
        return self.site(SECOND).base >= end - 1

    def _is_station_idle(self) -> bool:
        told = self.station.statistics()
        return told.waiting == told.leased == told.behind == 0

    def _unfinished(self) -> list[str]:
        stay = {*_SITES.values(), LINK}  # until the stage ends
        others = [name for name in self._processes if name not in stay and not self._was_killed(name)]
        return [name for name in others if not self.latest.get(name, Report()).done]

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

    def _listen(self, is_over: Callable[[], bool], seconds_max: float, refresh: Refresh) -> None:
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


def _end(processes: list[Any], seconds_max: float = _END_S_MAX) -> None:
    for process in processes:
        process.terminate()
    end_s = time.monotonic() + seconds_max
    for process in processes:
        process.join(max(0.0, end_s - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


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
