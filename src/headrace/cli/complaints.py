"""Mistakes in files, as commands show them: where, what, and what to try."""

from collections.abc import Sequence

import click

from headrace.cli.failure import OK, USAGE, visible
from headrace.cli.output import echo_json, many
from headrace.toml.document import Problem


def show_complaints(path: str, complaints: Sequence[Problem], as_json: bool) -> int:
    """All of them, and the exit code: 2 if there is any."""
    if as_json:
        echo_json({"path": path, "ok": not complaints, "complaints": complaints})
        return USAGE if complaints else OK
    for complaint in complaints:
        _show(complaint)
    if not complaints:
        click.echo(f"{path} is sound")
        return OK
    click.echo(f"{path}: {many(len(complaints), 'mistake')}", err=True)
    return USAGE


def _show(complaint: Problem) -> None:
    click.echo(visible(str(complaint)))
    if complaint.excerpt:
        click.echo(complaint.excerpt)  # has no control characters
    if complaint.hint:
        click.echo(f"  try: {visible(complaint.hint)}")
