"""`headrace queue check`: may run beside writers, changes nothing."""

import click

from headrace.cli.failure import NEGATIVE, OK, visible
from headrace.cli.opening import open_here
from headrace.cli.options import json_option
from headrace.cli.output import echo_json, many
from headrace.cli.progress import progress_bar
from headrace.errors import QueueDamagedError
from headrace.log.check import Finding


@click.command()
@click.argument("path")
@json_option
def check(path: str, as_json: bool) -> int:
    """Walk all of the queue at PATH and list every inconsistency. Exit code 1 if there is any.

    It may run while the queue is in use, and changes nothing; `headrace queue repair` mends.

    \b
    Example:
      headrace queue check wx.queue && echo sound
    """
    findings = _findings(path)
    if as_json:
        echo_json({"path": path, "ok": not findings, "findings": findings})
        return NEGATIVE if findings else OK
    for finding in findings:
        click.echo(visible(str(finding)))
    if not findings:
        click.echo(f"{path} is sound")
        return OK
    click.echo(f"{many(len(findings), 'finding')}; to mend: headrace queue repair {path}", err=True)
    return NEGATIVE


def _findings(path: str) -> list[Finding]:
    """What is wrong; a queue that is too damaged to be opened is a finding itself."""
    try:
        with open_here(path) as queue, progress_bar("checking segments") as bar:
            return queue.check(bar.set)
    except QueueDamagedError as error:
        return [Finding(path, error.problem)]
