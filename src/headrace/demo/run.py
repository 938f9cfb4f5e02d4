"""DemoRun: starts the processes of a demonstration, collects their reports, and ends them in every case.

The first site starts before the link, the link before the second site, and all other processes before the feeder.
Only the pipeline, which takes longest to start, may come later; it reads what it has missed. One worker receives the
command to stall, and is killed (SIGKILL) as soon as it reports that it holds products. Half way the link is cut for
some seconds. When the feeder is done and the second site has received everything, the watchers receive the end of its
queue and the pipeline the command to stop. The workers stop when their station has nothing more to hand out. Then two
nodes share the latest products (`spread`). So the verdicts on deliveries (`deliver`) and nodes do not have to wait for
Spark, which takes longest (`finish`).

SIGINT and SIGTERM are deferred while a child is started, so that no child is left behind half started. The child
inherits the block, and ignores Ctrl-C: the run ends it.
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

from headrace.demo.nodes import ALONE, BEGIN, PRODUCTS, run_node
from headrace.demo.pacing import run_pacer
from headrace.demo.pipeline import run_pipeline
from headrace.demo.plan import (
    ALERT_FEED,
    CUT_AT,
    CUT_SHARE,
    FIRST,
    KILL_AT,
    KILLED_WORKER,
    NODES,
    PACER,
    SECOND,
    STATION,
    STREAM,
    WATCHERS,
    WORKERS,
    Plan,
)
from headrace.demo.processes import (
    ENDING_SIGNALS,
    STALL,
    STOP,
    ReadUntil,
    Report,
    run_feeder,
    run_watcher,
    run_worker,
)
from headrace.demo.sites import CUT, RESTORE, run_link, run_site, write_first, write_second
from headrace.errors import HeadraceError
from headrace.link.endpoint import parse_endpoint
from headrace.queue import Queue

_START_S_MAX = 90.0  # generous: a machine under load takes long to start ten interpreters
_DRAIN_S_MAX = 90.0
_END_S_MAX = 3.0  # for a site to stop in order
_SPARK_S_MAX = 180.0  # to read the rest of the queue, on a machine under load
_SPARK_END_S_MAX = 15.0
REFRESH_S = 0.25
FEEDER, LINK, PIPELINE = "feeder", "link", "pipeline"
_SITES = {FIRST: f"site {FIRST}", SECOND: f"site {SECOND}"}
_WATCHERS = [watcher.name for watcher in WATCHERS]

Refresh = Callable[["DemoRun"], None]


@dataclass(slots=True)
class WorkerKill:
    """The worker that was killed, and what became of the products that it held."""

    pid: int
    after_s: float  # since the feeder started
    at_s: float  # monotonic
    at_ns: int  # time of day
    held: int
    back_after_s: float | None = None  # until another worker had acknowledged them


@dataclass(slots=True)
class LinkCut:
    """The time when the link was cut, and the products that the second site missed meanwhile."""

    after_s: float  # since the feeder started
    at_s: float  # monotonic
    at_ns: int  # time of day
    restored_s: float | None = None  # monotonic
    missing: int = 0  # products that the second site lacked when the link was restored
    caught_up_s: float | None = None  # monotonic: when it had received them
    caught_up_ns: int = 0

    @property
    def lasted_s(self) -> float:
        return 0.0 if self.restored_s is None else self.restored_s - self.at_s

    @property
    def caught_up_after_s(self) -> float | None:
        """Since the link was restored."""
        return None if self.caught_up_s is None or self.restored_s is None else self.caught_up_s - self.restored_s


class DemoRun:
    """The running demonstration; `latest` has the last report of every process."""

    def __init__(self, plan: Plan, first: Queue, second: Queue, pipeline: bool = True) -> None:
        self._plan, self.first, self.second = plan, first, second
        self._has_pipeline = pipeline
        self.station = second.station(STATION, create=False)
        self._processes: dict[str, Any] = {}
        self._pipes: dict[str, Connection] = {}
        self._feeder_started_s: float | None = None
        self.latest: dict[str, Report] = {}
        self.kill: WorkerKill | None = None
        self.cut: LinkCut | None = None
        self.shared: tuple[int, int] | None = None  # first sequence of what the nodes share, and its end

    def __enter__(self) -> "DemoRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        second = self._processes.get(_SITES[SECOND])
        if second is not None:  # alone: two routers that stop at the same time may fail inside Zenoh
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
        """Since the feeder started."""
        return 0.0 if self._feeder_started_s is None else time.monotonic() - self._feeder_started_s

    @property
    def arrived(self) -> int:
        """Products of the first site that have arrived at the second."""
        return sum(feed.products for feed in self.second.statistics().feeds if feed.feed != ALERT_FEED)

    @property
    def lost(self) -> int:
        """Products that the second site, its station or a watcher reports as lost."""
        reported = sum(self.latest.get(name, Report()).lost for name in (_SITES[SECOND], *_WATCHERS))
        return reported + sum(self.station.statistics().left_out.values())

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def site(self, name: str) -> Report:
        """The latest report of a site."""
        return self.latest.get(_SITES[name], Report())

    def deliver(self, refresh: Refresh) -> None:
        """Run until watchers and workers are done. Call `refresh` a few times a second. HeadraceError if one fails."""
        self._start_all(refresh)
        self._start(FEEDER, run_feeder, self._plan)
        self._wait_for(KILL_AT, refresh)
        self._kill_worker(refresh)
        self._wait_for(CUT_AT, refresh)
        self._cut(refresh)
        self._listen(lambda: self.feeder.done, _START_S_MAX + self._plan.seconds, refresh)
        self._listen(lambda: self._has_all_below(self.feeder.next), _DRAIN_S_MAX, refresh)
        delayed_ns = (self.cut.at_ns, self.cut.caught_up_ns) if self.cut else (0, 0)
        self._send(_WATCHERS, ReadUntil(self.second.next, delayed_ns))
        self._send([PACER, *([PIPELINE] if self._has_pipeline else [])], STOP)
        self._listen(self._is_station_idle, _DRAIN_S_MAX, refresh)
        self._send([worker for worker in WORKERS if worker != KILLED_WORKER], STOP)
        self._listen(lambda: self._unfinished() <= {PIPELINE, *NODES}, _DRAIN_S_MAX, refresh)

    def spread(self, refresh: Refresh) -> None:
        """Let one node work on the latest products, and another one join it, until all of them are confirmed."""
        end = self.second.next
        start = max(self.second.oldest, end - PRODUCTS)
        self.shared = start, end
        group = self.second.share(STREAM, start=start)
        first, second = NODES
        self._send([first], BEGIN)
        alone = int(ALONE * (end - start))
        self._listen(lambda: self.latest[first].products >= alone, _DRAIN_S_MAX, refresh)
        self._send([second], BEGIN)
        self._listen(lambda: int(group.state().positions.min()) >= end, _DRAIN_S_MAX, refresh)
        self._send(list(NODES), STOP)
        self._listen(lambda: self._unfinished() <= {PIPELINE}, _DRAIN_S_MAX, refresh)

    def finish(self, refresh: Refresh) -> None:
        """Run until the pipeline, if there is one, has read to the end of the queue."""
        self._listen(lambda: not self._unfinished(), _SPARK_S_MAX, refresh)

    def _start_all(self, refresh: Refresh) -> None:
        records = self._plan.records
        if self._has_pipeline:
            self._start(PIPELINE, run_pipeline, self._plan)
        self._start(_SITES[FIRST], run_site, write_first(records / "one.toml", self._plan.first))
        for watcher in WATCHERS:
            self._start(watcher.name, run_watcher, self._plan, watcher)
        for worker in WORKERS:
            self._start(worker, run_worker, self._plan, worker)
        for node in NODES:
            self._start(node, run_node, self._plan, node)
        self._start(PACER, run_pacer, self._plan)
        endpoint = self._endpoint_of(_SITES[FIRST], refresh)
        self._start(LINK, run_link, parse_endpoint(endpoint).host)
        upstream = self._endpoint_of(LINK, refresh)
        self._start(_SITES[SECOND], run_site, write_second(records / "two.toml", self._plan.second, upstream))
        needed = set(self._processes) - {PIPELINE}
        self._listen(lambda: needed <= set(self.latest) and self.site(SECOND).state == "live", _START_S_MAX, refresh)

    def _endpoint_of(self, name: str, refresh: Refresh) -> str:
        self._listen(lambda: name in self.latest, _START_S_MAX, refresh)
        return self.latest[name].endpoint

    def _wait_for(self, share: float, refresh: Refresh) -> None:
        """Wait until this share of the run has passed."""
        until_s = share * self._plan.seconds
        self._listen(lambda: self.elapsed_s >= until_s or self.feeder.done, _START_S_MAX + until_s, refresh)

    def _cut(self, refresh: Refresh) -> None:
        """Cut the link for some seconds, while the feeder continues."""
        self._send([LINK], CUT)
        self.cut = LinkCut(self.elapsed_s, time.monotonic(), time.time_ns())
        restore_s = self.cut.at_s + CUT_SHARE * self._plan.seconds
        self._listen(lambda: time.monotonic() >= restore_s, _START_S_MAX, refresh)
        self._send([LINK], RESTORE)
        end = self.first.next
        self.cut.restored_s, self.cut.missing = time.monotonic(), end - 1 - self.arrived
        self._listen(lambda: self.arrived >= end - 1 or self._has_all_below(end), _DRAIN_S_MAX, refresh)
        self.cut.caught_up_s, self.cut.caught_up_ns = time.monotonic(), time.time_ns()

    def _kill_worker(self, refresh: Refresh) -> None:
        """Kill a worker while it holds products, if there are any left to take."""
        self._send([KILLED_WORKER], STALL)
        self._listen(lambda: self.latest[KILLED_WORKER].held > 0 or self.feeder.done, _START_S_MAX, refresh)
        worker = self._processes[KILLED_WORKER]
        now_s, now_ns = time.monotonic(), time.time_ns()
        self.kill = WorkerKill(worker.pid, self.elapsed_s, now_s, now_ns, self.latest[KILLED_WORKER].held)
        worker.kill()
        worker.join()

    def _has_all_below(self, end: int) -> bool:
        """Whether the second site reports that everything before `end` at the first has arrived."""
        return self.site(SECOND).base >= end - 1

    def _is_station_idle(self) -> bool:
        counts = self.station.statistics()
        return counts.waiting == counts.leased == counts.behind == 0

    def _unfinished(self) -> set[str]:
        stay = {*_SITES.values(), LINK}  # until the run ends
        others = {name for name in self._processes if name not in stay and not self._was_killed(name)}
        return {name for name in others if not self.latest.get(name, Report()).done}

    def _was_killed(self, name: str) -> bool:
        return name == KILLED_WORKER and self.kill is not None

    def _send(self, names: list[str], command: object) -> None:
        for name in names:
            with suppress(BrokenPipeError):  # the process has died, which `_listen` notices
                self._pipes[name].send(command)

    def _start(self, name: str, run: Callable[..., None], *arguments: object) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        title = f"headrace-demo-{name.replace(' ', '-')}"
        process = spawn.Process(target=run, args=(*arguments, theirs), name=title, daemon=True)
        resource_tracker.ensure_running()  # started inside the block, it would unblock the signals
        with _signals_deferred():
            process.start()
            self._processes[name], self._pipes[name] = process, ours
        theirs.close()

    def _listen(self, is_over: Callable[[], bool], seconds_max: float, refresh: Refresh) -> None:
        """Receive reports until `is_over`."""
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
                self._receive(names[pipe], pipe)
            if time.monotonic() - refresh_s >= REFRESH_S:
                refresh(self)
                refresh_s = time.monotonic()
            if time.monotonic() > give_up_s:
                raise HeadraceError(
                    f"the demo made no progress for {seconds_max:.0f} s", "run it on a machine with less load"
                )
        refresh(self)

    def _receive(self, name: str, pipe: Connection) -> None:
        try:
            report = pipe.recv()
        except (EOFError, ConnectionResetError):
            self._processes[name].join()
            code = self._processes[name].exitcode
            raise HeadraceError(f"the process {name!r} of the demo ended early, with exit code {code}") from None
        if report.problem:
            raise HeadraceError(f"the process {name!r} of the demo stopped: {report.problem}", report.hint)
        self.latest[name] = report
        if name == FEEDER and self._feeder_started_s is None:
            self._feeder_started_s = time.monotonic()
        if report.redelivered and self.kill is not None and self.kill.back_after_s is None:
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
def _signals_deferred() -> Iterator[None]:
    """Deliver Ctrl-C and SIGTERM at the end of the block.

    The mask is for the child, which inherits it; here another thread may still get the signal, so it is also caught.
    """
    received: list[int] = []
    before = {ending: signal.signal(ending, lambda number, frame: received.append(number)) for ending in ENDING_SIGNALS}
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
        for ending, handler in before.items():
            signal.signal(ending, handler)
    for number in received:
        signal.raise_signal(number)
