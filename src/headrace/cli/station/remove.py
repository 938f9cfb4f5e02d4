"""`headrace station remove`: asks if there is work left."""

import click

from headrace.cli.failure import NEGATIVE, OK, visible
from headrace.cli.opening import open_queue
from headrace.cli.options import json_option, queue_argument
from headrace.cli.output import echo_json, many
from headrace.cli.station.question import confirmed
from headrace.cli.station.standing import existing


@click.command()
@queue_argument
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask if there is work left.")
@json_option
def remove(queue_path: str, name: str, yes: bool, as_json: bool) -> int:
    """Forget the station NAME of QUEUE, with its place and everything that waits or is parked there.

    The products themselves stay in the queue, and go on to the stations that stand behind it. It asks if anything is
    waiting, leased or parked.

    \b
    Example:
      headrace station remove wx.queue decode
    """
    with open_queue(queue_path) as queue:
        station = existing(queue, name)
        told = station.statistics()
        left = told.waiting + told.behind + told.leased + told.parked
        if left and not yes and not confirmed(visible(f"Remove {name}, with {many(left, 'unacknowledged product')}?")):
            click.echo("nothing was removed", err=True)
            return NEGATIVE
        station.remove()
    if as_json:
        echo_json({"name": name, "removed": True, "left_products": left})
    else:
        click.echo(visible(f"removed {name}; {many(left, 'unacknowledged product')}"))
    return OK
