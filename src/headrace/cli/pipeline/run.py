"""`headrace pipeline run`: rules at work."""

import logging
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.options import json_option
from headrace.cli.output import echo_json
from headrace.cli.pipeline.status import failure_line, show_rules, state_line
from headrace.units import format_size

if TYPE_CHECKING:
    from headrace.pipeline.run.status import RuleStatus

_LOOK_S = 2.0


@click.command()
@click.argument("file", metavar="RULES.TOML", type=click.Path(path_type=Path))
@click.option("--master", default="local[*]", show_default=True, help="Of Spark: local[*], spark://host:7077 …")
@click.option("--ship", is_flag=True, help="Give executors this Python environment; packed once, then cached.")
@click.option("--once", is_flag=True, help="Read what there is, and end.")
@json_option
def run(file: Path, master: str, ship: bool, once: bool, as_json: bool) -> int:
    """Run the rules in RULES.TOML (or a Python module with `rules()`) until SIGTERM or Ctrl-C.

    Each rule goes on where it was. One that meets trouble that may heal (a site that is away, a full disk) is tried
    again; with --once three times. Exit code 1 if a rule has failed; the others go on without it.

    \b
    Example:
      headrace pipeline run rules.toml
      headrace pipeline run rules.toml --once --json
      headrace pipeline run rules.toml --master spark://host:7077 --ship
    """
    import msgspec

    from headrace.pipeline.rules.load import load_rules
    from headrace.pipeline.run.job import Job
    from headrace.pipeline.source.data_source import spark_session
    from headrace.pipeline.spark.failures import JAVA_GONE
    from headrace.pipeline.spark.session import is_prepared

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    if ship and master.startswith("local"):
        raise click.UsageError(f"--ship is for executors of a cluster, and {master} has none")
    rules = load_rules(file)
    if once:
        rules = msgspec.structs.replace(
            rules, pipeline=msgspec.structs.replace(rules.pipeline, trigger="available-now")
        )
    environment = _packed() if ship else None
    ended = _until_told()
    hint = "" if is_prepared(master) else "; faster after: headrace pipeline prepare"
    click.echo(f"starting Spark ({master}){hint}", err=True)
    spark = spark_session(f"headrace {file.stem}", master, dict(rules.spark), environment)
    job = Job(rules, spark)
    try:
        job.start()
        if not as_json:
            click.echo(f"{len(job.statuses)} rules of {file} are running", err=True)
        told: dict[str, list[str]] = {}
        while not job.wait(_LOOK_S) and not ended.is_set():
            if not as_json:
                for status in job.statuses:
                    told[status.rule] = _tell_news(status, told.get(status.rule, []))
    finally:
        job.stop()
        with suppress(*JAVA_GONE):
            spark.stop()
    if as_json:
        echo_json({"rules": job.statuses, "ok": not job.has_failed})
    else:
        show_rules(job.statuses)
    return NEGATIVE if job.has_failed else OK


def _tell_news(status: "RuleStatus", told: list[str]) -> list[str]:
    """Say what has changed about a rule since `told` was said; what is to be said of it now."""
    lines = [state_line(status), *([failure_line(status)] if status.failure else [])]
    for line in lines:
        if line not in told:
            click.echo(line, err=True)
    return lines


def _packed() -> Path:
    """The archive for executors; tells how it comes along, since that takes a while."""
    from headrace.pipeline.spark.packing import packed_environment

    begun = told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= _LOOK_S:
            told = time.monotonic()
            click.echo(f"packing the environment: {format_size(done)} of {format_size(total)}", err=True)

    packed = packed_environment(tell)
    how = f"packed in {time.monotonic() - begun:.0f} s" if packed.is_new else "was packed before"
    click.echo(f"environment for executors {how} ({format_size(packed.bytes)}): {packed.path}", err=True)
    return packed.path


def _until_told() -> threading.Event:
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return ended
