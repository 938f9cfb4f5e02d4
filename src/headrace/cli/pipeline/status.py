"""`headrace pipeline status`: how the rules get on, from the file that the running job writes once a second."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.options import json_option
from headrace.cli.output import echo_json, format_short_age, show_table
from headrace.errors import PipelineError

if TYPE_CHECKING:
    from headrace.pipeline.run.status import RuleStatus

_STALE_S = 10.0
_HEADER = ("rule", "state", "batches", "rows", "dead letters", "failed", "last batch", "products/s", "behind", "lost")


@click.command()
@click.argument("file", metavar="RULES.TOML", type=click.Path(path_type=Path))
@json_option
def status(file: Path, as_json: bool) -> int:
    """Show what each rule of RULES.TOML has done, how fast it is, and how far behind.

    Exit code 1 if a rule has failed, or the job has not been heard of for ten seconds. A rule that is tried again has
    not failed.

    \b
    Example:
      headrace pipeline status rules.toml
    """
    from headrace.pipeline.rules.load import load_rules
    from headrace.pipeline.run.status import load_status

    told = load_status(load_rules(file).pipeline)
    if told is None:
        raise PipelineError(f"the rules of {file} have never run", f"headrace pipeline run {file}")
    age_s = time.time() - told.updated_ns / 1e9
    failed = any(rule.state == "failed" for rule in told.rules)
    running = any(rule.state in ("starting", "running", "retrying") for rule in told.rules)
    if as_json:
        echo_json({"path": told.path, "age_s": age_s, "rules": told.rules})
    else:
        show_rules(told.rules)
        click.echo(f"heard of {format_short_age(age_s)} ago" if running else "not running")
    return NEGATIVE if failed or (running and age_s > _STALE_S) else OK


def show_rules(rules: "list[RuleStatus]") -> None:
    rows = [
        (rule.rule, rule.state, f"{rule.batches:,}", f"{rule.rows:,}", f"{rule.errors:,}", f"{rule.failed:,}",
         f"{rule.batch_s:.2f} s", f"{rule.products_per_s:,.0f}", f"{rule.behind:,}", f"{rule.lost:,}")
        for rule in rules
    ]  # fmt: skip
    show_table("rules", _HEADER, rows, right=range(2, len(_HEADER)))
    for rule in rules:
        if rule.failure:
            click.echo(failure_line(rule), err=True)


def state_line(rule: "RuleStatus") -> str:
    return (
        f"{rule.rule}: {rule.state}, {rule.rows:,} rows in {rule.batches:,} batches, {rule.products_per_s:,.0f}/s, "
        f"{rule.behind:,} behind, {rule.errors:,} dead letters"
    )


def failure_line(rule: "RuleStatus") -> str:
    how = {"failed": "has failed", "retrying": "is tried again"}.get(rule.state, f"is {rule.state}")
    return f"rule {rule.rule} {how}: {rule.failure}"
