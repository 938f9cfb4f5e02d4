"""What `headrace demo` shows while it runs: a picture that changes on a terminal, otherwise one line for each event.

The picture counts every product that was put: it has arrived at the second site, is in the backlog, or is lost. Lost is
what a site, a station or a watcher has reported as lost; the verdicts of the oracle, which knows what was sent, follow.
Times are seconds since the first product was put, in both forms and in the plot.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

import click

from headrace.cli.output import framed_table, is_terminal
from headrace.demo.plan import FIRST, KILLED_WORKER, NODES, SECOND, STATION, WATCHERS, WORKERS, Plan
from headrace.demo.processes import Report
from headrace.demo.run import PIPELINE, REFRESH_S, DemoRun
from headrace.station import StationStatistics
from headrace.units import format_count, format_latency, format_size

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

_RATE_S = 2.0
_BLOCKS = "▁▂▃▄▅▆▇█"
_BARS_MAX = 48  # of the backlog over time
_LINK_WIDTH = 30
START = (
    f"starting two sites, the link between them, {len(WATCHERS)} watchers, {len(WORKERS)} workers, {len(NODES)} nodes"
    ", a pacer{spark} (times: since the first product)"
)


class View(Protocol):
    """What is shown while a demonstration runs."""

    def refresh(self, run: DemoRun) -> None:
        """Show the state of the run. Called a few times a second."""

    def tell(self, run: DemoRun, text: str) -> None:
        """Add a line to the events."""


@contextmanager
def live_view(plan: Plan, pipeline: bool, quiet: bool) -> Iterator[View]:
    start = START.format(spark=" and Spark" if pipeline else "")
    if quiet:
        yield _Silent()
    elif not is_terminal():
        click.echo(start)
        yield _Lines(plan)
    else:
        from rich.console import Console
        from rich.live import Live

        with Live(start, console=Console(), auto_refresh=False) as live:
            yield _Picture(plan, start, live)


class Event(NamedTuple):
    """Something that happened, or was done to the processes."""

    after_s: float
    text: str
    complete: bool = True  # nothing will be added to the text

    def __str__(self) -> str:
        return f"{self.after_s:6.1f} s  {self.text}"


def events_of(plan: Plan, run: DemoRun) -> list[Event]:
    """What has happened so far."""
    if not run.feeder.products:
        return []
    text = f"{plan.rate:,.0f} products per second are put at site {FIRST}, and arrive at site {SECOND}"
    events = [Event(0.0, text)]
    kill, cut = run.kill, run.cut
    if kill is not None:
        text = f"{KILLED_WORKER} is killed, holding {format_count(kill.held, 'product')}"
        if kill.back_after_s is not None:
            text += f"; redelivered after {format_latency(kill.back_after_s)}"
        is_complete = kill.back_after_s is not None or kill.held == 0 or cut is not None
        events.append(Event(kill.after_s, text, is_complete))
    if cut is not None:
        events.append(Event(cut.after_s, f"the link is cut; products are still put at site {FIRST}"))
        if cut.restored_s is not None:
            missing = format_count(cut.missing, "product")
            events.append(Event(cut.after_s + cut.lasted_s, f"the link is restored; site {SECOND} lacks {missing}"))
        if cut.caught_up_after_s is not None:
            after = format_latency(cut.caught_up_after_s)
            text = f"site {SECOND} has caught up, {after} later; lost {run.lost:,}"
            events.append(Event(cut.after_s + cut.lasted_s + cut.caught_up_after_s, text))
    return events


class _Silent:
    """For programs: the result is enough."""

    def refresh(self, run: DemoRun) -> None:
        pass

    def tell(self, run: DemoRun, text: str) -> None:
        pass


class _Lines:
    """For pipes and logs: one line for each event, once it is complete."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._shown: set[float] = set()

    def refresh(self, run: DemoRun) -> None:
        for event in events_of(self._plan, run):
            if event.complete and event.after_s not in self._shown:
                self._shown.add(event.after_s)
                click.echo(event)

    def tell(self, run: DemoRun, text: str) -> None:
        click.echo(Event(run.elapsed_s, text))


# --- the picture ----------------------------------------------------------------------------------


