"""`headrace demo`: the options, and the result as tables or as one JSON object."""

import tempfile
from pathlib import Path
from typing import Any

import click

from headrace.cli.demo.plan import WATCHERS, Plan
from headrace.cli.demo.stage import Stage
from headrace.cli.demo.view import view
from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.options import json_option
from headrace.cli.output import echo_json, format_short_age, many, show_table
from headrace.cli.verdicts import VERDICT_HEADER, VERDICT_RIGHT, verdict_row, verdict_values
from headrace.queue import Queue
from headrace.queue.statistics import Statistics
from headrace.testing import Verdict
from headrace.units import format_size


@click.command()
@click.option("--seconds", type=click.FloatRange(1, 45), default=20, show_default=True, help="How long to feed.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same products.")
@click.option("--path", metavar="PATH", help="Make the queue there and keep it. [default: a temporary directory]")
@json_option
def demo(seconds: float, seed: int, path: str | None, as_json: bool) -> int:
    """See a feed generator, a queue and two watchers at work, each in a process of its own.

    2,000 products per second go in, with some duplicates; one watcher takes everything, the other the radar feeds. In
    the end the oracle compares what was sent with what each watcher got. Exit code 0 only if nothing was lost,
    duplicated, out of order or altered.

    \b
    Example:
      headrace demo
      headrace demo --seconds 5 --path demo.queue && headrace queue info demo.queue
    """
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        plan = Plan(Path(path).absolute() if path else Path(folder) / "queue", Path(folder), seed, seconds)
        with Queue.create(plan.queue, size=plan.queue_bytes) as queue, Stage(plan) as stage:
            with view(plan, queue, quiet=as_json) as refresh:
                stage.play(refresh)
            statistics, verdicts = queue.statistics(), stage.verdicts()
    ok = all(verdict.ok for verdict in verdicts.values())
    if as_json:
        echo_json({"ok": ok, **_values(plan, statistics, stage, verdicts)})
    else:
        _show(plan, statistics, stage, verdicts, ok)
        if path:
            click.echo(f"the queue is kept: headrace queue info {path}")
    return OK if ok else NEGATIVE


def _values(plan: Plan, statistics: Statistics, stage: Stage, verdicts: dict[str, Verdict]) -> dict[str, Any]:
    watchers = [
        {
            "name": watcher.name,
            "select": watcher.select,
            "bytes": stage.latest[watcher.name].bytes,
            "latency_p50_s": stage.latest[watcher.name].latency_p50_s,
            "latency_p99_s": stage.latest[watcher.name].latency_p99_s,
            **verdict_values(verdicts[watcher.name]),
        }
        for watcher in WATCHERS
    ]
    return {
        "seed": plan.seed,
        "seconds": plan.seconds,
        "products": statistics.inserted_products,
        "bytes": statistics.inserted_bytes,
        "duplicates": statistics.duplicates,
        "watchers": watchers,
    }


def _show(plan: Plan, statistics: Statistics, stage: Stage, verdicts: dict[str, Verdict], ok: bool) -> None:
    click.echo(
        f"{many(statistics.inserted_products, 'product')} ({format_size(statistics.inserted_bytes)}) "
        f"in {plan.seconds:g} s, {statistics.inserted_products / plan.seconds:,.0f}/s; "
        f"{many(statistics.duplicates, 'duplicate')} rejected"
    )
    for watcher in WATCHERS:
        report = stage.latest[watcher.name]
        p50, p99 = report.latency_p50_s or 0.0, report.latency_p99_s or 0.0
        click.echo(f"{watcher.name}: latency p50 {format_short_age(p50)}, p99 {format_short_age(p99)}")
    rows = [verdict_row(name, verdict) for name, verdict in verdicts.items()]
    show_table("verdict of the oracle", VERDICT_HEADER, rows, right=VERDICT_RIGHT)
    for name, verdict in verdicts.items():
        if not verdict.ok:
            click.echo(f"{name}: {verdict}")
    click.echo("nothing lost, nothing twice" if ok else "not as it should be")
