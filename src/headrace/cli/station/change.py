"""`headrace station change`."""

from typing import Any

import click

from headrace.cli.failure import visible
from headrace.cli.opening import open_queue
from headrace.cli.options import json_option, queue_argument
from headrace.cli.output import echo_json
from headrace.cli.station.standing import existing
from headrace.cli.station.terms import for_channel, term_options, terms_said
from headrace.queue import AnyQueue, AnyStation, local_queue


@click.command()
@queue_argument
@click.argument("name")
@term_options
@json_option
def change(queue_path: str, name: str, as_json: bool, **options: Any) -> None:
    """Change terms of the station NAME of QUEUE while its consumers work. What is not given stays.

    A new selection decides about products put from now on. A station of a channel may only be tighter than the channel.

    \b
    Example:
      headrace station change wx.queue decode --capacity 5000 --hung-after 2min
      headrace station change wx.queue decode --timeout none --no-blocking
    """
    said = terms_said(**options)
    if not said:
        raise click.UsageError("Nothing to change: give at least one option")
    with open_queue(queue_path) as queue:
        station = existing(queue, name)
        _change(queue, station, said)
        terms = station.terms
    if as_json:
        echo_json({"name": name, "terms": terms})
    else:
        click.echo(visible(f"changed {name}: {', '.join(said).replace('_', ' ')}"))


def _change(queue: AnyQueue, station: AnyStation, said: dict[str, Any]) -> None:
    """By way of its channel, if it has one."""
    channel = station.terms.channel
    if channel is None:
        station.change(**said)
    else:
        selection = said.get("selection")
        rest = {term: value for term, value in said.items() if term != "selection"}
        local_queue(queue).channel(channel).change_station(station.name, selection, **for_channel(rest))
