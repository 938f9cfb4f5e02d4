"""`headrace pipeline run`: rules at work."""

import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.options import json_option
from headrace.cli.output import echo_json
from headrace.cli.pipeline.status import show_rules, state_line

_LOOK_S = 2.0


@click.command()
@click.argument("file", metavar="RULES.TOML", type=click.Path(path_type=Path))
@click.option("--master", default="local[*]", show_default=True, help="Of Spark: local[*], spark://host:7077 …")
@click.option("--once", is_flag=True, help="Read what there is, and end.")
@json_option
def run(file: Path, master: str, once: bool, as_json: bool) -> int:
    """Run the rules in RULES.TOML (or a Python module with `rules()`) until SIGTERM or Ctrl-C.

    Each rule goes on where it was. Exit code 1 if a rule has failed; the others go on without it.

    \b
    Example:
      headrace pipeline run rules.toml
      headrace pipeline run rules.toml --once --json
    """
    import msgspec

    from headrace.pipeline.job import Job
    from headrace.pipeline.rules.loading import load_rules
    from headrace.pipeline.session import spark_session

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    rules = load_rules(file)
    if once:
        rules = msgspec.structs.replace(
            rules, pipeline=msgspec.structs.replace(rules.pipeline, trigger="available-now")
        )
    ended = _until_told()
    click.echo(f"starting Spark ({master})", err=True)
    spark = spark_session(f"headrace {file.stem}", master, dict(rules.spark))
    job = Job(rules, spark)
    try:
        job.start()
        if not as_json:
            click.echo(f"{len(job.statuses)} rules of {file} are running", err=True)
        while not job.wait(_LOOK_S) and not ended.is_set():
            if not as_json:
                for status in job.statuses:
                    click.echo(state_line(status), err=True)
    finally:
        job.stop()
        spark.stop()
    if as_json:
        echo_json({"rules": job.statuses, "ok": not job.has_failed})
    else:
        show_rules(job.statuses)
    return NEGATIVE if job.has_failed else OK


def _until_told() -> threading.Event:
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return ended
