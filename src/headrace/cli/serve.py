"""`headrace serve`: run a site."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.options import json_option
from headrace.cli.output import echo_json

if TYPE_CHECKING:
    from headrace.site.site import Site


@click.command()
@click.argument("file", metavar="SITE.TOML", type=click.Path(path_type=Path))
@json_option
def serve(file: Path, as_json: bool) -> None:
    """Run the site that SITE.TOML describes: its queue, its place in the fabric, its requests.

    It runs until SIGTERM or Ctrl-C, and then stops in order: what has been taken is in the queue, and requests go on
    from there the next time. SIGHUP makes it read SITE.TOML again.

    \b
    Example:
      headrace config example > site.toml
      headrace config check site.toml
      headrace serve site.toml
    """
    from headrace.site.daemon import Daemon

    def ready(site: "Site", where: list[str]) -> None:
        if as_json:
            echo_json({"site": site.name, "endpoints": where})
        else:
            click.echo(f"site {site.name} is ready at {', '.join(where) or 'no endpoint'}")

    Daemon(file).run(ready)
