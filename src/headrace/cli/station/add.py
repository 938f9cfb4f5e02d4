"""`headrace station add`."""

from typing import Any

import click

from headrace.cli.failure import visible
from headrace.cli.opening import open_queue
from headrace.cli.options import POSITION, json_option, queue_argument
from headrace.cli.output import echo_json
from headrace.cli.station.terms import for_channel, selection_text, term_options, terms_said
from headrace.queue import AnyQueue, AnyStation, local_queue


@click.command()
@queue_argument
@click.argument("name")
@term_options
@click.option("--after", metavar="STATION", help="Stand behind that station and see what it has put.")
@click.option("--group", metavar="GROUP", help="Share products with the other stations of this group.")
@click.option("--channel", metavar="CHANNEL", help="Inherit the terms of this channel; those given may be tighter.")
@click.option(
    "--from", "start", type=POSITION, default="next", show_default=True,
    metavar="next|oldest|SEQUENCE|AGE|TIME", help="Where a new station begins.",
)  # fmt: skip
@json_option
def add(
    queue_path: str, name: str, after: str | None, group: str | None, channel: str | None, start: int | str,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Make the station NAME of QUEUE on these terms. One that exists on these terms is left as it is.

    \b
    Example:
      headrace station add wx.queue decode --select 'wx/radar/**' --capacity 1000 --blocking
      headrace station add wx.queue archive --after decode
      headrace station add wx.queue worker-1 --group workers --distribution least_loaded --from oldest
    """
    said = terms_said(**options)
    said.update({term: value for term, value in (("after", after), ("group", group)) if value is not None})
    with open_queue(queue_path) as queue:
        is_new = name not in queue.stations()
        terms = _open(queue, name, channel, start, said).terms
    if as_json:
        echo_json({"name": name, "added": is_new, "terms": terms})
    else:
        done = "added" if is_new else "there already, on these terms:"
        click.echo(visible(f"{done} {name}, which wants {selection_text(terms.selection)}"))


def _open(queue: AnyQueue, name: str, channel: str | None, start: int | str, said: dict[str, Any]) -> AnyStation:
    selection = said.pop("selection", None)
    if channel is None:
        return queue.station(name, selection, start=start, **said)
    return local_queue(queue).channel(channel).station(name, selection, start=start, **for_channel(said))