class _Picture:
    """For people at a terminal of at least 80 columns and 24 lines."""

    def __init__(self, plan: Plan, start: str, live: "Live") -> None:
        self._plan, self._start, self._live = plan, start, live
        self._rate = _Rate()
        self._backlog: list[int] = []
        self._told: list[Event] = []

    def refresh(self, run: DemoRun) -> None:
        self._live.update(self._draw(run) if run.feeder.products else self._start, refresh=True)

    def tell(self, run: DemoRun, text: str) -> None:
        self._told.append(Event(run.elapsed_s, text))
        self.refresh(run)

    def _draw(self, run: DemoRun) -> "Group":
        from rich.console import Group

        events = [*events_of(self._plan, run)[1:], *self._told]  # the headline says that products are put
        return Group(self._headline(run), _link(run), self._account(run), _consumers(run), _event_list(events))

    def _headline(self, run: DemoRun) -> "Text":
        from rich.text import Text

        put = run.first.statistics()
        rate = 0.0 if run.feeder.done else self._rate(put.inserted_products)
        return Text(
            f"{min(run.elapsed_s, self._plan.seconds):.0f} of {self._plan.seconds:.0f} s   {rate:,.0f} products/s   "
            f"{format_size(put.inserted_bytes)}   {format_count(put.duplicates, 'duplicate')} rejected",
            style="bold",
        )

    def _account(self, run: DemoRun) -> "Text":
        """Where each product is that was put, and the backlog so far."""
        from rich.text import Text

        put, arrived, lost = run.first.next - 1, run.arrived, run.lost
        backlog = max(0, put - arrived - lost)
        if not run.feeder.done or backlog:
            self._backlog.append(backlog)
        text = Text(f"put {put:,} = arrived {arrived:,} + backlog {backlog:,} + ")
        text.append(f"lost {lost:,}", style="bold red" if lost else "bold green")
        return text.append(f"\nbacklog {_bars(self._backlog)} most {max(self._backlog, default=0):,}", style="yellow")


class _Rate:
    """Products per second over about the last two seconds."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque(maxlen=1 + round(_RATE_S / REFRESH_S))

    def __call__(self, products: int) -> float:
        self._counts.append((time.monotonic(), products))
        (since_s, before), (now_s, _) = self._counts[0], self._counts[-1]
        return (products - before) / max(now_s - since_s, REFRESH_S)


def _bars(counts: list[int]) -> str:
    """The counts over time as a row of blocks; the highest of neighbours if there are too many."""
    each = -(-len(counts) // _BARS_MAX) or 1
    highest = [max(counts[start : start + each]) for start in range(0, len(counts), each)]
    top = max(highest, default=0) or 1
    return "".join(_BLOCKS[round(count / top * (len(_BLOCKS) - 1))] for count in highest)


def _link(run: DemoRun) -> "Text":
    from rich.text import Text

    is_cut = run.cut is not None and run.cut.restored_s is None
    state = "CUT" if is_cut else run.site(SECOND).state
    line = f" {state} ".center(_LINK_WIDTH, "╌" if is_cut else "━")
    return Text.assemble(
        (f"site {FIRST} ", "bold"), (f"{line}▶", "bold red" if is_cut else "green"), (f" site {SECOND}", "bold")
    )


def _event_list(events: list[Event]) -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for event in events:
        table.add_row(f"{event.after_s:5.1f} s", event.text)
    return table


def _consumers(run: DemoRun) -> "Table":
    rows = [_watcher_row(watcher.name, run.latest.get(watcher.name, Report())) for watcher in WATCHERS]
    rows.append(_station_row(run.station.statistics()))
    rows += [_worker_row(name, run) for name in WORKERS]
    if run.shared is not None:
        rows += [(name, f"{run.latest[name].products:,}", "", run.latest[name].state) for name in NODES]
    pipeline = run.latest.get(PIPELINE)
    if pipeline is not None:
        rows.append(("pipeline: rows", f"{pipeline.products:,}", "", pipeline.state))
    table = framed_table("", (f"at site {SECOND}", "products", "lost", ""), rows, right=(1, 2))
    if run.kill is not None:
        table.rows[len(WATCHERS) + 1 + WORKERS.index(KILLED_WORKER)].style = "red"
    return table


def _watcher_row(name: str, report: Report) -> tuple[str, ...]:
    latency = ""
    if report.latency_p50_s is not None and report.latency_p99_s is not None:
        latency = f"latency p50 {format_latency(report.latency_p50_s)}, p99 {format_latency(report.latency_p99_s)}"
    return f"watcher {name}", f"{report.products:,}", f"{report.lost:,}", latency


def _station_row(counts: StationStatistics) -> tuple[str, ...]:
    lost = sum(counts.left_out.values())
    state = f"{counts.waiting + counts.behind:,} waiting, {counts.leased:,} leased"
    return f"station {STATION}", f"{counts.acknowledged:,}", f"{lost:,}", state


def _worker_row(name: str, run: DemoRun) -> tuple[str, ...]:
    state = "working"
    if name == KILLED_WORKER and run.kill is not None:
        state = f"killed while it held {format_count(run.kill.held, 'product')}"
    return f"  {name}", f"{run.latest.get(name, Report()).products:,}", "", state
