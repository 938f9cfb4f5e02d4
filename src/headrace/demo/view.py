"""What a demonstration shows while it runs: a live table on a terminal, otherwise a line now and then."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headrace.cli.output import format_short_age, framed_table, is_terminal
from headrace.demo.actors import Report
from headrace.demo.plan import FIRST, SECOND, STATION, VICTIM, WATCHERS, WORKERS, Plan
from headrace.demo.stage import PIPELINE, REFRESH_S, Refresh, Stage
from headrace.log.statistics import Statistics
from headrace.station import StationStatistics
from headrace.units import format_size

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_LINE_EVERY_S = 2.0
_RATE_S = 2.0


@contextmanager
def view(plan: Plan, quiet: bool) -> Iterator[Refresh]:
    """Something to call with the stage, as often as one likes."""
    if quiet:
        yield lambda stage: None
    elif not is_terminal():
        yield _Lines()
    else:
        from rich.console import Console
        from rich.live import Live

        table = _LiveTable(plan)
        with Live(console=Console(), auto_refresh=False) as live:
            yield lambda stage: live.update(table.draw(stage), refresh=True)


class _Rate:
    """Products per second over the last two seconds or so."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque(maxlen=1 + round(_RATE_S / REFRESH_S))

    def __call__(self, products: int) -> float:
        self._counts.append((time.monotonic(), products))
        (began_s, before), (now_s, _) = self._counts[0], self._counts[-1]
        return (products - before) / max(now_s - began_s, REFRESH_S)


class _Lines:
    """For pipes and logs."""

    def __init__(self) -> None:
        self._rate = _Rate()
        self._began_s = self._told_s = time.monotonic()
        self._told: set[str] = set()

    def __call__(self, stage: Stage) -> None:
        if not stage.feeder.products:
            self._say_once("starting the processes …")
            return
        now_s, statistics = time.monotonic(), stage.first.statistics()
        rate = self._rate(statistics.inserted_products)
        for event in _events(stage):
            self._say_once(event)
        if now_s - self._told_s < _LINE_EVERY_S:
            return
        self._told_s = now_s
        counts = ", ".join(f"{name} {report.products:,}" for name, report in _watchers(stage))
        click.echo(
            f"{now_s - self._began_s:5.1f} s  site {FIRST}: {statistics.inserted_products:,} products, "
            f"{format_size(statistics.inserted_bytes)}, {rate:,.0f}/s, "
            f"{statistics.duplicates:,} duplicates rejected; site {SECOND}: {stage.second.next - 1:,}; "
            f"watchers: {counts}; station: {_station_line(stage.station.statistics())}{_pipeline_line(stage, '; ')}"
        )

    def _say_once(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            click.echo(f"{time.monotonic() - self._began_s:5.1f} s  {words}")


def _events(stage: Stage) -> Iterator[str]:
    """What has been done to the processes, in words that do not change."""
    if stage.kill is not None:
        told = f"killed at {stage.kill.after_s:.1f} s with {stage.kill.held} in hand"
        yield f"{VICTIM} (process {stage.kill.pid}) was {told}"
    cut = stage.cut
    if cut is not None:
        yield f"the link between the sites was cut at {cut.after_s:.1f} s"
        if cut.mended_s is not None:
            yield f"the link is back after {cut.lasted_s:.1f} s; site {SECOND} lacks {cut.missing:,} products"
        if cut.caught_up_after_s is not None:
            yield f"site {SECOND} has caught up, {format_short_age(cut.caught_up_after_s)} after the link was back"


class _LiveTable:
    """For people at a terminal."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rate = _Rate()
        self._began_s: float | None = None

    def draw(self, stage: Stage) -> "Group":
        from rich.console import Group

        return Group(
            self._headline(stage, stage.first.statistics()),
            _groups(stage),
            _link_line(stage),
            _watcher_table(stage),
            _worker_table(stage),
            _station_line(stage.station.statistics()),
            _pipeline_line(stage),
        )

    def _headline(self, stage: Stage, statistics: Statistics) -> str:
        if not stage.feeder.products:
            return "starting the processes …"
        self._began_s = self._began_s or time.monotonic()
        elapsed_s = min(time.monotonic() - self._began_s, self._plan.seconds)
        return (
            f"{elapsed_s:.0f} of {self._plan.seconds:.0f} s   {statistics.inserted_products:,} products   "
            f"{format_size(statistics.inserted_bytes)}   {self._rate(statistics.inserted_products):,.0f}/s   "
            f"{statistics.duplicates:,} duplicates rejected"
        )


def _groups(stage: Stage) -> "Table":
    """Feeds summed up by their first two levels."""
    here, there = (_sums(queue.statistics()) for queue in (stage.first, stage.second))
    rows = [
        (group, f"{products:,}", format_size(size), f"{there.get(group, (0, 0))[0]:,}")
        for group, (products, size) in sorted(here.items())
    ]
    header = ("feeds", f"put at site {FIRST}", "payload", f"arrived at site {SECOND}")
    return framed_table("in the queues", header, rows, right=[1, 2, 3])


def _sums(statistics: Statistics) -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for feed in statistics.feeds:
        group = "/".join(feed.feed.split("/")[:2])
        products, size = sums.get(group, (0, 0))
        sums[group] = (products + feed.products, size + feed.bytes)
    return sums


def _link_line(stage: Stage) -> str:
    state = stage.site(SECOND).state or "starting"
    told = f"site {FIRST} ── site {SECOND}: {state}"
    return told if stage.cut is None else f"{told}; {stage.cut}"


def _watcher_table(stage: Stage) -> "Table":
    rows = [
        (
            name,
            select,
            str(stage.pids().get(name, "")),
            f"{report.products:,}",
            format_size(report.bytes),
            _latency(report.latency_p50_s),
            _latency(report.latency_p99_s),
            str(report.lost),
        )
        for (name, report), select in zip(_watchers(stage), (w.select for w in WATCHERS), strict=True)
    ]
    header = ("watcher", "wants", "process", "products", "payload", "latency p50", "p99", "lost")
    return framed_table(f"out of the queue of site {SECOND}", header, rows, right=range(2, 8))


def _worker_table(stage: Stage) -> "Table":
    rows = []
    for name in WORKERS:
        report = stage.latest.get(name, Report())
        state = str(stage.kill) if name == VICTIM and stage.kill is not None else "works"
        rows.append((name, str(stage.pids().get(name, "")), f"{report.products:,}", format_size(report.bytes), state))
    title = f"shared at station {STATION}"
    return framed_table(title, ("worker", "process", "put", "payload", "state"), rows, right=(1, 2, 3))


def _station_line(told: StationStatistics) -> str:
    return (
        f"{told.selection}: {told.acknowledged:,} acknowledged, {told.waiting:,} waiting, {told.leased:,} in hand, "
        f"{told.restored:,} taken back, {told.redelivered:,} handed out again"
    )


def _pipeline_line(stage: Stage, before: str = "") -> str:
    told = stage.latest.get(PIPELINE)
    return "" if told is None else f"{before}pipeline, rows by rule: {told.state}"


def _watchers(stage: Stage) -> list[tuple[str, Report]]:
    return [(watcher.name, stage.latest.get(watcher.name, Report())) for watcher in WATCHERS]


def _latency(seconds: float | None) -> str:
    return "" if seconds is None else format_short_age(seconds)
