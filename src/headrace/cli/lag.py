"""`headrace lag`: how far stations are behind, for people and for monitoring."""

from collections.abc import Sequence

import click
import msgspec

from headrace.cli.failure import NEGATIVE, OK, visible
from headrace.cli.opening import open_queue
from headrace.cli.options import AGE, json_option, queue_argument
from headrace.cli.output import echo_json, many, show_table
from headrace.cli.station.standing import every, existing
from headrace.queue import AnyStation
from headrace.station import Lag
from headrace.units import format_age


class StationLag(msgspec.Struct, frozen=True):
    """One station, judged by the limits that were given."""

    name: str
    products: int
    retries: int
    seconds: float
    exceeds: list[str]  # names of the limits


@click.command()
@queue_argument
@click.argument("names", nargs=-1, metavar="[STATION]...")
@click.option("--max-products", type=click.IntRange(min=0), metavar="COUNT", help="Limit of unacknowledged products.")
@click.option("--max-seconds", type=AGE, metavar="AGE", help="A limit for the age of the oldest, such as 30s.")
@json_option
def lag(
    queue_path: str, names: tuple[str, ...], max_products: int | None, max_seconds: float | None, as_json: bool
) -> int:
    """Tell how far stations of QUEUE are behind: unacknowledged products, and the age of the oldest in seconds.

    All stations, or those given. Retries are those of the products that were handed out before. Exit code 1 if a
    station exceeds one of the limits.

    \b
    Example:
      headrace lag wx.queue
      headrace lag wx.queue decode --max-products 10000 --max-seconds 30s
    """

    def look(station: AnyStation) -> StationLag:
        return judge(station.name, station.lag(), max_products, max_seconds)

    with open_queue(queue_path) as queue:
        lags = [look(existing(queue, name)) for name in names] if names else every(queue, look)
    if as_json:
        for each in lags:
            echo_json(each)
    elif lags:
        _show(lags, max_products, max_seconds)
    else:
        click.echo(f"{queue_path} has no stations")
    return NEGATIVE if any(each.exceeds for each in lags) else OK


def judge(name: str, lag: Lag, products_max: int | None, seconds_max: float | None) -> StationLag:
    """Which limits a station exceeds; one that is just reached is kept."""
    exceeds = []
    if products_max is not None and lag.products > products_max:
        exceeds.append("max_products")
    if seconds_max is not None and lag.seconds > seconds_max:
        exceeds.append("max_seconds")
    return StationLag(name, lag.products, lag.retries, lag.seconds, exceeds)


def _show(lags: Sequence[StationLag], products_max: int | None, seconds_max: float | None) -> None:
    rows = [(each.name, f"{each.products:,}", f"{each.retries:,}", f"{each.seconds:.3f}") for each in lags]
    show_table("lag", ("station", "products", "retries", "seconds"), rows, right=[1, 2, 3])
    for each in lags:
        if "max_products" in each.exceeds:
            limit = f"{products_max:,}"
            click.echo(visible(f"{each.name} is {many(each.products, 'product')} behind, more than {limit}"), err=True)
        if "max_seconds" in each.exceeds:
            limit = format_age(seconds_max or 0.0)
            click.echo(visible(f"{each.name} is {format_age(each.seconds)} behind, more than {limit}"), err=True)
