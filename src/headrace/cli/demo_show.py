"""Runs the demonstration, and shows the result as tables or as one JSON object. The live view is in demo_view.py."""

import tempfile
import time
from pathlib import Path
from typing import Any

import click

from headrace.cli.demo_view import live_view
from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.output import echo_json, show_table
from headrace.cli.verify import VERDICT_HEADER, VERDICT_RIGHT, verdict_row, verdict_values
from headrace.demo.outcome import Outcome, TableVerdicts, outcome_of
from headrace.demo.plan import FIRST, KILLED_WORKER, SECOND, STATION, STATION_SELECT, WATCHERS, WORKERS, Plan, start_of
from headrace.demo.plot import save_plot
from headrace.demo.run import DemoRun, LinkCut, WorkerKill
from headrace.queue import Queue
from headrace.units import format_count, format_latency, format_size

_ORDER = VERDICT_HEADER.index("out of order")


def run_demo(seconds: float, seed: int, path: str | None, plot: str | None, pipeline: bool, as_json: bool) -> int:
    """Run it and show its result; the exit code is 0 if nothing was lost, duplicated, out of order or altered."""
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        queues = Path(path).absolute() if path else Path(folder) / "queues"
        plan = Plan(queues, Path(folder), seed, seconds, start_of(seconds, time.time_ns()))
        plot_path = Path(plot) if plot else (queues if path else Path(tempfile.gettempdir())) / "headrace-demo.png"
        plan.queues.mkdir(parents=True, exist_ok=True)
        with (
            Queue.create(plan.first, size=plan.queue_bytes, origin=FIRST) as first,
            Queue.create(plan.second, size=plan.queue_bytes, origin=SECOND) as second,
        ):
            second.station(STATION, STATION_SELECT)
            with DemoRun(plan, first, second, pipeline) as run:
                with live_view(plan, quiet=as_json) as refresh:
                    run.run(refresh)
                outcome = outcome_of(plan, run)
                if outcome.tables is not None:
                    save_plot(plot_path, plan, outcome.cut, outcome.tables)
    if as_json:
        drawn = None if outcome.tables is None else str(plot_path)
        echo_json({"ok": outcome.ok, **_values(plan, outcome), "plot": drawn})
    else:
        _show(plan, outcome)
        if outcome.tables is not None:
            click.echo(f"plot: {plot_path}")
        if path:
            click.echo(f"to see the queue: headrace queue info {path}/{SECOND}")
    return OK if outcome.ok else NEGATIVE


def _values(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    watchers = [
        {
            "name": watcher.name,
            "select": watcher.select,
            "bytes": outcome.reports[watcher.name].bytes,
            "latency_p50_s": outcome.reports[watcher.name].latency_p50_s,
            "latency_p99_s": outcome.reports[watcher.name].latency_p99_s,
            **verdict_values(outcome.watchers[watcher.name]),
        }
        for watcher in WATCHERS
    ]
    return {
        "seed": plan.seed,
        "seconds": plan.seconds,
        "products": outcome.first.inserted_products,
        "bytes": outcome.first.inserted_bytes,
        "duplicates": outcome.first.duplicates,
        "arrived": outcome.arrived,
        "cut": None if outcome.cut is None else _cut_values(outcome.cut),
        "watchers": watchers,
        "station": _station_values(outcome),
        "pipeline": None if outcome.tables is None else _table_values(outcome.tables),
    }


def _station_values(outcome: Outcome) -> dict[str, Any]:
    """The station, with its verdict but without order: shared work has none."""
    counts = outcome.station
    verdict = {name: value for name, value in verdict_values(outcome.workers).items() if "order" not in name}
    workers = [
        {
            "name": worker,
            "pid": outcome.pids[worker],
            "products": outcome.reports[worker].products,
            "killed": worker == KILLED_WORKER and outcome.kill is not None,
        }
        for worker in WORKERS
    ]
    return {
        "name": counts.name,
        "select": counts.selection,
        "waiting": counts.waiting,
        "leased": counts.leased,
        "acknowledged": counts.acknowledged,
        "restored": counts.restored,
        "redelivered": counts.redelivered,
        "workers": workers,
        "kill": None if outcome.kill is None else _kill_values(outcome.kill),
        **verdict,
    }


def _table_values(tables: TableVerdicts) -> dict[str, Any]:
    verdicts = [
        {"name": name, **{key: value for key, value in verdict_values(verdict).items() if "order" not in key}}
        for name, verdict in tables.verdicts.items()
    ]
    return {"ok": tables.ok, "reports": tables.reports, "verdicts": verdicts}


def _kill_values(kill: WorkerKill) -> dict[str, Any]:
    return {"pid": kill.pid, "after_s": kill.after_s, "held": kill.held, "back_after_s": kill.back_after_s}


def _cut_values(cut: LinkCut) -> dict[str, Any]:
    return {
        "after_s": cut.after_s, "lasted_s": cut.lasted_s, "missing": cut.missing,
        "caught_up_after_s": cut.caught_up_after_s,
    }  # fmt: skip


def _show(plan: Plan, outcome: Outcome) -> None:
    statistics = outcome.first
    click.echo(
        f"{format_count(statistics.inserted_products, 'product')} ({format_size(statistics.inserted_bytes)}) "
        f"in {plan.seconds:g} s, {statistics.inserted_products / plan.seconds:,.0f}/s; "
        f"{format_count(statistics.duplicates, 'duplicate')} rejected"
    )
    if outcome.cut is not None:
        click.echo(f"the link was {outcome.cut}")
    for watcher in WATCHERS:
        report = outcome.reports[watcher.name]
        p50, p99 = (format_latency(latency or 0.0) for latency in (report.latency_p50_s, report.latency_p99_s))
        click.echo(f"{watcher.name}: latency from site to site, without the cut: p50 {p50}, p99 {p99}")
    shares = ", ".join(f"{worker} {outcome.reports[worker].products:,}" for worker in WORKERS)
    click.echo(f"station {STATION}: {shares}")
    if outcome.kill is not None:
        click.echo(f"{KILLED_WORKER} was {outcome.kill}")
    tables = outcome.tables
    if tables is not None:
        reports, hours = format_count(tables.reports, "METAR report"), format_count(len(tables.hourly), "hourly row")
        click.echo(f"pipeline: {reports}, {hours}")
    without_order = {f"station {STATION}": outcome.workers, **({} if tables is None else tables.verdicts)}
    verdicts = {**outcome.watchers, **without_order}
    rows = [verdict_row(name, verdict) for name, verdict in verdicts.items()]
    for row in rows[-len(without_order) :]:
        row[_ORDER] = ""
    show_table("verdict of the oracle", VERDICT_HEADER, rows, right=VERDICT_RIGHT)
    for name, verdict in verdicts.items():
        if not verdict.ok:
            click.echo(f"{name}: {verdict}")
    click.echo("nothing lost, nothing duplicated" if outcome.ok else "the demo failed: see the verdicts above")
