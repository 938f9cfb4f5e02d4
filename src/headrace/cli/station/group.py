"""`headrace station`: the list of its commands."""

import click

from headrace.cli.lazy import LazyGroup, Place

COMMANDS = {
    "add": Place("headrace.cli.station.add:add", "Make a station on the terms given."),
    "list": Place("headrace.cli.station.list:list_stations", "List all stations and what waits there."),
    "show": Place("headrace.cli.station.show:show", "Show everything about one station."),
    "change": Place("headrace.cli.station.change:change", "Change terms while consumers work."),
    "seek": Place("headrace.cli.station.seek:seek", "Move a station to another place in the queue."),
    "pause": Place("headrace.cli.station.pause:pause", "Hand nothing out until it is resumed."),
    "resume": Place("headrace.cli.station.pause:resume", "Hand out again."),
    "remove": Place("headrace.cli.station.remove:remove", "Forget a station."),
    "parked": Place("headrace.cli.station.parked:parked", "List products laid aside after too many deliveries."),
    "retry": Place("headrace.cli.station.parked:retry", "Bring parked products back to the input."),
    "forget": Place("headrace.cli.station.parked:forget", "Give parked products up."),
}


@click.command(cls=LazyGroup, places=COMMANDS)
def station() -> None:
    """Make, inspect, change, move and remove stations: selections and positions that consumers share.

    \b
    Example:
      headrace station add wx.queue decode --select 'wx/radar/**' --capacity 1000 --blocking
      headrace station list wx.queue
      headrace station seek wx.queue decode 1h
    """
