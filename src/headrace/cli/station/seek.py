"""`headrace station seek`: asks before what waits is forgotten."""

from collections.abc import Sequence

import click

from headrace.cli.failure import NEGATIVE, OK, visible
from headrace.cli.opening import open_queue
from headrace.cli.options import POSITION, json_option, queue_argument
from headrace.cli.output import echo_json, many
from headrace.cli.station.question import confirmed
from headrace.cli.station.standing import existing, line_of
from headrace.station import StationStatistics


@click.command()
@queue_argument
@click.argument("name")
@click.argument("start", type=POSITION)
@click.option("--yes", is_flag=True, help="Do not ask before products are forgotten.")
@json_option
def seek(queue_path: str, name: str, start: int | str, yes: bool, as_json: bool) -> int:
    """Move the station NAME of QUEUE to START: a sequence, oldest, next, an age or a time.

    All stations of its series go with it. Products that wait there are forgotten, and so are those between the old
    place and the new one that nobody has looked at; from START on, everything selected is handed out, again if need
    be. What consumers hold stays with them, what is parked stays parked. It asks if anything is forgotten.

    \b
    Example:
      headrace station seek wx.queue decode 1h
      headrace station seek wx.queue decode next --yes
    """
    with open_queue(queue_path) as queue:
        station = existing(queue, name)
        line = line_of(queue, station)
        forgotten = forgotten_products(line, queue.resolve(start))
        if forgotten and not yes and not confirmed(visible(_question(line, start, forgotten))):
            click.echo("nothing was moved", err=True)
            return NEGATIVE
        position = station.seek(start)
    names = [told.name for told in line]
    if as_json:
        echo_json({"name": name, "position": position, "stations": names, "forgotten_products": forgotten})
    else:
        verb = "is" if len(names) == 1 else "are"
        click.echo(visible(f"{', '.join(names)} {verb} at {position}; {many(forgotten, 'product')} forgotten"))
    return OK


def forgotten_products(line: Sequence[StationStatistics], position: int) -> int:
    """How many products the stations of a line would no longer get, or get only because `position` is before them."""
    first = line[0]
    skipped = max(0, min(first.behind, position - first.position))
    return skipped + sum(told.waiting for told in line)


def _question(line: Sequence[StationStatistics], start: int | str, forgotten: int) -> str:
    names = ", ".join(told.name for told in line)
    return f"Forget {many(forgotten, 'product')} waiting for {names} and go to {start}?"
