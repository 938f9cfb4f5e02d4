"""`headrace verify`: compare what a queue holds with what was sent. Also the oracle's verdict as a row and as JSON."""

from typing import Any

import click
import msgspec

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.group import Command
from headrace.cli.options import json_option, open_queue, queue_argument, selection_of, selection_options
from headrace.cli.output import echo_json, show_table
from headrace.cli.stream import GapReports, read_range
from headrace.errors import OracleError
from headrace.testing import Oracle, Verdict
from headrace.text import visible
from headrace.units import format_count

VERDICT_HEADER = ("consumer", "sent", "received", "lost", "duplicated", "out of order", "unknown", "altered")
VERDICT_RIGHT = range(1, len(VERDICT_HEADER))
_CONSUMER = "headrace verify"


@click.command(cls=Command)
@queue_argument
@click.option("--oracle", "oracle_path", metavar="FILE", required=True, help="The file that `generate` saved.")
@selection_options
@click.option(
    "--order",
    type=click.Choice(["total", "feed"]),
    default="total",
    show_default=True,
    help="Expected order: over all products, or within each feed (for several producers).",
)
@json_option
def verify(queue_path: str, oracle_path: str, select: str | None, ident: str | None, order: str, as_json: bool) -> int:
    """Read all products that QUEUE holds and compare them with those that were sent.

    Exit code 1 if a product is lost, duplicated, out of order, unknown or altered. An evicted product counts as lost.
    Unknown are products that were not sent according to the file: another program has put them, or another run. Those
    that the queue held before the first product of the file are not compared, and counted as earlier.

    \b
    Example:
      headrace generate wx.queue --products 1000 --fast --oracle sent.jsonl
      headrace verify wx.queue --oracle sent.jsonl
    """
    selection = selection_of(select, ident)
    oracle = _load(oracle_path)
    with open_queue(queue_path) as queue:
        for batch in read_range(queue, queue.oldest, queue.next, selection, GapReports(as_json)):
            for product in batch:
                oracle.received(product.feed, product.ident, product.part, _CONSUMER)
    expect = None if select is None and ident is None else selection.wants_names
    verdict = oracle.verdict(_CONSUMER, expect=expect, order="feed" if order == "feed" else "total", skip_earlier=True)
    if as_json:
        echo_json(verdict_values(verdict))
    else:
        show_table("verdict", VERDICT_HEADER, [verdict_row(queue_path, verdict)], VERDICT_RIGHT)
        click.echo("all products arrived once, in order and unaltered" if verdict.ok else visible(str(verdict)))
        if verdict.unknown:
            click.echo(f"unknown: {oracle_path} does not have them; another program has put them, or another run")
        if verdict.earlier:
            earlier = format_count(verdict.earlier, "earlier product")
            click.echo(f"not compared: {earlier}, which the queue held before the first product of {oracle_path}")
    return OK if verdict.ok else NEGATIVE


def _load(path: str) -> Oracle:
    try:
        return Oracle.load(path)
    except OSError as error:
        hint = "give the file that `headrace generate --oracle` saved"
        raise OracleError(f"{path} is not readable: {error.strerror}", hint) from None


def verdict_row(consumer: str, verdict: Verdict) -> list[str]:
    """One row below VERDICT_HEADER."""
    v = verdict
    counts = (v.sent, v.received, v.lost, v.duplicated, v.out_of_order, v.unknown, v.mismatched)
    return [consumer, *(f"{count:,}" for count in counts)]


def verdict_values(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON."""
    values: dict[str, Any] = msgspec.to_builtins(verdict)
    return {"ok": verdict.ok, **values}
