"""Runs the demonstration, and shows the result: verdicts, the plot, and what to do with what is kept.

The verdict on deliveries is shown as soon as watchers and workers are done, the verdict on the tables when Spark is.
The live view is in demo_view.py, the result as JSON in demo_values.py.
"""

import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click

from headrace.cli.demo_values import values_of
from headrace.cli.demo_view import live_view
from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.output import echo_json, is_terminal, show_table
from headrace.cli.verify import VERDICT_HEADER, VERDICT_RIGHT, verdict_row
from headrace.demo.outcome import Delivery, Outcome, TableVerdicts, delivery_of, outcome_of, shared_of
from headrace.demo.pacing import smoothing_of
from headrace.demo.plan import (
    FIRST,
    SECOND,
    SLICES,
    STATION,
    STATION_SELECT,
    STREAM,
    STREAM_FEED,
    WATCHERS,
    Plan,
    start_of,
)
from headrace.demo.plot import save_plot
from headrace.demo.run import DemoRun
from headrace.errors import QueueExistsError
from headrace.queue import Queue
from headrace.testing import Verdict
from headrace.units import format_count, format_latency

_ORDER = VERDICT_HEADER.index("out of order")
_PLOT = "headrace-demo.png"


def new_plot() -> Path:
    """A new file for the plot in a folder that users share, which no other user can have put there."""
    descriptor, path = tempfile.mkstemp(prefix="headrace-demo-", suffix=".png")
    os.close(descriptor)
    return Path(path)


def run_demo(seconds: float, seed: int, keep: str | None, plot: str | None, pipeline: bool, as_json: bool) -> int:
    """Run it and show its result; the exit code is 0 if nothing was lost, duplicated, out of order or altered."""
    if keep is not None and Path(keep).exists():
        raise QueueExistsError(
            f"{keep} exists already", f"delete it, or keep the demo in another folder: {_program()} demo --keep FOLDER"
        )
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        queues = Path(keep or Path(folder) / "queues").absolute()
        plan = Plan(queues, Path(folder), seed, seconds, start_of(seconds, time.time_ns()))
        plot_path = Path(plot) if plot else Path(keep) / _PLOT if keep else None
        queues.mkdir(parents=True)
        with (
            Queue.create(plan.first, size=plan.queue_bytes, origin=FIRST) as first,
            Queue.create(plan.second, size=plan.queue_bytes, origin=SECOND) as second,
        ):
            second.station(STATION, STATION_SELECT)
            second.channel(STREAM, STREAM_FEED, slices=SLICES)
            with DemoRun(plan, first, second, pipeline) as run:
                outcome = _watch(plan, run, pipeline, quiet=as_json)
                drawn = None if outcome.tables is None else plot_path or new_plot()
                if drawn is not None and outcome.tables is not None:
                    save_plot(drawn, plan, outcome.delivery, outcome.tables, outcome.sharing, outcome.smoothing)
                if as_json:
                    echo_json({"ok": outcome.ok, **values_of(plan, outcome), "plot": drawn and str(drawn.absolute())})
                else:
                    _show(outcome, drawn)
    if not as_json:
        _show_next(keep, pipeline)
    return OK if outcome.ok else NEGATIVE


def _watch(plan: Plan, run: DemoRun, pipeline: bool, quiet: bool) -> Outcome:
    """Run to the end, and tell each verdict as soon as it is known."""
    with live_view(plan, pipeline, quiet) as view:
        run.deliver(view.refresh)
        delivery = delivery_of(plan, run)
        view.tell(run, _delivery_line(delivery))
        view.tell(run, f"a camera across the Atlantic (simulated), through a pacer: {smoothing_of(plan)}")
        run.spread(view.refresh)
        sharing = shared_of(plan, run)
        view.tell(run, f"verdict on nodes: {sharing}; {_faults([sharing.verdict], max)}")
        run.finish(view.refresh)
        outcome = outcome_of(plan, run, delivery, sharing)
        if outcome.tables is not None:
            view.tell(run, _table_line(outcome.tables))
        return outcome


def _delivery_line(delivery: Delivery) -> str:
    report = delivery.reports[WATCHERS[0].name]
    p50, p99 = (format_latency(latency or 0.0) for latency in (report.latency_p50_s, report.latency_p99_s))
    return (
        f"verdict on deliveries: put {delivery.first.inserted_products:,}, arrived {delivery.arrived:,}; "
        f"{_faults([*delivery.watchers.values(), delivery.workers], max)}; "
        f"without the cut, latency p50 {p50}, p99 {p99}"
    )


