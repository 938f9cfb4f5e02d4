"""`headrace station`: what an operator does with the stations of a queue.

create, change, seek, pause, resume, delete, and parked, retry, forget for products that failed too often. `list` and
`show` are in station_show.py, `take` in station_take.py, the options for a station's terms in station_terms.py.
"""

from collections.abc import Sequence
from typing import Any

import click

from headrace.cli.failure import NEGATIVE, OK, confirm, notice
from headrace.cli.group import Group
from headrace.cli.options import POSITION, completes, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json, show_table
from headrace.cli.station_chain import chain_of, existing_station
from headrace.cli.station_show import list_stations, show
from headrace.cli.station_take import take
from headrace.cli.station_terms import for_channel, given_terms, selection_text, term_options
from headrace.queue import AnyQueue, AnyStation
from headrace.station import Parked, StationStatistics
from headrace.text import visible
from headrace.units import format_count, format_size

_SEQUENCE = click.IntRange(0, (1 << 63) - 1)


@click.group(cls=Group)
def station() -> None:
    """Create, inspect, change, move and delete stations: selections and positions that consumers share.

    \b
    Example:
      headrace station create wx.queue decode --select 'wx/radar/**' --capacity 1000 --blocking
      headrace station list wx.queue
      headrace station seek wx.queue decode 1h
    """


station.add_command(list_stations)
station.add_command(show)
station.add_command(take)


