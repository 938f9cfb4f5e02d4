"""`headrace archive`: products in tables, beyond the retention of any queue."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.opening import open_queue
from headrace.cli.options import json_option, queue_argument, selection_of, selection_options
from headrace.cli.output import echo_json, many, show_table
from headrace.cli.progress import progress_bar
from headrace.cli.uninterrupted import TURN_S, Uninterrupted
from headrace.errors import BlockedError, OptionError
from headrace.units import format_size, parse_time

if TYPE_CHECKING:
    from headrace.pipeline.archive import Archive, ArchiveFilter, Pace
    from headrace.queue import AnyQueue


def _part_options(function: Any) -> Any:
    function = selection_options(function)
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
def list_feeds(table: Path, as_json: bool, **part: str | None) -> None:
    """Show what TABLE has: feeds, products, bytes, and from when to when.

    \b
    Example:
      headrace archive list tables/radar --since 2026-07-01
    """
    from headrace.pipeline.archive.archive import Archive, totals

    holdings = Archive(table).holdings(_wanted(**part))
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
@click.option("--rate", type=float, metavar="N", help="So many products per second, in the order in which they came.")
@click.option("--speed", type=float, metavar="X", help="X times as fast as they came; 1 is as it was.")
@click.option("--expiry", is_flag=True, help="With their expiry, which mostly has passed.")
@json_option
def replay(
    table: Path, queue_path: str, rate: float | None, speed: float | None, expiry: bool, as_json: bool,
    **part: str | None,
) -> None:  # fmt: skip
    """Put the products of TABLE into QUEUE, a directory or an endpoint. What it holds already is not put again.

    They are put as fast as the queue takes them, unless --rate or --speed says otherwise. Ctrl-C ends it between two
    parts, and it tells how many products were put.

    \b
    Example:
      headrace archive replay tables/radar wx.queue --feed 'wx/radar/**'
      headrace archive replay tables/radar test.queue --since 2026-07-01T12:00Z --until 2026-07-01T13:00Z --speed 10
    """
    from headrace.pipeline.archive import Archive

    wanted, pace, source, tally = _wanted(**part), _pace(rate, speed), Archive(table), _Tally()
    with open_queue(queue_path) as opened:
        try:
            _put(source, opened, wanted, pace, expiry, tally, not as_json)
        finally:  # also when Ctrl-C or an error ends it
            _sum_up(table, tally, as_json)


@dataclass(slots=True)
class _Tally:
    products: int = 0
    stored: int = 0
    complete: bool = False


def _put(
    source: "Archive", queue: "AnyQueue", wanted: "ArchiveFilter", pace: "Pace | None", expiry: bool, tally: _Tally,
    shown: bool,
) -> None:  # fmt: skip
    """Put everything; the tally is true at any time."""
    from headrace.pipeline.archive.archive import put_part
    from headrace.pipeline.source.parts import part_bytes

    config = queue.config
    with progress_bar("products", wanted=shown) as bar:
        for part in source.parts(wanted, pace=pace, bytes_max=part_bytes(config)):
            is_put = False
            while not is_put:  # a blocking station may keep us waiting, but not from hearing Ctrl-C
                with Uninterrupted(), suppress(BlockedError):
                    products, new = put_part(queue, part, config.origin, expiry=expiry, timeout=TURN_S)
                    tally.products, tally.stored, is_put = tally.products + products, tally.stored + new, True
            bar.set(tally.products)
    tally.complete = True


def _sum_up(table: Path, tally: _Tally, as_json: bool) -> None:
    duplicates = tally.products - tally.stored
    if as_json:
        counts = {"products": tally.products, "stored": tally.stored, "duplicates": duplicates}
        echo_json({"table": str(table), **counts, "complete": tally.complete})
        return
    told = f"{many(tally.products, 'product')}, {tally.stored:,} new, {duplicates:,} that the queue holds already"
    click.echo(told if tally.complete else f"{told}; broken off there")


def _wanted(
    feed: str | None, since: str | None, until: str | None, select: str | None, ident: str | None
) -> "ArchiveFilter":
    from headrace.pipeline.archive import ArchiveFilter

    selection = None if select is None and ident is None else selection_of(select, ident)
    return ArchiveFilter(feed, _moment(since, "--since"), _moment(until, "--until"), selection)


def _pace(rate: float | None, speed: float | None) -> "Pace | None":
    from headrace.pipeline.archive import Pace

    for value, name in ((rate, "--rate"), (speed, "--speed")):
        if value is not None and not 0 < value < float("inf"):
            raise OptionError(f"{name} {value:g} is out of range", "give a number above 0")
    if rate is not None and speed is not None:
        raise OptionError("--rate and --speed both say how fast", "leave one of them out")
    return None if rate is None and speed is None else Pace(rate, speed)


def _moment(text: str | None, what: str) -> datetime | None:
    return None if text is None else datetime.fromtimestamp(parse_time(text, what) / 1e9, UTC)
