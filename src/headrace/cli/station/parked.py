"""`headrace station parked`, `retry` and `forget`: products laid aside after too many deliveries."""

from collections.abc import Sequence

import click

from headrace.cli.failure import NEGATIVE, OK, notice, visible
from headrace.cli.opening import open_queue
from headrace.cli.options import json_option, queue_argument
from headrace.cli.output import echo_json, many, show_table
from headrace.cli.station.standing import existing
from headrace.station import Parked
from headrace.units import format_size

_SEQUENCE = click.IntRange(0, (1 << 63) - 1)


@click.command()
@queue_argument
@click.argument("name")
@json_option
def parked(queue_path: str, name: str, as_json: bool) -> None:
    """List the products parked at the station NAME of QUEUE: sequence, deliveries, size, feed and ident.

    \b
    Example:
      headrace station parked wx.queue decode
      headrace cat wx.queue --from 4711 --count 1
    """
    with open_queue(queue_path) as queue:
        found = existing(queue, name).parked()
    if as_json:
        for each in found:
            echo_json(each)
    elif found:
        show_table("parked", ("sequence", "deliveries", "size", "feed", "ident"), map(_row, found), right=[0, 1, 2])
    else:
        click.echo(visible(f"nothing is parked at {name}"))


@click.command()
@queue_argument
@click.argument("name")
@click.argument("sequences", nargs=-1, type=_SEQUENCE, metavar="[SEQUENCE]...")
@json_option
def retry(queue_path: str, name: str, sequences: tuple[int, ...], as_json: bool) -> int:
    """Bring products parked at the station NAME of QUEUE back to its input, as if new; all, or those given.

    Exit code 1 if one of those given is not parked.

    \b
    Example:
      headrace station retry wx.queue decode
      headrace station retry wx.queue decode 4711 4712
    """
    return _unpark(queue_path, name, sequences, True, as_json)


@click.command()
@queue_argument
@click.argument("name")
@click.argument("sequences", nargs=-1, type=_SEQUENCE, metavar="[SEQUENCE]...")
@json_option
def forget(queue_path: str, name: str, sequences: tuple[int, ...], as_json: bool) -> int:
    """Give up products parked at the station NAME of QUEUE; all, or those given. They stay in the queue.

    Exit code 1 if one of those given is not parked.

    \b
    Example:
      headrace station forget wx.queue decode 4711
    """
    return _unpark(queue_path, name, sequences, False, as_json)


def _unpark(queue_path: str, name: str, sequences: Sequence[int], again: bool, as_json: bool) -> int:
    with open_queue(queue_path) as queue:
        station = existing(queue, name)
        missing = sorted(set(sequences) - {each.sequence for each in station.parked()})
        count = (station.retry if again else station.forget)(list(sequences) or None)
    if missing:
        text = f"not parked at {name}: {', '.join(map(str, missing))}"
        notice(text, as_json, name=name, not_parked=missing)
    done = "retried" if again else "forgotten"
    if as_json:
        echo_json({"name": name, done: count})
    else:
        click.echo(visible(f"{done} {many(count, 'product')} of {name}"))
    return NEGATIVE if missing else OK


def _row(each: Parked) -> tuple[object, ...]:
    if not each.held:
        return (each.sequence, f"{each.deliveries:,}", "", "no longer in the queue", "")
    return (each.sequence, f"{each.deliveries:,}", format_size(each.size), each.feed, each.ident)
