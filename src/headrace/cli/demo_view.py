"""What `headrace demo` shows while it runs: a live table on a terminal, otherwise a line every two seconds."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headrace.cli.output import framed_table, is_terminal
from headrace.demo.plan import FIRST, KILLED_WORKER, SECOND, STATION, WATCHERS, WORKERS, Plan
from headrace.demo.processes import Report
from headrace.demo.run import PIPELINE, REFRESH_S, DemoRun, Refresh
from headrace.log.statistics import Statistics
from headrace.station import StationStatistics
from headrace.units import format_count, format_latency, format_size

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_LINE_EVERY_S = 2.0
_RATE_S = 2.0


@contextmanager
def live_view(plan: Plan, quiet: bool) -> Iterator[Refresh]:
    """A function to call with the run, as often as you like."""
    if quiet:
        yield lambda run: None
    elif not is_terminal():
        yield _Lines()
    else:
        from rich.console import Console
        from rich.live import Live

        table = _LiveTable(plan)
        with Live(console=Console(), auto_refresh=False) as live:
            yield lambda run: live.update(table.draw(run), refresh=True)


class _Rate:
    """Products per second over about the last two seconds."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque(maxlen=1 + round(_RATE_S / REFRESH_S))

    def __call__(self, products: int) -> float:
        self._counts.append((time.monotonic(), products))
        (since_s, before), (now_s, _) = self._counts[0], self._counts[-1]
        return (products - before) / max(now_s - since_s, REFRESH_S)


class _Lines:
    """For pipes and logs."""

    def __init__(self) -> None:
        self._rate = _Rate()
        self._started_s = self._shown_s = time.monotonic()
        self._shown: set[str] = set()

    def __call__(self, run: DemoRun) -> None:
        if not run.feeder.products:
            self._show_once("starting the processes …")
            return
        now_s, statistics = time.monotonic(), run.first.statistics()
        rate = self._rate(statistics.inserted_products)
        for event in _events(run):
            self._show_once(event)
        if now_s - self._shown_s < _LINE_EVERY_S:
            return
        self._shown_s = now_s
        counts = ", ".join(f"{name} {report.products:,}" for name, report in _watchers(run))
        click.echo(
            f"{now_s - self._started_s:5.1f} s  site {FIRST}: {statistics.inserted_products:,} products, "
            f"{format_size(statistics.inserted_bytes)}, {rate:,.0f}/s, "
            f"{statistics.duplicates:,} duplicates rejected; site {SECOND}: {run.second.next - 1:,}; "
            f"watchers: {counts}; station: {_station_line(run.station.statistics())}{_pipeline_line(run, '; ')}"
        )

    def _show_once(self, text: str) -> None:
        if text not in self._shown:
            self._shown.add(text)
            click.echo(f"{time.monotonic() - self._started_s:5.1f} s  {text}")


def _events(run: DemoRun) -> Iterator[str]:
    """What was done to the processes, in a text that does not change once it is complete."""
    if run.kill is not None:
        held = format_count(run.kill.held, "product")
        yield f"{KILLED_WORKER} (process {run.kill.pid}) was killed at {run.kill.after_s:.1f} s while it held {held}"
    cut = run.cut
    if cut is not None:
        yield f"the link between the sites was cut at {cut.after_s:.1f} s"
        if cut.restored_s is not None:
            yield f"the link is restored after {cut.lasted_s:.1f} s; site {SECOND} lacks {cut.missing:,} products"
        if cut.caught_up_after_s is not None:
            after = format_latency(cut.caught_up_after_s)
            yield f"site {SECOND} has caught up, {after} after the link was restored"


class _LiveTable:
    """For people at a terminal."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rate = _Rate()
        self._started_s: float | None = None

    def draw(self, run: DemoRun) -> "Group":
        from rich.console import Group

        return Group(
            self._headline(run, run.first.statistics()),
            _groups(run),
            _link_line(run),
            _watcher_table(run),
            _worker_table(run),
            _station_line(run.station.statistics()),
            _pipeline_line(run),
        )

    def _headline(self, run: DemoRun, statistics: Statistics) -> str:
        if not run.feeder.products:
            return "starting the processes …"
        self._started_s = self._started_s or time.monotonic()
        elapsed_s = min(time.monotonic() - self._started_s, self._plan.seconds)
        return (
            f"{elapsed_s:.0f} of {self._plan.seconds:.0f} s   {statistics.inserted_products:,} products   "
            f"{format_size(statistics.inserted_bytes)}   {self._rate(statistics.inserted_products):,.0f}/s   "
            f"{statistics.duplicates:,} duplicates rejected"
        )


def _groups(run: DemoRun) -> "Table":
    """Products by the first two levels of their feeds."""
    here, there = (_sums(queue.statistics()) for queue in (run.first, run.second))
    rows = [
        (group, f"{products:,}", format_size(size), f"{there.get(group, (0, 0))[0]:,}")
        for group, (products, size) in sorted(here.items())
    ]
    header = ("feeds", f"put at site {FIRST}", "payload", f"arrived at site {SECOND}")
    return framed_table("products in the queues", header, rows, right=[1, 2, 3])


def _sums(statistics: Statistics) -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for feed in statistics.feeds:
        group = "/".join(feed.feed.split("/")[:2])
        products, size = sums.get(group, (0, 0))
        sums[group] = (products + feed.products, size + feed.bytes)
    return sums


def _link_line(run: DemoRun) -> str:
    state = run.site(SECOND).state or "starting"
    text = f"site {FIRST} ── site {SECOND}: {state}"
    return text if run.cut is None else f"{text}; link {run.cut}"


def _watcher_table(run: DemoRun) -> "Table":
    rows = [
        (
            name,
            select,
            str(run.pids().get(name, "")),
            f"{report.products:,}",
            format_size(report.bytes),
            _latency(report.latency_p50_s),
            _latency(report.latency_p99_s),
            str(report.lost),
        )
        for (name, report), select in zip(_watchers(run), (w.select for w in WATCHERS), strict=True)
    ]
    header = ("watcher", "selection", "process", "products", "payload", "latency p50", "p99", "lost")
    return framed_table(f"watchers at site {SECOND}", header, rows, right=range(2, 8))


def _worker_table(run: DemoRun) -> "Table":
    rows = []
    for name in WORKERS:
        report = run.latest.get(name, Report())
        state = str(run.kill) if name == KILLED_WORKER and run.kill is not None else "working"
        rows.append((name, str(run.pids().get(name, "")), f"{report.products:,}", format_size(report.bytes), state))
    title = f"workers that share station {STATION}"
    return framed_table(title, ("worker", "process", "acknowledged", "payload", "state"), rows, right=(1, 2, 3))


def _station_line(counts: StationStatistics) -> str:
    return (
        f"{counts.selection}: {counts.acknowledged:,} acknowledged, {counts.waiting:,} waiting, "
        f"{counts.leased:,} leased, {counts.restored:,} restored, {counts.redelivered:,} redelivered"
    )


def _pipeline_line(run: DemoRun, before: str = "") -> str:
    report = run.latest.get(PIPELINE)
    return "" if report is None else f"{before}pipeline, rows by rule: {report.state}"


def _watchers(run: DemoRun) -> list[tuple[str, Report]]:
    return [(watcher.name, run.latest.get(watcher.name, Report())) for watcher in WATCHERS]


def _latency(seconds: float | None) -> str:
    return "" if seconds is None else format_latency(seconds)
