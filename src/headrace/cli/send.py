"""`headrace send`: files and directories through a queue, in fragments, until receivers have them."""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli import failure
from headrace.cli.group import Command, QueueArgument
from headrace.cli.options import AGE, FEED, completes, json_option, open_queue
from headrace.cli.output import ProgressBar, echo_json, transfer_bar
from headrace.text import visible
from headrace.units import format_count, format_size

if TYPE_CHECKING:
    from headrace.payload.fragments.sender import SenderStatistics, Sent

FILES_FEED = "files"


@click.command(cls=Command)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.argument("queue_path", cls=QueueArgument, metavar="QUEUE")
@click.option("--feed", type=FEED, default=FILES_FEED, show_default=True, shell_complete=completes("feed"),
              help="The feed that carries the fragments; receivers name the same.")  # fmt: skip
@click.option("--receivers", type=click.IntRange(min=1), default=1, show_default=True,
              help="How many receivers must have everything.")  # fmt: skip
@click.option("--at", "sites", multiple=True, metavar="SITE",
              help="Only receivers at this site count; repeat it for more. [default: all]")  # fmt: skip
@click.option("--no-wait", is_flag=True, help="Wait for no receiver; all files must fit into half of the queue.")
@click.option("--timeout", type=AGE, help="Fail if nothing moves for this long, such as 1min. [default: no limit]")
@json_option
def send(
    files: tuple[Path, ...], queue_path: str, feed: str, receivers: int, sites: tuple[str, ...], no_wait: bool,
    timeout: float | None, as_json: bool,
) -> int:  # fmt: skip
    """Send FILES and directories through QUEUE, and end when receivers have stored and verified them.

    A file is cut into fragments, which are products. `headrace receive` joins them. A file may be larger than the
    queue: at most half of the queue is on its way. Run the command again after it was ended, or killed: what receivers
    have is not sent again.

    Links inside directories are not followed; what is left out is named. Exit code 1 if a file inside a directory was
    left out because of its name or permissions, 3 if a receiver refused a file, a file changed while it was sent, or
    nothing moved for --timeout.

    \b
    Example:
      headrace send volume.h5 wx.queue
      headrace send run-0412/ notes.txt site:denver --feed lab/files --at denver
      headrace send big.tar tcp/host:7447 --receivers 2 --timeout 10min
    """
    from headrace.payload.fragments.sender import Sender
    from headrace.payload.fragments.source import list_sources
    from headrace.product.put import check_origin
    from headrace.queue import Queue

    sources, left_out = list_sources(list(files))
    for each in left_out:
        failure.notice(
            f"{each.path} is not sent: {each.why}", as_json, left_out=visible(str(each.path)), problem=visible(each.why)
        )
    begun_s, said = time.monotonic(), Said(as_json)
    with open_queue(queue_path, waits=True, within_s=timeout) as queue:
        sender = Sender(
            queue, feed, sources, receivers=0 if no_wait else receivers, timeout_s=timeout,
            on_sent=lambda sent: _show(sent, as_json), puts_at_once=1 if isinstance(queue, Queue) else 2,
            receivers_at=[check_origin(site) for site in sites],
        )  # fmt: skip
        try:
            with transfer_bar("sending") as bar:
                sender.on_progress = partial(_progress, bar, said)
                sender.run()
        finally:  # also after Ctrl-C, and when the bar is gone
            _show_totals(sender.statistics, len(left_out), time.monotonic() - begun_s, as_json)
    if sender.statistics.failed:
        return failure.FAILED
    return failure.NEGATIVE if any(each.is_lost for each in left_out) else failure.OK


def _progress(bar: ProgressBar, said: "Said", now: "SenderStatistics") -> None:
    bar.set(now.sent_bytes + now.held_bytes + now.hole_bytes, now.bytes)
    said.waits(now.waits_for)


class Said:
    """Tells for whom the command waits, once for each reason."""

    def __init__(self, as_json: bool) -> None:
        self._as_json, self._last = as_json, ""

    def waits(self, reason: str) -> None:
        if reason and reason != self._last:
            failure.notice(f"waiting: {reason}", self._as_json, waits_for=reason)
        self._last = reason or self._last


def _show(sent: "Sent", as_json: bool) -> None:
    if as_json:
        echo_json({"name": sent.name, "size": sent.size, "state": sent.state, "receivers": list(sent.receivers),
                   "problem": sent.problem})  # fmt: skip
        return
    if sent.state in ("done", "put"):
        to = f" → {', '.join(sent.receivers)}" if sent.receivers else ""
        click.echo(f"{sent.state:>9}  {format_size(sent.size):>9}  {visible(sent.name)}{visible(to)}")
    else:
        failure.show_failure(
            failure.Failure("TransferError", f"{sent.name} was {sent.state}: {sent.problem}", "", failure.FAILED), False
        )


def _show_totals(told: "SenderStatistics", left_out: int, took_s: float, as_json: bool) -> None:
    rate = told.sent_bytes / max(took_s, 1e-9)
    if as_json:
        echo_json({
            "files": told.files, "finished": told.finished, "failed": told.failed, "bytes": told.bytes,
            "sent_bytes": told.sent_bytes, "again_bytes": told.again_bytes, "held_bytes": told.held_bytes,
            "hole_bytes": told.hole_bytes, "left_out": left_out, "took_s": took_s,
        })  # fmt: skip
        return
    parts = [f"sent {format_size(told.sent_bytes)} in {took_s:.1f} s, {format_size(int(rate))}/s"]
    parts += [f"{format_size(told.again_bytes)} of it again"] if told.again_bytes else []
    parts += [f"{format_size(told.held_bytes)} were there already"] if told.held_bytes else []
    parts += [f"{told.finished:,} of {format_count(told.files, 'file')} finished"] if told.finished < told.files else []
    parts += [f"{left_out:,} left out"] if left_out else []
    click.echo("; ".join(parts))
