"""`headrace channel`: feed subtrees with a quality of service."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from headrace.channel.channel import Channel, ChannelStatistics
from headrace.channel.conflicts import find_conflicts
from headrace.channel.qos import FIELDS, QoS, option_text
from headrace.cli.failure import NEGATIVE, OK, USAGE
from headrace.cli.opening import open_here
from headrace.cli.options import json_option, queue_argument
from headrace.cli.output import echo_json, many, show_table, show_terms

Function = TypeVar("Function", bound=Callable[..., Any])

_HELP = {
    "reliability": ("best_effort|persistent", "persistent: suppliers wait rather than pass a station by."),
    "connections": ("best_effort|persistent", "best_effort: a station ends with its last consumer."),
    "order": ("any|fifo|priority|deadline", "In which stations deliver."),
    "discard": ("any|fifo|lifo|priority|deadline", "What a full station drops first."),
    "max_per_consumer": ("COUNT", "Products that a station holds ready."),
    "max_queue": ("COUNT", "Products that may wait for a station before a push is rejected."),
    "timeout": ("AGE", "Nobody gets a product that is older, such as 10s."),
    "start_time": ("TIME", "Nothing is delivered before; ISO 8601."),
    "stop_time": ("TIME", "Nothing is pushed or delivered from then on."),
    "batch_max": ("COUNT", "Products that a consumer gets at once."),
    "pacing": ("AGE", "How long a delivery may wait for its batch to fill."),
    "suppliers_max": ("COUNT", "Suppliers at a time."),
    "consumers_max": ("COUNT", "Consumers of each station at a time."),
}


def qos_options(function: Function) -> Function:
    """An option for each of the QoS. Values reach the library as they are written, so that it tells all mistakes."""
    for option in reversed(FIELDS):
        metavar, text = _HELP[option]
        function = click.option(f"--{option.replace('_', '-')}", option, metavar=metavar, help=text)(function)
    return function


def _said(options: dict[str, str | None]) -> dict[str, Any]:
    """What was written on the command line; `none` leaves an option open, a bare number is a number."""
    return {option: _value(text) for option, text in options.items() if text is not None}


def _value(text: str) -> Any:
    if text == "none":
        return None
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


@click.group(no_args_is_help=False)
def channel() -> None:
    """Create, show, change and remove channels: feed subtrees with a quality of service.

    \b
    Example:
      headrace channel create wx.queue radar 'wx/radar/**' --order fifo --timeout 10s
      headrace channel show wx.queue radar
    """


@channel.command()
@queue_argument
@click.argument("name")
@click.argument("feed")
@qos_options
@json_option
def create(queue_path: str, name: str, feed: str, as_json: bool, **options: str | None) -> None:
    """Create the channel NAME of the subtree FEED in QUEUE. What is not said is left open to its stations.

    \b
    Example:
      headrace channel create wx.queue radar 'wx/radar/**' --order fifo --timeout 10s --suppliers-max 50
    """
    with open_here(queue_path) as queue:
        made = queue.channel(name, feed, **_said(options))
        _tell(made, as_json, f"{name} has the feeds {made.feed}")


@channel.command("list")
@queue_argument
@json_option
def list_all(queue_path: str, as_json: bool) -> None:
    """List the channels of QUEUE, with suppliers, stations and consumers.

    \b
    Example:
      headrace channel list wx.queue
    """
    with open_here(queue_path) as queue:
        told = [queue.channel(name).statistics() for name in queue.channels()]
    if as_json:
        for each in told:
            echo_json(each)
    elif told:
        rows = [(c.name, c.feed, c.suppliers, c.stations, c.consumers, c.pushed, c.waiting) for c in told]
        header = ("name", "feed", "suppliers", "stations", "consumers", "pushed", "waiting")
        show_table("channels", header, rows, right=[2, 3, 4, 5, 6])
    else:
        click.echo(f"{queue_path} has no channels")


@channel.command()
@queue_argument
@click.argument("name")
@json_option
def show(queue_path: str, name: str, as_json: bool) -> None:
    """Show the quality of service, the stations and the counters of the channel NAME of QUEUE.

    \b
    Example:
      headrace channel show wx.queue radar
    """
    with open_here(queue_path) as queue:
        shown = queue.channel(name)
        definition, statistics, stations = shown.definition, shown.statistics(), shown.stations()
    if as_json:
        echo_json({"name": name, "feed": definition.feed, "qos": definition.qos, "statistics": statistics,
                   "stations": {each: definition.stations.get(each, {}) for each in stations}})  # fmt: skip
        return
    show_terms(f"{name}: {definition.feed}", _terms(definition.qos))
    show_terms("counts", _counts(statistics))
    rows = [(each, _own_words(definition.stations.get(each, {}))) for each in stations]
    if rows:
        show_table("stations", ("name", "says itself"), rows)


@channel.command()
@queue_argument
@click.argument("name")
@qos_options
@json_option
def change(queue_path: str, name: str, as_json: bool, **options: str | None) -> None:
    """Change options of the channel NAME of QUEUE, for its stations too. The value none leaves an option open.

    \b
    Example:
      headrace channel change wx.queue radar --timeout 30s --batch-max none
    """
    said = _said(options)
    if not said:
        raise click.UsageError("Nothing to change: give at least one option")
    with open_here(queue_path) as queue:
        changed = queue.channel(name)
        changed.change(**said)
        _tell(changed, as_json, f"changed {name}")


@channel.command()
@queue_argument
@click.argument("name")
@click.option("--force", is_flag=True, help="Remove its stations too.")
@json_option
def remove(queue_path: str, name: str, force: bool, as_json: bool) -> None:
    """Forget the channel NAME of QUEUE. Its products stay.

    \b
    Example:
      headrace channel remove wx.queue radar
    """
    with open_here(queue_path) as queue:
        queue.channel(name).remove(force=force)
    if as_json:
        echo_json({"name": name, "removed": True})
    else:
        click.echo(f"removed {name}")


@channel.command()
@qos_options
@json_option
def validate(as_json: bool, **options: str | None) -> int:
    """List everything that keeps the given options from being agreed on, and touch nothing.

    Exit code 0 if they can be, 1 if they contradict each other, 2 if one is wrong by itself.

    \b
    Example:
      headrace channel validate --reliability persistent --discard fifo --timeout 10s
    """
    conflicts = find_conflicts(_said(options))
    if as_json:
        echo_json({"ok": not conflicts, "conflicts": conflicts})
    elif not conflicts:
        click.echo("these options can be agreed on")
    else:
        for conflict in conflicts:
            click.echo(f"{', '.join(conflict.options)}: {conflict.problem}")
            click.echo(f"  try: {conflict.remedy}")
        click.echo(many(len(conflicts), "conflict"), err=True)
    if any(conflict.of_values for conflict in conflicts):
        return USAGE
    return NEGATIVE if conflicts else OK


# --- words ----------------------------------------------------------------------------------------


def _tell(made: Channel, as_json: bool, text: str) -> None:
    definition = made.definition
    if as_json:
        echo_json({"name": definition.name, "feed": definition.feed, "qos": definition.qos})
    else:
        said = ", ".join(f"{option} {text}" for option, text in _terms(definition.qos).items() if text != "open")
        click.echo(f"{text}: {said}")


def _terms(qos: QoS) -> dict[str, str]:
    return {option: option_text(option, getattr(qos, field)) for option, field in FIELDS.items()}


def _own_words(said: Mapping[str, Any]) -> str:
    """What a station says beside its channel."""
    words = [f"{option} {option_text(option, said[field])}" for option, field in FIELDS.items() if field in said]
    return ", ".join(words) or "inherits all"


def _counts(told: ChannelStatistics) -> dict[str, object]:
    drops = ", ".join(f"{count:,} {cause}" for cause, count in told.dropped.items() if count)
    return {
        "suppliers": told.suppliers,
        "stations, consumers": f"{told.stations}, {told.consumers}",
        "pushed": f"{told.pushed:,} ({told.duplicates:,} duplicates, {told.rejected:,} rejected)",
        "waiting, leased, parked": f"{told.waiting:,}, {told.leased:,}, {told.parked:,}",
        "delivered, acknowledged": f"{told.delivered:,}, {told.acknowledged:,}",
        "dropped": drops or "none",
    }
