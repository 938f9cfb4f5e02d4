"""`headrace station list`, `headrace station show` and `headrace lag`: the stations of a queue.

For people and for monitoring. These commands read statistics and change nothing.
"""

import time
from collections.abc import Callable, Sequence

import click
import msgspec

from headrace.cli.failure import NEGATIVE, OK
from headrace.cli.group import Command
from headrace.cli.options import AGE, completes, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json, show_fields, show_table
from headrace.cli.station_chain import chain_of, each_station, existing_station, in_order, stations_before
from headrace.cli.station_terms import selection_text, terms_in_words
from headrace.product.cause import Cause, by_cause
from headrace.queue import AnyStation, Queue
from headrace.queue.request_lags import RequestLag, read_lags
from headrace.station import ConsumerStatistics, Lag, StationStatistics
from headrace.text import visible
from headrace.units import format_age, format_count, format_latency, format_time

_COUNTS = ("waiting", "leased", "parked", "behind", "consumers")
_FLAGS: dict[str, Callable[[StationStatistics], bool]] = {
    "paused": lambda station: station.paused,
    "blocking": lambda station: station.blocking,
    "transient": lambda station: not station.durable,
}
_CONSUMER_HEADER = ("place", "pid", "attached", "last heartbeat", "leased", "delivered", "acknowledged", "alive")


# --- list -----------------------------------------------------------------------------------------


@click.command("list", cls=Command, short_help="List all stations and their backlogs.")
@queue_argument
@json_option
def list_stations(queue_path: str, as_json: bool) -> None:
    """List the stations of QUEUE: waiting, leased, parked and acknowledged products, and how far each is behind.

    `behind` counts products of the queue that the station has not examined yet; `lag` is the age of the oldest product
    that is not acknowledged. `after` and `group` show how stations are chained.

    \b
    Example:
      headrace station list wx.queue
      headrace station list wx.queue --json | jq -r 'select(.parked > 0) | .name'
    """
    with open_queue(queue_path) as queue:
        stations = in_order(each_station(queue, lambda station: station.statistics()))
    if as_json:
        for station in stations:
            echo_json({**msgspec.to_builtins(station), "after": stations_before(station, stations)})
    elif stations:
        header, rows = station_table(stations)
        right = [header.index(name) for name in (*_COUNTS, "lag", "acknowledged")]
        show_table("stations", header, rows, right=right)
    else:
        click.echo(f"{queue_path} has no stations")


