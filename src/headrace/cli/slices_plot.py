"""`headrace slices plot`: the history of a group as a picture."""

from pathlib import Path

import click

from headrace.cli.group import Command
from headrace.cli.options import AGE, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json
from headrace.cli.slices_group import group_options, name_of, open_group
from headrace.errors import OptionError, ShareError
from headrace.extras import require
from headrace.text import visible
from headrace.units import format_count

_FORMATS = (".png", ".svg", ".pdf")


@click.command(cls=Command, short_help="Draw loads, slices and sessions over time.")
@queue_argument
@click.argument("file", metavar="FILE.png", type=click.Path(path_type=Path))
@click.option("--last", type=AGE, metavar="AGE", help="Only the time since then, such as 10min. [default: all]")
@group_options
@json_option
def plot(queue_path: str, file: Path, last: float | None, stream: str | None, group: str | None, as_json: bool) -> None:
    """Draw the history of a group into FILE: how busy each node was, what waited, and its slices; sessions are marked.

    The group keeps a sample of each node for each second, the latest 32,768, and the latest sessions. The end of the
    name chooses the format: .png, .svg or .pdf.

    \b
    Example:
      headrace slices plot wx.queue load.png
      headrace slices plot wx.queue --stream surface load.svg --last 10min
    """
    if file.suffix.lower() not in _FORMATS:
        raise OptionError(f"{file} has no format that can be drawn", f"end the name with {', '.join(_FORMATS)}")
    require("plots")
    from headrace.slices.plot import save_plot

    with open_queue(queue_path) as queue:
        share = open_group(queue, stream, group)
        samples, state = share.history(), share.state()
    if last is not None and samples:
        since_ns = samples[-1].time_ns - int(last * 1e9)
        samples = [each for each in samples if each.time_ns >= since_ns]
    if not samples:
        raise ShareError(f"{name_of(share)} has no history", "let a node run for some seconds: headrace slices run")
    save_plot(file, samples, state)
    nodes = {each.node for each in samples}
    if as_json:
        echo_json({"file": str(file.absolute()), "nodes": sorted(nodes), "samples": len(samples)})
    else:
        what = f"{format_count(len(samples), 'sample')} of {format_count(len(nodes), 'node')}"
        click.echo(visible(f"{file}: {what}"))
