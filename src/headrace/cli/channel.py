"""`headrace channel`: create, show, change and delete channels, feed subtrees with a quality of service."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from headrace.channel.channel import ChannelStatistics
from headrace.channel.compression import compression_options
from headrace.channel.conflicts import find_conflicts
from headrace.channel.document import Definition
from headrace.channel.qos import AGES, FIELDS, option_text, order_of
from headrace.channel.slicing import slicing_texts
from headrace.cli.failure import NEGATIVE, OK, USAGE
from headrace.cli.group import Group
from headrace.cli.options import completes, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json, show_fields, show_table
from headrace.queue import AnyChannel, Queue
from headrace.queue.request_files import has_site
from headrace.text import visible
from headrace.units import format_count

Function = TypeVar("Function", bound=Callable[..., Any])
_HELP = {
    "reliability": ("best_effort|persistent", "persistent: suppliers wait while a station is full."),
    "connections": ("best_effort|persistent", "best_effort: a station is removed with its last consumer."),
    "order": ("any|fifo|priority|deadline", "The order in which stations deliver."),
    "discard": ("any|fifo|lifo|priority|deadline", "Which product a full station drops."),
    "max_per_consumer": ("COUNT", "Products that may wait at a station."),
    "max_queue": ("COUNT", "Reject a push while this many products wait for a station."),
    "timeout": ("AGE", "Do not deliver products older than this, such as 10s."),
    "start_time": ("TIME", "Deliver nothing before this time; ISO 8601."),
    "stop_time": ("TIME", "Push and deliver nothing from this time on; ISO 8601."),
    "batch_max": ("COUNT", "Maximum number of products that a consumer gets at once."),
    "pacing": ("AGE", "How long a delivery may wait for its batch to fill."),
    "suppliers_max": ("COUNT", "Maximum number of suppliers."),
    "consumers_max": ("COUNT", "Maximum number of consumers of each station."),
    "home": ("SITE", "The site whose queue decides the order; products are taken there only. Never changes."),
}
_SLICING_HELP = {
    "slices": ("COUNT", "Cut the stream into this many slices; 256 if only --assign is given."),
    "assign": ("FUNCTION", "What assigns them: ident, property:NAME, modulo:NAME, round_robin, random, grid:LAT,LON, "
               "function:NAME or given."),
}  # fmt: skip

_COMPRESSION_HELP = {
    "compress": ("zstd[:LEVEL]", "Compress products where they enter the queue; levels 1 (fast) to 19, 3 by default."),
    "dictionary": ("NAME", "The dictionary for it, from headrace queue train."),
}


def qos_options(function: Function) -> Function:
    """An option for each field of the QoS. The library checks the values, so that it reports all problems at once."""
    for option in reversed(FIELDS):
        metavar, text = _HELP[option]
        function = click.option(f"--{option.replace('_', '-')}", option, metavar=metavar, help=text)(function)
    return function


def compression_terms(function: Function) -> Function:
    """The options about compression."""
    for option, (metavar, text) in reversed(_COMPRESSION_HELP.items()):
        function = click.option(f"--{option}", option, metavar=metavar, help=text)(function)
    return function


def slicing_options(*, hidden: bool = False) -> Callable[[Function], Function]:
    """The options that are fixed once a channel exists. A command that hides them refuses them with a reason."""

    def decorate(function: Function) -> Function:
        for option, (metavar, text) in reversed(_SLICING_HELP.items()):
            function = click.option(f"--{option}", option, metavar=metavar, help=text, hidden=hidden)(function)
        return function

    return decorate


def _given(options: dict[str, str | None]) -> dict[str, Any]:
    """The options on the command line; `none` leaves an option open. A count is a number, an age has a unit."""
    return {option: _value(option, text) for option, text in options.items() if text is not None}


def _value(option: str, text: str) -> Any:
    if text == "none":
        return None
    if option in AGES or option in ("dictionary", "home"):
        return text
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


@click.group(cls=Group)
def channel() -> None:
    """Create, show, change and delete channels: feed subtrees with a quality of service.

    \b
    Example:
      headrace channel create wx.queue radar 'wx/radar/**' --order fifo --timeout 10s
      headrace channel show wx.queue radar
    """


@channel.command(short_help="Create a channel.")
@queue_argument
@click.argument("name")
@click.argument("feed", shell_complete=completes("feed"))
@qos_options
@slicing_options()
@compression_terms
@json_option
def create(queue_path: str, name: str, feed: str, as_json: bool, **options: str | None) -> None:
    """Create the channel NAME of the subtree FEED in QUEUE. Options that are not given are left to its stations.

    \b
    Example:
      headrace channel create wx.queue radar 'wx/radar/**' --order fifo --timeout 10s --suppliers-max 50
      headrace channel create wx.queue surface 'wx/surface/**' --slices 256 --assign property:station
      headrace channel create wx.queue text 'wx/text/**' --compress zstd
    """
    with open_queue(queue_path) as queue:
        is_new = name not in queue.channels()
        created = queue.channel(name, feed, **_given(options))
        done = "created {} for {}" if is_new else "{} exists already, on the same terms, for {}"
        _show(created, as_json, done.format(name, created.feed))


@channel.command("list", short_help="List all channels.")
@queue_argument
@json_option
def list_all(queue_path: str, as_json: bool) -> None:
    """List the channels of QUEUE, with suppliers, stations and consumers.

    \b
    Example:
      headrace channel list wx.queue
    """
    with open_queue(queue_path) as queue:
        channels = [queue.channel(name).statistics() for name in queue.channels()]
    if as_json:
        for each in channels:
            echo_json(each)
    elif channels:
        rows = [(c.name, c.feed, c.suppliers, c.stations, c.consumers, c.pushed, c.waiting) for c in channels]
        header = ("name", "feed", "suppliers", "stations", "consumers", "pushed", "waiting")
        show_table("channels", header, rows, right=[2, 3, 4, 5, 6])
    else:
        click.echo(f"{queue_path} has no channels")


@channel.command(short_help="Show the quality of service, stations and counters of a channel.")
@queue_argument
@click.argument("name", shell_complete=completes("channel"))
@json_option
def show(queue_path: str, name: str, as_json: bool) -> None:
    """Show the quality of service, the stations and the counters of the channel NAME of QUEUE.

    \b
    Example:
      headrace channel show wx.queue radar
    """
    with open_queue(queue_path) as queue:
        shown = queue.channel(name)
        definition, statistics, stations = shown.definition, shown.statistics(), shown.stations()
    if as_json:
        echo_json({"name": name, "feed": definition.feed, "qos": definition.qos, "slicing": definition.slicing,
                   "compression": definition.compression, "statistics": statistics,
                   "stations": {each: definition.stations.get(each, {}) for each in stations}})  # fmt: skip
        return
    show_fields(f"{name}: {definition.feed}", _terms(definition))
    show_fields("counts", _counts(statistics))
    rows = [(each, _own_terms(definition.stations.get(each, {}))) for each in stations]
    if rows:
        show_table("stations", ("name", "own terms"), rows)


@channel.command(short_help="Change options of a channel and its stations.")
@queue_argument
@click.argument("name", shell_complete=completes("channel"))
@qos_options
@slicing_options(hidden=True)
@compression_terms
@json_option
def change(queue_path: str, name: str, as_json: bool, **options: str | None) -> None:
    """Change options of the channel NAME of QUEUE, for its stations too. The value none leaves an option open.

    \b
    Example:
      headrace channel change wx.queue radar --timeout 30s --batch-max none
    """
    given = _given(options)
    if not given:
        raise click.UsageError("Nothing to change: give at least one option")
    with open_queue(queue_path) as queue:
        changed = queue.channel(name)
        changed.change(**given)
        _show(changed, as_json, f"changed {name}")
        if not as_json and (not isinstance(queue, Queue) or has_site(queue.path)):
            click.echo(
                f"if the configuration of the site has a [[channel]] {name}, write the same there (compress and "
                "dictionary may be left out): with other terms the site does not start again"
            )


@channel.command(short_help="Delete a channel.")
@queue_argument
@click.argument("name", shell_complete=completes("channel"))
@click.option("--force", is_flag=True, help="Delete its stations too.")
@json_option
def delete(queue_path: str, name: str, force: bool, as_json: bool) -> None:
    """Delete the channel NAME of QUEUE. Its products stay in the queue.

    \b
    Example:
      headrace channel delete wx.queue radar
    """
    with open_queue(queue_path) as queue:
        queue.channel(name).remove(force=force)
    if as_json:
        echo_json({"name": name, "deleted": True})
    else:
        click.echo(visible(f"deleted {name}"))


@channel.command(short_help="Check options without a channel.")
@qos_options
@slicing_options()
@compression_terms
@json_option
def validate(as_json: bool, **options: str | None) -> int:
    """Check options without a channel: list every invalid value and every contradiction between them.

    Exit code 0 if the options are valid, 1 if they contradict each other, 2 if a value is invalid.

    \b
    Example:
      headrace channel validate --reliability persistent --discard fifo --timeout 10s
    """
    conflicts = find_conflicts(_given(options))
    if as_json:
        echo_json({"ok": not conflicts, "conflicts": conflicts})
    elif not conflicts:
        click.echo("the options are valid")
    else:
        for conflict in conflicts:
            click.echo(visible(f"{', '.join(conflict.options)}: {conflict.problem}"))
            click.echo(f"  try: {visible(conflict.remedy)}")
        click.echo(format_count(len(conflicts), "conflict"), err=True)
    if any(conflict.of_values for conflict in conflicts):
        return USAGE
    return NEGATIVE if conflicts else OK


# --- words ----------------------------------------------------------------------------------------


def _show(shown: AnyChannel, as_json: bool, text: str) -> None:
    definition = shown.definition
    if as_json:
        echo_json({"name": definition.name, "feed": definition.feed, "qos": definition.qos,
                   "slicing": definition.slicing, "compression": definition.compression})  # fmt: skip
    else:
        terms = ", ".join(f"{option} {value}" for option, value in _terms(definition).items() if value != "open")
        click.echo(visible(f"{text}: {terms or 'no terms of its own'}"))


def _terms(definition: Definition) -> dict[str, str]:
    """As they are in force: with a home, stations deliver first in, first out, also if no order was given."""
    terms = {option: option_text(option, getattr(definition.qos, field)) for option, field in FIELDS.items()}
    if definition.qos.home is not None:
        terms["order"] = order_of(definition.qos)
    return terms | slicing_texts(definition.slicing) | compression_options(definition.compression)


def _own_terms(own: Mapping[str, Any]) -> str:
    """The terms in which a station differs from its channel."""
    words = [f"{option} {option_text(option, own[field])}" for option, field in FIELDS.items() if field in own]
    return ", ".join(words) or "inherits all terms"


def _counts(statistics: ChannelStatistics) -> dict[str, object]:
    drops = ", ".join(f"{count:,} {cause}" for cause, count in statistics.dropped.items() if count)
    duplicates = format_count(statistics.duplicates, "duplicate")
    return {
        "suppliers": statistics.suppliers,
        "stations, consumers": f"{statistics.stations}, {statistics.consumers}",
        "pushed": f"{statistics.pushed:,} ({duplicates}, {statistics.rejected:,} rejected)",
        "waiting, leased, parked": f"{statistics.waiting:,}, {statistics.leased:,}, {statistics.parked:,}",
        "delivered, acknowledged": f"{statistics.delivered:,}, {statistics.acknowledged:,}",
        "dropped": drops or "none",
        **({"spread": f"{statistics.spread:,}, for lack of what assign needs"} if statistics.spread else {}),
    }