def station_table(stations: list[StationStatistics]) -> tuple[list[str], list[list[str]]]:
    """Header and rows; a column that is empty for all stations is left out."""
    columns: dict[str, list[str]] = {
        "name": [station.name for station in stations],
        "after": [", ".join(stations_before(station, stations)) for station in stations],
        "group": [station.group or "" for station in stations],
        "channel": [station.channel or "" for station in stations],
        "selection": [_selection(station) for station in stations],
        **{count: [f"{getattr(station, count):,}" for station in stations] for count in _COUNTS},
        "lag": [format_age(station.oldest_age_s or 0.0) for station in stations],
        "acknowledged": [f"{station.acknowledged:,}" for station in stations],
        "is": [", ".join(flag for flag, holds in _FLAGS.items() if holds(station)) for station in stations],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    return list(shown), [list(row) for row in zip(*shown.values(), strict=True)]


def _selection(station: StationStatistics) -> str:
    prescale = f", one of {station.prescale:,}" if station.prescale > 1 else ""
    return selection_text(station.selection) + prescale


# --- show -----------------------------------------------------------------------------------------


@click.command(cls=Command, short_help="Show everything about one station.")
@queue_argument
@click.argument("name", shell_complete=completes("station"))
@json_option
def show(queue_path: str, name: str, as_json: bool) -> None:
    """Show the terms of the station NAME of QUEUE, its counts, what it dropped and why, and its consumers.

    \b
    Example:
      headrace station show wx.queue decode
      headrace station show wx.queue decode --json | jq .statistics.dropped
    """
    with open_queue(queue_path) as queue:
        station = existing_station(queue, name)
        terms, consumers, chain = station.terms, station.consumers(), chain_of(queue, station)
    statistics = next(each for each in chain if each.name == name)
    after = stations_before(statistics, chain)
    if as_json:
        echo_json({"name": name, "after": after, "terms": terms, "statistics": statistics, "consumers": consumers})
        return
    show_fields(name, {**terms_in_words(terms), "after": ", ".join(after) or "none"})
    show_fields("now", _now(statistics))
    show_fields("since creation", _since_creation(statistics))
    show_fields("not delivered, by cause", _causes(statistics))
    if consumers:
        show_table("consumers", _CONSUMER_HEADER, [_row(each) for each in consumers], right=[0, 1, 3, 4, 5, 6])


def _now(statistics: StationStatistics) -> dict[str, object]:
    return {
        "position": statistics.position,
        "behind": f"{_at_least(statistics.behind_at_least)}{statistics.behind:,} not taken in yet",
        "waiting": f"{statistics.waiting:,}",
        "leased": f"{statistics.leased:,}",
        "retries": f"{statistics.retries:,} of these",
        "parked": f"{statistics.parked:,}",
        "lag": format_age(statistics.oldest_age_s or 0.0),
    }


def _since_creation(statistics: StationStatistics) -> dict[str, object]:
    return {
        "admitted": f"{statistics.admitted:,}",
        "delivered": f"{statistics.delivered:,}, {statistics.redelivered:,} of these again",
        "acknowledged": f"{statistics.acknowledged:,}",
        "discarded by consumers": f"{statistics.discarded:,}",
        "restored from dead consumers": f"{statistics.restored:,}",
        "parked": f"{statistics.parked_total:,}",
        "puts rejected": f"{statistics.rejected:,}",
    }


def _causes(statistics: StationStatistics) -> dict[str, object]:
    lost = {"expired": statistics.expired, "evicted": statistics.evicted, "damaged": statistics.damaged}
    causes = {**lost, **statistics.dropped}
    return {cause.replace("_", " "): f"{count:,}" for cause, count in causes.items()}


def _row(consumer: ConsumerStatistics) -> tuple[object, ...]:
    counts = (f"{count:,}" for count in (consumer.leased, consumer.delivered, consumer.acknowledged))
    heartbeat = f"{format_latency(consumer.beat_age_s)} ago"
    attached = format_time(consumer.attached_ns)
    return (consumer.place, consumer.pid, attached, heartbeat, *counts, "yes" if consumer.alive else "no")


# --- lag ------------------------------------------------------------------------------------------


class StationLag(msgspec.Struct, frozen=True):
    """The lag of one station, and the limits that it exceeds."""

    name: str
    products: int
    retries: int
    seconds: float
    exceeds: list[str]  # names of the limits
    left_out: dict[Cause, int] = {}  # products that no consumer finished, by cause
    at_least: bool = False  # there are more products than could be counted
    parked: int = 0  # set aside after too many deliveries
    evicted_at_most: bool = False  # the evicted ones in `left_out` may include products that it does not select
    evicted_ago_s: float | None = None  # since the last of them was counted


@click.command(cls=Command)
@queue_argument
@click.argument("names", nargs=-1, shell_complete=completes("station"), metavar="[STATION]...")
@click.option("--max-products", type=click.IntRange(min=0), metavar="COUNT", help="Limit for unacknowledged products.")
@click.option("--max-seconds", type=AGE, metavar="AGE", help="Limit for the age of the oldest of them, such as 30s.")
@click.option(
    "--evicted-within",
    type=AGE,
    default="1h",
    show_default=True,
    metavar="AGE",
    help="With a limit, fail too if a station lost products by eviction so recently; 0s: never.",
)
@json_option
def lag(
    queue_path: str, names: tuple[str, ...], max_products: int | None, max_seconds: float | None,
    evicted_within: float, as_json: bool,
) -> int:  # fmt: skip
    """Show how far each station of QUEUE is behind: products not acknowledged, and the age of the oldest in seconds.

    All stations, or those given. Products that a station does not select do not count. A backlog of very many products
    is counted in part and shown as "at least". `retries` counts those of the products that were delivered before,
    `parked` those that were set aside after too many deliveries, `left out` those that no consumer has finished and
    none will, by cause. If a site runs at QUEUE, its requests are shown too: how many sequences of the other site are
    not examined yet, and what it left out. Exit code 1 if a station exceeds one of the limits, or if a limit is given
    and a station has lost products by eviction lately, which no longer count as behind, or a request is served by no
    site, so that nobody knows how far it is behind.

    \b
    Example:
      headrace lag wx.queue
      headrace lag wx.queue decode --max-products 10000 --max-seconds 30s
    """

    def read(station: AnyStation) -> StationLag:
        now = station.statistics()
        return compare_lag(station.name, Lag.of(now), max_products, max_seconds, now.left_out, evicted_within)

    with open_queue(queue_path) as queue:
        lags = [read(existing_station(queue, name)) for name in names] if names else each_station(queue, read)
        requests = [] if names or not isinstance(queue, Queue) else read_lags(queue.path, time.time_ns())
    if as_json:
        for each in (*lags, *requests):
            echo_json(each)
    elif lags:
        _show_lags(lags, max_products, max_seconds)
    else:
        click.echo(f"{queue_path} has no stations")
    if requests and not as_json:
        _show_requests(requests)
    is_limited = max_products is not None or max_seconds is not None
    is_cut_off = is_limited and any(each.behind is None for each in requests)
    return NEGATIVE if is_cut_off or any(each.exceeds for each in lags) else OK


def compare_lag(
    name: str, lag: Lag, products_max: int | None, seconds_max: float | None, left_out: dict[Cause, int] | None = None,
    evicted_within_s: float = 0.0,
) -> StationLag:  # fmt: skip
    """Which limits a station exceeds; a lag equal to its limit does not exceed it.

    A station that loses products has no long lag, because what is lost no longer waits. So recent losses count as well.
    """
    exceeds = []
    if products_max is not None and lag.products > products_max:
        exceeds.append("max_products")
    if seconds_max is not None and lag.seconds > seconds_max:
        exceeds.append("max_seconds")
    is_limited = products_max is not None or seconds_max is not None
    if is_limited and lag.evicted_ago_s is not None and lag.evicted_ago_s < evicted_within_s:
        exceeds.append("evicted_within")
    return StationLag(
        name, lag.products, lag.retries, lag.seconds, exceeds, left_out or {}, lag.at_least, lag.parked,
        lag.evicted_at_most, lag.evicted_ago_s,
    )  # fmt: skip


def _at_least(is_cut: bool) -> str:
    return "at least " if is_cut else ""


def _show_lags(lags: Sequence[StationLag], products_max: int | None, seconds_max: float | None) -> None:
    rows = [
        (
            each.name,
            f"{_at_least(each.at_least)}{each.products:,}",
            f"{each.retries:,}",
            f"{each.seconds:.3f}",
            f"{each.parked:,}",
            by_cause(each.left_out, ["evicted"] if each.evicted_at_most else []) or "0",
        )
        for each in lags
    ]
    show_table("lag", ("station", "products", "retries", "seconds", "parked", "left out"), rows, right=[1, 2, 3, 4, 5])
    for each in lags:
        if "max_products" in each.exceeds:
            behind = _at_least(each.at_least) + format_count(each.products, "product")
            click.echo(visible(f"{each.name} is {behind} behind, more than {products_max:,}"), err=True)
        if "max_seconds" in each.exceeds:
            limit = format_age(seconds_max or 0.0)
            click.echo(visible(f"{each.name} is {format_age(each.seconds)} behind, more than {limit}"), err=True)
        if "evicted_within" in each.exceeds:
            most = "at most " if each.evicted_at_most else ""
            lost = most + format_count(each.left_out.get("evicted", 0), "product")
            ago = format_age(each.evicted_ago_s or 0.0)
            click.echo(visible(f"{each.name} has lost {lost} by eviction, the last {ago} ago"), err=True)


def _show_requests(lags: Sequence[RequestLag]) -> None:
    """What the site of the queue requests from others."""
    rows = [
        (each.request, each.site, each.state, "unknown" if each.behind is None else f"{each.behind:,}",
         by_cause(each.left_out) or "0", each.problem)
        for each in lags
    ]  # fmt: skip
    show_table("requests", ("request", "site", "state", "behind", "left out", "problem"), rows, right=[3, 4])