def _table_line(tables: TableVerdicts) -> str:
    received = {name: verdict.received for name, verdict in tables.verdicts.items()}
    counts = (
        (tables.reports, "report"), (len(tables.hourly), "hourly row"), (received["files radar"], "file"),
        (received["alerts"], "alert"), (received["dead letters"], "dead letter"),
    )  # fmt: skip
    contents = ", ".join(format_count(count, noun) for count, noun in counts)
    return f"verdict on the tables: {contents}; {_faults(tables.verdicts.values(), sum)}"


def _faults(verdicts: Iterable[Verdict], total: Callable[[Iterable[int]], int]) -> str:
    """What the oracle found in all of them; the rarer faults only if there are any."""
    every = list(verdicts)
    counts = {
        "lost": total(verdict.lost for verdict in every),
        "duplicated": total(verdict.duplicated for verdict in every),
        "altered": total(verdict.mismatched for verdict in every),
        "out of order": total(verdict.out_of_order for verdict in every),
        "unknown": total(verdict.unknown for verdict in every),
    }
    shown = ("lost", "duplicated", "altered")
    return ", ".join(f"{fault} {count:,}" for fault, count in counts.items() if count or fault in shown)


def _show(outcome: Outcome, plot: Path | None) -> None:
    if is_terminal() or not outcome.ok:
        _show_verdicts(outcome)
    text = (
        "nothing lost, nothing duplicated, nothing altered" if outcome.ok else "the demo failed: see the verdicts above"
    )
    click.echo(text if plot is None else f"{text}; plot: {plot}")


def _show_verdicts(outcome: Outcome) -> None:
    without_order: Mapping[str, Verdict] = {
        f"station {STATION}": outcome.delivery.workers,
        f"stream {STREAM}": outcome.sharing.verdict,
        **({} if outcome.tables is None else outcome.tables.verdicts),
    }
    verdicts = {**outcome.delivery.watchers, **without_order}
    rows = [verdict_row(name, verdict) for name, verdict in verdicts.items()]
    for row in rows[-len(without_order) :]:
        row[_ORDER] = ""
    show_table("verdict of the oracle", VERDICT_HEADER, rows, right=VERDICT_RIGHT)
    for name, verdict in verdicts.items():
        if not verdict.ok:
            click.echo(f"{name}: {verdict}")


# --- what to do next ------------------------------------------------------------------------------


def _show_next(keep: str | None, pipeline: bool) -> None:
    if keep is None:
        click.echo(f"to keep it all, with three commands to try on it: {_program()} demo --keep")
        return
    click.echo(f"kept in {keep}; try:")
    for command in next_commands(keep, pipeline):
        click.echo(f"  {command}")


def next_commands(folder: str, pipeline: bool) -> list[str]:
    """Three commands for what a demonstration has left behind, as they can be typed."""
    second = shlex.quote(f"{folder}/{SECOND}")
    chosen = "'alert/**' --payload" if pipeline else "'wx/radar/**'"
    commands = [
        f"{_program()} watch {second} --from oldest --select {chosen} --count 5 --timeout 1s",
        f"{_program()} station list {second}",
    ]
    if not pipeline:
        return [*commands, f"{_program()} queue check {second}"]
    code = f"import pandas; print(pandas.read_parquet({f'{folder}/pipeline/tables/hourly'!r}))"
    quoted = f'"{code}"' if shlex.quote(folder) == folder else shlex.quote(code)
    return [*commands, f"{_typed(sys.executable)} -c {quoted}"]


def _program() -> str:
    """This program, as it can be typed."""
    if os.path.basename(sys.argv[0]) == "headrace":
        return _typed(sys.argv[0])
    return f"{_typed(sys.executable)} -m headrace"


def _typed(program: str) -> str:
    """The shortest form that starts the program from here: its name if the shell finds it, else its path."""
    name, folder = os.path.basename(program), os.path.dirname(os.path.abspath(program))
    found = shutil.which(name)
    if found is not None and os.path.samefile(
        os.path.dirname(found), folder
    ):  # not the file: an environment links to it
        return name
    path = os.path.join(folder, name)
    relative = os.path.relpath(path)
    return shlex.quote(path if relative.startswith("..") else relative)
