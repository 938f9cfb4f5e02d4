"""`headrace archive`: products in tables, beyond the retention of any queue."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.opening import open_queue
from headrace.cli.options import json_option, queue_argument
from headrace.cli.output import echo_json, many, show_table
from headrace.cli.progress import progress_bar
from headrace.units import format_size, parse_time

if TYPE_CHECKING:
    from headrace.pipeline.archive import Wanted


def _part_options(function: Any) -> Any:
    for option in (
        click.option("--until", metavar="TIME", help="Created before; ISO 8601."),
        click.option("--since", metavar="TIME", help="Created at or after; ISO 8601."),
        click.option("--feed", metavar="PATTERN", help="Only feeds like this, such as 'wx/radar/**'."),
    ):
        function = option(function)
    return function


@click.group()
def archive() -> None:
    """Look into tables of products, and put them into a queue again.

    A rule with `table` and without `decode` makes such a table.

    \b
    Example:
      headrace archive list tables/radar
      headrace archive replay tables/radar wx.queue --since 2026-07-01 --feed 'wx/radar/KFTG'
    """


@archive.command("list")
@click.argument("table", type=click.Path(path_type=Path))
@_part_options
@json_option
def list_feeds(table: Path, feed: str | None, since: str | None, until: str | None, as_json: bool) -> None:
    """Show what TABLE has: feeds, products, bytes, and from when to when.

    \b
    Example:
      headrace archive list tables/radar --since 2026-07-01
    """
    from headrace.pipeline.archive import Archive, totals

    holdings = Archive(table).holdings(_wanted(feed, since, until))
    if as_json:
        echo_json({"table": str(table), "feeds": holdings})
        return
    rows = [
        (each.feed, f"{each.products:,}", format_size(each.payload_bytes), f"{each.first:%Y-%m-%d %H:%M:%S}",
         f"{each.last:%Y-%m-%d %H:%M:%S}")
        for each in holdings
    ]  # fmt: skip
    show_table(str(table), ("feed", "products", "payload", "first created", "last created"), rows, right=(1, 2))
    products, size = totals(holdings)
    click.echo(f"{many(products, 'product')}, {format_size(size)}")


@archive.command()
@click.argument("table", type=click.Path(path_type=Path))
@queue_argument
@_part_options
@click.option("--expiry", is_flag=True, help="With their expiry, which mostly has passed.")
@json_option
def replay(
    table: Path, queue_path: str, feed: str | None, since: str | None, until: str | None, expiry: bool, as_json: bool
) -> None:
    """Put the products of TABLE into QUEUE, a directory or an endpoint. What it holds already is not put again.

    \b
    Example:
      headrace archive replay tables/radar wx.queue --feed 'wx/radar/**'
    """
    from headrace.pipeline.archive import Archive

    put = stored = 0
    with open_queue(queue_path) as opened, progress_bar("products", wanted=not as_json) as bar:
        for products, new in Archive(table).replay(opened, _wanted(feed, since, until), expiry=expiry):
            put, stored = put + products, stored + new
            bar.set(put)
    if as_json:
        echo_json({"table": str(table), "products": put, "stored": stored, "duplicates": put - stored})
    else:
        click.echo(f"{many(put, 'product')}, {stored:,} new, {put - stored:,} that the queue holds already")


def _wanted(feed: str | None, since: str | None, until: str | None) -> "Wanted":
    from headrace.pipeline.archive import Wanted

    return Wanted(feed, _moment(since, "--since"), _moment(until, "--until"))


def _moment(text: str | None, what: str) -> datetime | None:
    from datetime import UTC

    return None if text is None else datetime.fromtimestamp(parse_time(text, what) / 1e9, UTC)
