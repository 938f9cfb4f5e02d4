"""`headrace queue`: the list of its commands."""

import click

from headrace.cli.lazy import LazyGroup, Place

COMMANDS = {
    "create": Place("headrace.cli.queue.create:create", "Make an empty queue."),
    "info": Place("headrace.cli.queue.info:info", "Show terms, holdings, rates, cursors and feeds."),
    "check": Place("headrace.cli.queue.check:check", "Walk everything and list every inconsistency."),
    "repair": Place("headrace.cli.queue.repair:repair", "Mend a damaged queue that nobody has open."),
    "resize": Place("headrace.cli.queue.resize:resize", "Change the limits of size and age."),
    "delete": Place("headrace.cli.queue.delete:delete", "Delete products, or the whole queue."),
}


@click.command(cls=LazyGroup, places=COMMANDS)
def queue() -> None:
    """Create, inspect, check, mend and delete queues.

    \b
    Example:
      headrace queue create wx.queue --size 2GiB --age 1h
      headrace queue info wx.queue
    """
