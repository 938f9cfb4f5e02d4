"""`headrace archive`: products in tables, kept beyond the retention of a queue."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.group import Group
from headrace.cli.options import json_option, open_queue, queue_argument, selection_of, selection_options
from headrace.cli.output import echo_json, progress_bar, show_table
from headrace.cli.stream import PatientPuts
from headrace.units import format_count, format_size, parse_time

if TYPE_CHECKING:
    from headrace.pipeline.archive import Archive, ArchiveFilter
    from headrace.queue import AnyQueue


def _part_options(function: Any) -> Any:
    function = selection_options(function)
    for option in (
        click.option("--until", metavar="TIME", help="Created before this time; ISO 8601."),
        click.option("--since", metavar="TIME", help="Created at or after this time; ISO 8601."),
        click.option("--feed", metavar="PATTERN", help="Only feeds that match, such as 'wx/radar/**'."),
    ):
        function = option(function)
    return function


@click.group(cls=Group)
def archive() -> None:
    """List the products in tables, and put them into a queue again.

    A pipeline rule with `table` and without `decode` writes such a table.

    \b
    Example:
      headrace archive list tables/radar
      headrace archive restore tables/radar wx.queue --since 2026-07-01 --feed 'wx/radar/KFTG'
    """


@archive.command("list", short_help="List the feeds in a table.")
@click.argument("table", type=click.Path(path_type=Path))
@_part_options
@json_option
def list_feeds(table: Path, as_json: bool, **part: str | None) -> None:
    """List the feeds in TABLE, with the number of their products, bytes, and first and last time.

    \b
    Example:
      headrace archive list tables/radar --since 2026-07-01
    """
    from headrace.pipeline.archive.archive import Archive, totals

    holdings = Archive(table).holdings(_filter(**part))
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
    click.echo(f"{format_count(products, 'product')}, {format_size(size)}")


@archive.command(short_help="Put the products of a table into a queue again, as they were.")
@click.argument("table", type=click.Path(path_type=Path))
@queue_argument
@_part_options
@click.option("--expiry", is_flag=True, help="Keep the expiry of products; most archived products have expired.")
@json_option
def restore(table: Path, queue_path: str, expiry: bool, as_json: bool, **part: str | None) -> None:
    """Put the products of TABLE into QUEUE as they were, as fast as it accepts them. Those that it holds are skipped.

    Ctrl-C ends it between two parts, and it shows how many products were put. `headrace replay` puts copies that are
    marked as a replay instead, in their original spacing or faster.

    \b
    Example:
      headrace archive restore tables/radar wx.queue --feed 'wx/radar/**'
      headrace archive restore tables/radar test.queue --since 2026-07-01T12:00Z --until 2026-07-01T13:00Z
    """
    from headrace.pipeline.archive import Archive

    wanted, source, totals = _filter(**part), Archive(table), _Totals()
    with open_queue(queue_path) as opened:
        try:
            _put(source, opened, wanted, expiry, totals, not as_json)
        finally:  # also when Ctrl-C or an error ends it
            _show_totals(table, totals, as_json)


@dataclass(slots=True)
class _Totals:
    products: int = 0
    stored: int = 0
    complete: bool = False


def _put(
    source: "Archive", queue: "AnyQueue", wanted: "ArchiveFilter", expiry: bool, totals: _Totals, shown: bool
) -> None:
    """Put everything; the totals are correct at any time."""
    from headrace.pipeline.archive.archive import put_part
    from headrace.pipeline.source.parts import part_bytes

    config, puts = queue.config, PatientPuts(queue)
    with progress_bar("products", shown=shown) as bar:
        for part in source.batches(wanted, bytes_max=part_bytes(config)):
            with puts:
                products, new = put_part(puts, part, config, expiry=expiry)
                totals.products, totals.stored = totals.products + products, totals.stored + new
            bar.set(totals.products)
    totals.complete = True


def _show_totals(table: Path, totals: _Totals, as_json: bool) -> None:
    duplicates = totals.products - totals.stored
    if as_json:
        counts = {"products": totals.products, "stored": totals.stored, "duplicates": duplicates}
        echo_json({"table": str(table), **counts, "complete": totals.complete})
        return
    text = f"{format_count(totals.products, 'product')}, {totals.stored:,} new, {format_count(duplicates, 'duplicate')}"
    click.echo(text if totals.complete else f"{text}; interrupted")


def _filter(
    feed: str | None, since: str | None, until: str | None, select: str | None, ident: str | None
) -> "ArchiveFilter":
    from headrace.pipeline.archive import ArchiveFilter

    selection = None if select is None and ident is None else selection_of(select, ident)
    return ArchiveFilter(feed, _moment(since, "--since"), _moment(until, "--until"), selection)


def _moment(text: str | None, what: str) -> datetime | None:
    return None if text is None else datetime.fromtimestamp(parse_time(text, what) / 1e9, UTC)
