"""`headrace verify`: what a queue holds, against what was sent."""

import click

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.opening import open_queue
from headrace.cli.options import json_option, queue_argument, selection_of, selection_options
from headrace.cli.output import echo_json, show_table
from headrace.cli.stream import Told, read_range
from headrace.cli.verdicts import VERDICT_HEADER, VERDICT_RIGHT, expectation, verdict_row, verdict_values
from headrace.errors import OracleError
from headrace.testing import Oracle

_CONSUMER = "headrace verify"


@click.command()
@queue_argument
@click.option("--oracle", "oracle_path", metavar="FILE", required=True, help="What headrace generate saved.")
@selection_options
@click.option(
    "--order",
    type=click.Choice(["total", "feed"]),
    default="total",
    show_default=True,
    help="Order that is expected: over all products, or within each feed (several producers).",
)
@json_option
def verify(queue_path: str, oracle_path: str, select: str | None, ident: str | None, order: str, as_json: bool) -> int:
    """Read all that QUEUE holds and compare it with what was sent. Exit code 1 if anything is not as it should be.

    A product that was evicted meanwhile counts as lost.

    \b
    Example:
      headrace generate wx.queue --products 1000 --fast --oracle sent.jsonl
      headrace verify wx.queue --oracle sent.jsonl
    """
    selection = selection_of(select, ident)
    oracle = _load(oracle_path)
    with open_queue(queue_path) as queue:
        for batch in read_range(queue, queue.oldest, queue.next, selection, Told(as_json)):
            for product in batch:
                oracle.received(product.feed, product.ident, product.payload, _CONSUMER)
    verdict = oracle.verdict(_CONSUMER, expect=expectation(selection), order="feed" if order == "feed" else "total")
    if as_json:
        echo_json(verdict_values(verdict))
    else:
        show_table("verdict", VERDICT_HEADER, [verdict_row(queue_path, verdict)], VERDICT_RIGHT)
        click.echo("all is as it should be" if verdict.ok else str(verdict))
    return OK if verdict.ok else NEGATIVE


def _load(path: str) -> Oracle:
    try:
        return Oracle.load(path)
    except OSError as error:
        raise OracleError(
            f"{path} cannot be read: {error.strerror}", "give the file that generate --oracle saved"
        ) from None
