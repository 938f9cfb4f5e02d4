"""`headrace serve`: run a site. `headrace wanted`: ask a site, or a queue, whether a feed has subscribers."""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.group import Command
from headrace.cli.options import FEED, completes, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json
from headrace.text import visible

if TYPE_CHECKING:
    from headrace.site.site import Site


@click.command(cls=Command)
@click.argument("file", metavar="SITE.TOML", type=click.Path(path_type=Path))
@json_option
def serve(file: Path, as_json: bool) -> None:
    """Run the site that SITE.TOML describes: its queue, its connections and its requests.

    It runs until SIGTERM or Ctrl-C, then stops in order: every product that it received is in the queue, and its
    requests continue from there after the next start. On SIGHUP it reads SITE.TOML again.

    \b
    Example:
      headrace config example > site.toml
      headrace config check site.toml
      headrace serve site.toml
    """
    # Until the daemon notes signals nothing runs that must be stopped. An exception instead could be lost: native
    # modules swallow it while they are imported.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(OK))
    from headrace.site.daemon import Daemon
    from headrace.site.logs import is_logged_to

    def ready(site: "Site", endpoints: list[str]) -> None:
        if as_json:
            echo_json({"site": site.name, "endpoints": endpoints})
        elif not is_logged_to(sys.stdout):  # the log says it, too
            click.echo(visible(f"site {site.name} is ready at {', '.join(endpoints) or 'no endpoint'}"))

    Daemon(file).run(ready)


@click.command(cls=Command)
@queue_argument
@click.argument("feeds", nargs=-1, shell_complete=completes("feed"), required=True, type=FEED, metavar="FEED...")
@json_option
def wanted(queue_path: str, feeds: tuple[str, ...], as_json: bool) -> int:
    """Show whether FEED has subscribers at QUEUE or at another site, and who they are.

    A script can skip expensive work for products without subscribers. Listeners at other sites, stations, processes
    that read the queue, and cursors that moved recently count as subscribers. In doubt a feed is wanted: for ten
    minutes after the last listener has gone, and always if no site runs at the queue. Exit code 0 if at least one FEED
    is wanted, 1 if none is.

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
            click.echo(visible(f"{feed} is wanted by {'; '.join(by)}" if by else f"{feed} has no subscribers"))
    return OK if any(found.values()) else NEGATIVE
