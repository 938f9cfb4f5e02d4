"""`headrace pipeline prepare`: Spark starts in half the time afterwards."""

import time

import click

from headrace.cli.failure import OK
from headrace.cli.options import json_option
from headrace.cli.output import echo_json
from headrace.units import format_size


@click.command()
@json_option
def prepare(as_json: bool) -> int:
    """Have Java write down the classes that a pipeline needs, so that Spark starts in about half the time.

    Once for each environment and Java, and again when one of them was updated; some 200 MB in the environment's
    share/headrace. It takes a minute. Nothing depends on it but the time of a start with --master local.

    \b
    Example:
      headrace pipeline prepare
    """
    from headrace.pipeline.run.warm_up import prepare as write_archives

    begun = time.monotonic()

    def tell(what: str) -> None:
        click.echo(f"{time.monotonic() - begun:3.0f} s  {what}", err=True)

    prepared = write_archives(tell)
    took = time.monotonic() - begun
    if as_json:
        echo_json({"home": str(prepared.home), "bytes": prepared.bytes, "seconds": took})
    else:
        click.echo(f"prepared in {took:.0f} s ({format_size(prepared.bytes)}): {prepared.home}")
    return OK
