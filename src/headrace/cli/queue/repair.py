"""`headrace queue repair`."""

import click

from headrace.cli.failure import visible
from headrace.cli.options import json_option
from headrace.cli.output import echo_json
from headrace.queue import Queue


@click.command()
@click.argument("path")
@json_option
def repair(path: str, as_json: bool) -> None:
    """Mend the damaged queue at PATH, keeping every product that is whole, and tell what was done.

    Nobody may have the queue open meanwhile.

    \b
    Example:
      headrace queue repair wx.queue
    """
    done = Queue.repair(path)
    if as_json:
        echo_json({"path": path, "done": done})
        return
    for step in done:
        click.echo(visible(step))
    if not done:
        click.echo(f"{path}: nothing to repair")
