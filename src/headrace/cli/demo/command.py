"""`headrace demo`: the options, and the result as tables or as one JSON object."""

import tempfile
from pathlib import Path
from typing import Any

import click

from headrace.cli.demo.events import Cut, Kill
from headrace.cli.demo.outcome import Outcome, outcome_of
from headrace.cli.demo.plan import FIRST, SECOND, STATION, STATION_SELECT, VICTIM, WATCHERS, WORKERS, Plan
from headrace.cli.demo.stage import Stage
from headrace.cli.demo.view import view
from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.options import json_option
from headrace.cli.output import echo_json, format_short_age, many, show_table
from headrace.cli.verdicts import VERDICT_HEADER, VERDICT_RIGHT, verdict_row, verdict_values
from headrace.queue import Queue
from headrace.units import format_size

_ORDER = VERDICT_HEADER.index("out of order")


@click.command()
@click.option("--seconds", type=click.FloatRange(1, 45), default=16, show_default=True, help="How long to feed.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same products.")
@click.option("--path", metavar="PATH", help="Make the queues there and keep them. [default: a temporary directory]")
@json_option
def demo(seconds: float, seed: int, path: str | None, as_json: bool) -> int:
    """See two sites at work: a feed generator at one, two watchers and a station at the other, and a link that breaks.

    2,000 products per second go in at the first site, with some duplicates, and come out at the second; there one
    watcher takes everything, the other the radar feeds, and three workers share the weather feeds at a station. One of
    them is killed with products in hand, which the others then get. Half way the link between the sites is cut for some
    seconds. In the end the oracle compares what was put at the first site with what each watcher got at the second, and
    with what the workers put. Exit code 0 only if nothing was lost, duplicated, out of order or altered.

    \b
    Example:
      headrace demo
      headrace demo --seconds 5 --path demo && headrace queue info demo/two
    """
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        plan = Plan(Path(path).absolute() if path else Path(folder) / "queues", Path(folder), seed, seconds)
        plan.queues.mkdir(parents=True, exist_ok=True)
        with (
            Queue.create(plan.first, size=plan.queue_bytes, origin=FIRST) as first,
            Queue.create(plan.second, size=plan.queue_bytes, origin=SECOND) as second,
        ):
            second.station(STATION, STATION_SELECT)
            with Stage(plan, first, second) as stage:
                with view(plan, quiet=as_json) as refresh:
                    stage.play(refresh)
                outcome = outcome_of(plan, stage)
    if as_json:
        echo_json({"ok": outcome.ok, **_values(plan, outcome)})
    else:
        _show(plan, outcome)
        if path:
            click.echo(f"the queues are kept: headrace queue info {path}/{SECOND}")
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
        "arrived": outcome.second.inserted_products,
        "cut": None if outcome.cut is None else _cut_values(outcome.cut),
        "watchers": watchers,
        "station": _station_values(outcome),
    }


def _station_values(outcome: Outcome) -> dict[str, Any]:
    """Without what an oracle says of order: work that is shared has none."""
    told = outcome.station
    verdict = {name: value for name, value in verdict_values(outcome.workers).items() if "order" not in name}
    workers = [
        {
            "name": worker,
            "pid": outcome.pids[worker],
            "products": outcome.reports[worker].products,
            "killed": worker == VICTIM and outcome.kill is not None,
        }
        for worker in WORKERS
    ]
    return {
        "name": told.name,
        "select": told.selection,
        "waiting": told.waiting,
        "leased": told.leased,
        "done": told.done,
        "restored": told.restored,
        "redelivered": told.redelivered,
        "workers": workers,
        "kill": None if outcome.kill is None else _kill_values(outcome.kill),
        **verdict,
    }


def _kill_values(kill: Kill) -> dict[str, Any]:
    return {"pid": kill.pid, "after_s": kill.after_s, "held": kill.held, "back_after_s": kill.back_after_s}


def _cut_values(cut: Cut) -> dict[str, Any]:
    return {
        "after_s": cut.after_s, "lasted_s": cut.lasted_s, "missing": cut.missing,
        "caught_up_after_s": cut.caught_up_after_s,
    }  # fmt: skip


def _show(plan: Plan, outcome: Outcome) -> None:
    statistics = outcome.first
    click.echo(
        f"{many(statistics.inserted_products, 'product')} ({format_size(statistics.inserted_bytes)}) "
        f"in {plan.seconds:g} s, {statistics.inserted_products / plan.seconds:,.0f}/s; "
        f"{many(statistics.duplicates, 'duplicate')} rejected"
    )
    if outcome.cut is not None:
        click.echo(f"the link was {outcome.cut}")
    for watcher in WATCHERS:
        report = outcome.reports[watcher.name]
        p50, p99 = (format_short_age(latency or 0.0) for latency in (report.latency_p50_s, report.latency_p99_s))
        click.echo(f"{watcher.name}: latency from site to site, but for the cut: p50 {p50}, p99 {p99}")
    shares = ", ".join(f"{worker} {outcome.reports[worker].products:,}" for worker in WORKERS)
    click.echo(f"station {STATION}: {shares}")
    if outcome.kill is not None:
        click.echo(f"{VICTIM} was {outcome.kill}")
    verdicts = {**outcome.watchers, f"station {STATION}": outcome.workers}
    rows = [verdict_row(name, verdict) for name, verdict in verdicts.items()]
    rows[-1][_ORDER] = ""
    show_table("verdict of the oracle", VERDICT_HEADER, rows, right=VERDICT_RIGHT)
    for name, verdict in verdicts.items():
        if not verdict.ok:
            click.echo(f"{name}: {verdict}")
    click.echo("nothing lost, nothing twice" if outcome.ok else "not as it should be")