@station.command(short_help="Create a station with the given terms.")
@queue_argument
@click.argument("name")
@term_options
@click.option(
    "--after",
    metavar="STATION",
    help="Stand behind that station: receive what it has acknowledged, and what it does not take.",
)
@click.option("--group", metavar="GROUP", help="Share products with the other stations of this group.")
@click.option("--channel", metavar="CHANNEL", help="Inherit the terms of this channel; given terms may be stricter.")
@click.option(
    "--from", "start", type=POSITION, default="next", show_default=True,
    metavar="next|oldest|SEQUENCE|AGE|TIME", help="Where a new station starts.",
)  # fmt: skip
@json_option
def create(
    queue_path: str, name: str, after: str | None, group: str | None, channel: str | None, start: int | str,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Create the station NAME of QUEUE with these terms. A station that exists with the same terms is left as it is.

    \b
    Example:
      headrace station create wx.queue decode --select 'wx/radar/**' --capacity 1000 --blocking
      headrace station create wx.queue archive --after decode
      headrace station create wx.queue worker-1 --group workers --distribution least_loaded --from oldest
    """
    given = given_terms(**options)
    given.update({term: value for term, value in (("after", after), ("group", group)) if value is not None})
    with open_queue(queue_path) as queue:
        is_new = name not in queue.stations()
        created = _create(queue, name, channel, start, given)
        terms, unattended = created.terms, not created.consumers()
    if terms.blocking and unattended:
        full = f"it holds {format_count(terms.capacity, 'product')}" if terms.capacity else "the queue is full"
        text = f"no consumer is attached to blocking station {name}: puts wait once {full}"
        notice(text, as_json, name=name, consumers=0, warning=text)
    if as_json:
        echo_json({"name": name, "created": is_new, "terms": terms})
    else:
        selection = selection_text(terms.selection)
        text = f"created {name}: {selection}" if is_new else f"{name} exists already with these terms: {selection}"
        click.echo(visible(text))


def _create(queue: AnyQueue, name: str, channel: str | None, start: int | str, given: dict[str, Any]) -> AnyStation:
    selection = given.pop("selection", None)
    if channel is None:
        return queue.station(name, selection, start=start, **given)
    return queue.channel(channel).station(name, selection, start=start, **for_channel(given))


@station.command(short_help="Change terms while consumers work.")
@queue_argument
@click.argument("name", shell_complete=completes("station"))
@term_options
@json_option
def change(queue_path: str, name: str, as_json: bool, **options: Any) -> None:
    """Change terms of the station NAME of QUEUE while its consumers work. Terms that are not given stay.

    A new selection applies to products that are put from now on. The terms of a station in a channel may be stricter
    than those of the channel, but not looser.

    \b
    Example:
      headrace station change wx.queue decode --capacity 5000 --hung-after 2min
      headrace station change wx.queue decode --timeout none --no-blocking
    """
    given = given_terms(**options)
    if not given:
        raise click.UsageError("Nothing to change: give at least one option")
    with open_queue(queue_path) as queue:
        changed = existing_station(queue, name)
        _change(queue, changed, given)
        terms = changed.terms
    if as_json:
        echo_json({"name": name, "terms": terms})
    else:
        click.echo(visible(f"changed {name}: {', '.join(given).replace('_', ' ')}"))


def _change(queue: AnyQueue, changed: AnyStation, given: dict[str, Any]) -> None:
    """A station in a channel is changed through the channel, which checks that it stays within its terms."""
    channel = changed.terms.channel
    if channel is None:
        changed.change(**given)
    else:
        selection = given.get("selection")
        rest = {term: value for term, value in given.items() if term != "selection"}
        queue.channel(channel).change_station(changed.name, selection, **for_channel(rest))


@station.command(short_help="Move a station to another position in the queue.")
@queue_argument
@click.argument("name", shell_complete=completes("station"))
@click.argument("start", type=POSITION)
@click.option("--yes", is_flag=True, help="Do not ask before products are skipped.")
@json_option
def seek(queue_path: str, name: str, start: int | str, yes: bool, as_json: bool) -> int:
    """Move the station NAME of QUEUE to START: a sequence, oldest, next, an age or a time.

    All stations of its chain move with it. They forget the products that wait there, and skip those between the old
    position and START. From START on they hand out everything selected, some of it a second time if START is earlier.
    Leased products stay with their consumers, parked products stay parked. The command asks if anything is forgotten;
    exit code 1 if you answer no.

    \b
    Example:
      headrace station seek wx.queue decode 1h
      headrace station seek wx.queue decode next --yes
    """
    with open_queue(queue_path) as queue:
        moved = existing_station(queue, name)
        chain = chain_of(queue, moved)
        forgotten = forgotten_products(chain, queue.resolve(start))
        if forgotten and not yes and not confirm(visible(_question(chain, start, forgotten))):
            click.echo("nothing was moved", err=True)
            return NEGATIVE
        position = moved.seek(start)
    names = [each.name for each in chain]
    if as_json:
        echo_json({"name": name, "position": position, "stations": names, "forgotten_products": forgotten})
    else:
        verb = "is" if len(names) == 1 else "are"
        click.echo(visible(f"{', '.join(names)} {verb} at {position}; {format_count(forgotten, 'product')} forgotten"))
    return OK


def forgotten_products(chain: Sequence[StationStatistics], position: int) -> int:
    """How many products the stations of a chain forget or skip if they move to `position`."""
    first = chain[0]
    skipped = max(0, min(first.behind, position - first.position))
    return skipped + sum(each.waiting for each in chain)


def _question(chain: Sequence[StationStatistics], start: int | str, forgotten: int) -> str:
    names = ", ".join(each.name for each in chain)
    return f"Forget {format_count(forgotten, 'product')} waiting for {names} and move to {start}?"


@station.command(short_help="Stop handing out products until `resume`.")
@queue_argument
@click.argument("name", shell_complete=completes("station"))
@json_option
def pause(queue_path: str, name: str, as_json: bool) -> None:
    """Stop handing out products at the station NAME of QUEUE until `resume`. New products wait there.

    \b
    Example:
      headrace station pause wx.queue decode
    """
    _set_paused(queue_path, name, True, as_json)


@station.command(short_help="Hand out products again.")
@queue_argument
@click.argument("name", shell_complete=completes("station"))
@json_option
def resume(queue_path: str, name: str, as_json: bool) -> None:
    """Hand out products again at the station NAME of QUEUE.

    \b
    Example:
      headrace station resume wx.queue decode
    """
    _set_paused(queue_path, name, False, as_json)


def _set_paused(queue_path: str, name: str, paused: bool, as_json: bool) -> None:
    with open_queue(queue_path) as queue:
        found = existing_station(queue, name)
        if paused:
            found.pause()
        else:
            found.resume()
        waiting = found.statistics().waiting
    if as_json:
        echo_json({"name": name, "paused": paused, "waiting": waiting})
    else:
        verb = "paused" if paused else "resumed"
        click.echo(visible(f"{verb} {name}; {format_count(waiting, 'product')} waiting"))


@station.command(short_help="Delete a station.")
@queue_argument
@click.argument("name", shell_complete=completes("station"))
@click.option("--yes", is_flag=True, help="Do not ask, even if products are not acknowledged.")
@json_option
def delete(queue_path: str, name: str, yes: bool, as_json: bool) -> int:
    """Delete the station NAME of QUEUE, with its position and its list of waiting and parked products.

    The products stay in the queue; stations after it receive them. The command asks if products are waiting, leased or
    parked; exit code 1 if you answer no.

    \b
    Example:
      headrace station delete wx.queue decode
    """
    with open_queue(queue_path) as queue:
        deleted = existing_station(queue, name)
        counts = deleted.statistics()
        left = counts.waiting + counts.behind + counts.leased + counts.parked
        products = format_count(left, "unacknowledged product")
        if left and not yes and not confirm(visible(f"Delete {name}, with {products}?")):
            click.echo("nothing was deleted", err=True)
            return NEGATIVE
        deleted.remove()
    if as_json:
        echo_json({"name": name, "deleted": True, "left_products": left})
    else:
        click.echo(visible(f"deleted {name}; {products}"))
    return OK


# --- products that failed too often ---------------------------------------------------------------


@station.command(short_help="List products that were set aside after too many deliveries.")
@queue_argument
@click.argument("name", shell_complete=completes("station"))
@json_option
def parked(queue_path: str, name: str, as_json: bool) -> None:
    """List the products parked at the station NAME of QUEUE: sequence, deliveries, size, feed and ident.

    \b
    Example:
      headrace station parked wx.queue decode
      headrace cat wx.queue --from 4711 --count 1
    """
    with open_queue(queue_path) as queue:
        found = existing_station(queue, name).parked()
    if as_json:
        for each in found:
            echo_json(each)
    elif found:
        rows = map(_parked_row, found)
        show_table("parked", ("sequence", "deliveries", "size", "feed", "ident"), rows, right=[0, 1, 2])
    else:
        click.echo(visible(f"nothing is parked at {name}"))


@station.command(short_help="Hand out parked products again.")
@queue_argument
@click.argument("name", shell_complete=completes("station"))
@click.argument("sequences", nargs=-1, type=_SEQUENCE, metavar="[SEQUENCE]...")
@json_option
def retry(queue_path: str, name: str, sequences: tuple[int, ...], as_json: bool) -> int:
    """Return products parked at the station NAME of QUEUE to its input, as if new: all, or those given.

    Exit code 1 if one of those given is not parked.

    \b
    Example:
      headrace station retry wx.queue decode
      headrace station retry wx.queue decode 4711 4712
    """
    return _unpark(queue_path, name, sequences, True, as_json)


@station.command(short_help="Give up parked products.")
@queue_argument
@click.argument("name", shell_complete=completes("station"))
@click.argument("sequences", nargs=-1, type=_SEQUENCE, metavar="[SEQUENCE]...")
@json_option
def forget(queue_path: str, name: str, sequences: tuple[int, ...], as_json: bool) -> int:
    """Give up products parked at the station NAME of QUEUE: all, or those given. They stay in the queue.

    Exit code 1 if one of those given is not parked.

    \b
    Example:
      headrace station forget wx.queue decode 4711
    """
    return _unpark(queue_path, name, sequences, False, as_json)


def _unpark(queue_path: str, name: str, sequences: Sequence[int], again: bool, as_json: bool) -> int:
    with open_queue(queue_path) as queue:
        found = existing_station(queue, name)
        missing = sorted(set(sequences) - {each.sequence for each in found.parked()})
        count = (found.retry if again else found.forget)(list(sequences) or None)
    if missing:
        text = f"not parked at {name}: {', '.join(map(str, missing))}"
        notice(text, as_json, name=name, not_parked=missing)
    done = "retried" if again else "forgotten"
    if as_json:
        echo_json({"name": name, done: count})
    else:
        click.echo(visible(f"{done} {format_count(count, 'product')} of {name}"))
    return NEGATIVE if missing else OK


def _parked_row(each: Parked) -> tuple[object, ...]:
    if not each.held:
        return (each.sequence, f"{each.deliveries:,}", "", "no longer in the queue", "")
    return (each.sequence, f"{each.deliveries:,}", format_size(each.size), each.feed, each.ident)
