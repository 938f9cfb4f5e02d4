"""`headrace cursor`: the durable positions of a queue."""

import click

from headrace.cli.group import Group
from headrace.cli.options import POSITION, completes, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json
from headrace.cli.queue import show_cursors
from headrace.errors import CursorMissingError
from headrace.queue import AnyCursor, AnyQueue


@click.group(cls=Group)
def cursor() -> None:
    """Create, list, move and delete the durable positions of a queue.

    \b
    Example:
      headrace watch wx.queue --cursor archive --timeout 5s
      headrace cursor list wx.queue
      headrace cursor seek wx.queue archive oldest
    """


@cursor.command("list", short_help="List all cursors.")
@queue_argument
@json_option
def list_cursors(queue_path: str, as_json: bool) -> None:
    """List the cursors of QUEUE: position, backlog, and products lost to eviction.

    \b
    Example:
      headrace cursor list wx.queue
    """
    with open_queue(queue_path) as queue:
        statistics = queue.statistics()
    if as_json:
        for each in statistics.cursors:
            echo_json(each)
    elif statistics.cursors:
        show_cursors(statistics)
    else:
        click.echo(f"{queue_path} has no cursors")


@cursor.command(short_help="Create a cursor.")
@queue_argument
@click.argument("name")
@click.option(
    "--from", "start", type=POSITION, default="oldest", show_default=True,
    metavar="oldest|next|SEQUENCE|AGE|TIME", help="Where it starts.",
)  # fmt: skip
@json_option
def create(queue_path: str, name: str, start: int | str, as_json: bool) -> None:
    """Create the cursor NAME of QUEUE. A cursor that exists stays where it is.

    \b
    Example:
      headrace cursor create wx.queue archive --from 1h
    """
    with open_queue(queue_path) as queue:
        is_new = name not in queue.cursors()
        position = queue.cursor(name, start).position
    if as_json:
        echo_json({"name": name, "created": is_new, "position": position})
    else:
        click.echo(f"created {name} at {position}" if is_new else f"{name} exists already, at {position}")


@cursor.command(short_help="Move a cursor.")
@queue_argument
@click.argument("name", shell_complete=completes("cursor"))
@click.argument("start", type=POSITION)
@json_option
def seek(queue_path: str, name: str, start: int | str, as_json: bool) -> None:
    """Move the cursor NAME of QUEUE to START: a sequence, oldest, next, an age or a time.

    \b
    Example:
      headrace cursor seek wx.queue archive 1h
    """
    with open_queue(queue_path) as queue:
        position = _existing(queue, name).seek(start)
    if as_json:
        echo_json({"name": name, "position": position})
    else:
        click.echo(f"{name} is at {position}")


@cursor.command(short_help="Delete a cursor.")
@queue_argument
@click.argument("name", shell_complete=completes("cursor"))
@json_option
def delete(queue_path: str, name: str, as_json: bool) -> None:
    """Delete the cursor NAME of QUEUE.

    \b
    Example:
      headrace cursor delete wx.queue archive
    """
    with open_queue(queue_path) as queue:
        _existing(queue, name).remove()
    if as_json:
        echo_json({"name": name, "deleted": True})
    else:
        click.echo(f"deleted {name}")


def _existing(queue: AnyQueue, name: str) -> AnyCursor:
    """The cursor. An unknown name is refused: `Queue.cursor` would create it, and it is most likely a typing error."""
    names = queue.cursors()
    if name not in names:
        known = f"its cursors are: {', '.join(names)}" if names else "create one with: headrace cursor create"
        raise CursorMissingError(f"{queue.path} has no cursor {name!r}", known)
    return queue.cursor(name)
