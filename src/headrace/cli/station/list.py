"""`headrace station list`: all stations, series together."""

from collections.abc import Callable

import click
import msgspec

from headrace.cli.opening import open_queue
from headrace.cli.options import json_option, queue_argument
from headrace.cli.output import echo_json, show_table
from headrace.cli.station.standing import ahead_of, every, in_order
from headrace.cli.station.terms import selection_text
from headrace.station import StationStatistics
from headrace.units import format_age

_COUNTS = ("waiting", "leased", "parked", "behind", "consumers")
_FLAGS: dict[str, Callable[[StationStatistics], bool]] = {
    "paused": lambda station: station.paused,
    "blocking": lambda station: station.blocking,
    "transient": lambda station: not station.durable,
}


@click.command("list")
@queue_argument
@json_option
def list_stations(queue_path: str, as_json: bool) -> None:
    """List the stations of QUEUE: products waiting, leased, parked and acknowledged, and how far it is behind.

    `behind` counts products of the queue that the station has not looked at yet; `lag` is the age of the oldest
    product that is not acknowledged. Stations that stand behind another or in a group show it.

    \b
    Example:
      headrace station list wx.queue
      headrace station list wx.queue --json | jq -r 'select(.parked > 0) | .name'
    """
    with open_queue(queue_path) as queue:
        stations = in_order(every(queue, lambda station: station.statistics()))
    if as_json:
        for station in stations:
            echo_json({**msgspec.to_builtins(station), "after": ahead_of(station, stations)})
    elif stations:
        header, rows = station_table(stations)
        show_table("stations", header, rows, right=[header.index(name) for name in (*_COUNTS, "lag", "acknowledged")])
    else:
        click.echo(f"{queue_path} has no stations")


def station_table(stations: list[StationStatistics]) -> tuple[list[str], list[list[str]]]:
    """Header and rows; what no station has is left out."""
    columns: dict[str, list[str]] = {
        "name": [station.name for station in stations],
        "after": [", ".join(ahead_of(station, stations)) for station in stations],
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
