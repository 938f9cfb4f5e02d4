"""`headrace wanted`: whether anybody wants a feed, for scripts that could do without making it."""

import click

from headrace.cli.failure import NEGATIVE, OK, visible
from headrace.cli.opening import open_queue
from headrace.cli.options import FEED, json_option, queue_argument
from headrace.cli.output import echo_json


@click.command()
@queue_argument
@click.argument("feeds", nargs=-1, required=True, type=FEED, metavar="FEED...")
@json_option
def wanted(queue_path: str, feeds: tuple[str, ...], as_json: bool) -> int:
    """Tell whether anybody wants products of FEED at QUEUE, here or at another site, and who.

    Listeners at other sites, stations, processes that read the queue, and cursors that were moved not long ago count.
    In doubt, a feed is wanted: for ten minutes after the last listener has gone, and always if no site runs at the
    queue. Exit code 0 if at least one FEED is wanted, 1 if none is.

    \b
    Example:
      headrace wanted wx.queue wx/radar/KFTG && make-volume | headrace put wx.queue - --feed wx/radar/KFTG
    """
    with open_queue(queue_path) as queue:
        found = {feed: queue.wanted_by(feed) for feed in feeds}
    for feed, by in found.items():
        if as_json:
            echo_json({"feed": feed, "wanted": bool(by), "by": by})
        else:
            click.echo(visible(f"{feed} is wanted by {'; '.join(by)}" if by else f"nobody wants {feed}"))
    return OK if any(found.values()) else NEGATIVE
