"""`headrace station pause` and `headrace station resume`."""

import click

from headrace.cli.failure import visible
from headrace.cli.opening import open_queue
from headrace.cli.options import json_option, queue_argument
from headrace.cli.output import echo_json, many
from headrace.cli.station.standing import existing


@click.command()
@queue_argument
@click.argument("name")
@json_option
def pause(queue_path: str, name: str, as_json: bool) -> None:
    """Hand out nothing at the station NAME of QUEUE until it is resumed. Products go on to wait there.

    \b
    Example:
      headrace station pause wx.queue decode
    """
    _set_paused(queue_path, name, True, as_json)


@click.command()
@queue_argument
@click.argument("name")
@json_option
def resume(queue_path: str, name: str, as_json: bool) -> None:
    """Hand out again at the station NAME of QUEUE.

    \b
    Example:
      headrace station resume wx.queue decode
    """
    _set_paused(queue_path, name, False, as_json)


def _set_paused(queue_path: str, name: str, paused: bool, as_json: bool) -> None:
    with open_queue(queue_path) as queue:
        station = existing(queue, name)
        if paused:
            station.pause()
        else:
            station.resume()
        waiting = station.statistics().waiting
    if as_json:
        echo_json({"name": name, "paused": paused, "waiting": waiting})
    else:
        verb = "paused" if paused else "resumed"
        click.echo(visible(f"{verb} {name}; {many(waiting, 'product')} waiting"))
