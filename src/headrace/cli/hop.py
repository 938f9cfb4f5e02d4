"""`headrace hop`: through which site a product came into a queue."""

import click

from headrace.cli.options import json_option, open_local_queue, queue_argument
from headrace.cli.output import echo_json, show_table
from headrace.errors import OptionError
from headrace.relay.hops import read_hops, site_of

_HEADER = ("sequence", "feed", "ident", "origin", "came through")


@click.command()
@queue_argument
@click.argument("sequences", nargs=-1, required=True, type=click.IntRange(min=1), metavar="SEQUENCE...")
@json_option
def hop(queue_path: str, sequences: tuple[int, ...], as_json: bool) -> None:
    """Show through which site each product came into QUEUE, a directory.

    The origin is the site at which a product was put; the hop is the site that sent it here. The two differ if the
    product was relayed, or came from another holder while its origin was away. `headrace watch` shows sequences.

    \b
    Example:
      headrace hop wx.queue 17
      headrace hop wx.queue 17 18 19 --json
    """
    with open_local_queue(queue_path) as queue:
        hops, found = read_hops(queue.path), []
        for sequence in sequences:
            batch = queue.read(sequence, limit=1) if queue.oldest <= sequence < queue.next else None
            if not batch or batch[0].sequence != sequence:
                raise OptionError(
                    f"{queue_path} does not hold product {sequence}", f"it holds {queue.oldest} to {queue.next - 1}"
                )
            product = batch[0]
            found.append((sequence, product.feed, product.ident, product.origin, site_of(hops, sequence)))
    if as_json:
        for sequence, feed, ident, origin, site in found:
            echo_json({"sequence": sequence, "feed": feed, "ident": ident, "origin": origin, "hop": site})
    else:
        rows = [(*row, site or "put here") for *row, site in found]
        show_table("hops", _HEADER, rows, right=(0,))
