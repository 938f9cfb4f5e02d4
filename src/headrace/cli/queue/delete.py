"""`headrace queue delete`: products by selection, or the whole queue after asking."""

from pathlib import Path

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.opening import open_here
from headrace.cli.options import json_option, selection_of, selection_options
from headrace.cli.output import echo_json, many
from headrace.errors import NotAQueueError
from headrace.log.config import CONFIG_FILE
from headrace.log.directory import check_path
from headrace.queue import Queue


@click.command()
@click.argument("path")
@selection_options
@click.option("--yes", is_flag=True, help="Do not ask before the whole queue is deleted.")
@json_option
def delete(path: str, select: str | None, ident: str | None, yes: bool, as_json: bool) -> int:
    """Delete the products that --select and --ident choose; without these, the whole queue at PATH.

    Readers pass over deleted products at once, and an equal product may be put again; the space returns later. The
    whole queue can only be deleted while nobody has it open.

    \b
    Example:
      headrace queue delete wx.queue --select 'wx/text/**' --ident '^SAUS'
      headrace queue delete wx.queue --yes
    """
    if select is not None or ident is not None:
        return _delete_products(path, select, ident, as_json)
    return _delete_queue(path, yes, as_json)


def _delete_products(path: str, select: str | None, ident: str | None, as_json: bool) -> int:
    selection = selection_of(select, ident)
    with open_here(path) as queue:
        deleted = queue.delete(selection)
    if as_json:
        echo_json({"path": path, "deleted_products": deleted})
    else:
        click.echo(f"deleted {many(deleted, 'product')} of {path}")
    return OK


def _delete_queue(path: str, yes: bool, as_json: bool) -> int:
    _check_is_queue(Path(path).absolute())
    if not yes and not _confirmed(path):
        click.echo("nothing was deleted", err=True)
        return NEGATIVE
    Queue.remove(path)
    if as_json:
        echo_json({"path": path, "deleted": True})
    else:
        click.echo(f"deleted the queue {path}")
    return OK


def _confirmed(path: str) -> bool:
    """Ask; no answer is a no."""
    try:
        return click.confirm(f"Delete the queue {path} with everything in it?", err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def _check_is_queue(path: Path) -> None:
    """A slip of the hand must not delete a directory of something else."""
    check_path(path)
    if not (path / CONFIG_FILE).exists():
        raise NotAQueueError(f"{path} has no {CONFIG_FILE}, it is not a queue", "give the directory of a queue")
