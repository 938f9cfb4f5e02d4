"""`headrace receive`: files and directories that `headrace send` sends, joined in a directory."""

import signal
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli import failure
from headrace.cli.group import Command
from headrace.cli.options import AGE, FEED, SIZE, completes, json_option, open_queue
from headrace.cli.output import ProgressBar, echo_json, transfer_bar
from headrace.cli.place import DEFAULT, has_default
from headrace.cli.send import FILES_FEED, Said
from headrace.errors import OptionError
from headrace.text import visible
from headrace.units import format_count, format_size

if TYPE_CHECKING:
    from headrace.payload.fragments.receiver import FileReceiver, Received, ReceiverStatistics

EXISTING = ("refuse", "replace", "number")


@click.command(cls=Command)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), metavar="DIR")
@click.option("--from", "queue_path", default=DEFAULT, metavar="QUEUE", shell_complete=completes("queue"),
              help="The queue through which the files come. [default: the default queue]")  # fmt: skip
@click.option("--feed", type=FEED, default=FILES_FEED, show_default=True, shell_complete=completes("feed"),
              help="The feed that carries the fragments.")  # fmt: skip
@click.option("--existing", type=click.Choice(EXISTING), default="refuse", show_default=True,
              help="If a file of that name exists: refuse the new one, replace the old one, or number the new one "
                   "(report.1.csv).")  # fmt: skip
@click.option("--size-max", type=SIZE, help="Refuse larger files, such as 10GiB. [default: no limit]")
@click.option("--once", is_flag=True, help="End when the files that are in the queue now are complete.")
@click.option("--count", type=click.IntRange(min=1),
              help="End after this many files and directories, also those that were in the queue before; exit code 3 "
                   "if --timeout comes first.")  # fmt: skip
@click.option("--timeout", type=AGE,
              help="End if no fragment has come for this long. [default: no limit; 1min with --once]")  # fmt: skip
@json_option
def receive(
    directory: Path, queue_path: str, feed: str, existing: str, size_max: int | None, once: bool, count: int | None,
    timeout: float | None, as_json: bool,
) -> int:  # fmt: skip
    """Receive into DIR the files that `headrace send` sends, verify them, and give each its name when it is complete.

    What is on its way is in DIR/.headrace-receive. End the command, or kill it, and run it again: it continues. A
    fragment that was damaged, or evicted before it was read, is asked for again, and the sender sends it.

    Names that would lead out of DIR are refused. Exit code 3 if something is incomplete after --timeout, or fewer than
    --count came, 1 if a file was refused.

    \b
    Example:
      headrace receive incoming --from wx.queue
      headrace receive incoming --from site:denver --feed lab/files --existing replace
      headrace receive incoming --from wx.queue --once
    """
    from headrace.payload.fragments.receiver import FileReceiver

    if queue_path == DEFAULT and not has_default():
        raise OptionError("--from is missing, and there is no default queue", "name the queue: --from QUEUE")
    begun_s, said = time.monotonic(), Said(as_json)
    with open_queue(queue_path, waits=True) as queue:
        receiver = FileReceiver(
            queue, directory, feed, existing=existing, size_max=size_max, once=once, count=count,
            timeout_s=60.0 if once and timeout is None else timeout,
            on_received=lambda received: _show(received, as_json),
        )  # fmt: skip
        ended = _ends(receiver)
        try:
            with transfer_bar("receiving") as bar:
                receiver.on_progress = partial(_progress, bar, said)
                receiver.run()
        finally:  # also when something is incomplete, and when the bar is gone
            _show_totals(receiver.statistics, time.monotonic() - begun_s, as_json)
    if ended:
        return 128 + ended[0]
    return failure.NEGATIVE if receiver.statistics.refused else failure.OK


def _progress(bar: ProgressBar, said: Said, now: "ReceiverStatistics") -> None:
    bar.set(now.finished_bytes + now.held_bytes, (now.finished_bytes + now.open_bytes) or None)
    said.waits(now.waits_for)


def _ends(receiver: "FileReceiver") -> list[int]:
    """Ctrl-C and SIGTERM end the command after the current batch; the list gets the number of the signal."""
    ended: list[int] = []

    def end(number: int, frame: object) -> None:
        if ended:  # for the second time
            raise KeyboardInterrupt
        ended.append(number)
        receiver.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    return ended


def _show(received: "Received", as_json: bool) -> None:
    if as_json:
        echo_json({"name": received.name, "size": received.size, "state": received.state, "hash": received.root,
                   "problem": received.problem})  # fmt: skip
    elif received.state == "done":
        click.echo(f"{received.state:>9}  {format_size(received.size):>9}  {visible(received.name)}")
    else:
        failure.show_failure(
            failure.Failure("TransferError", f"{received.name} was {received.state}: {received.problem}"), False
        )


def _show_totals(told: "ReceiverStatistics", took_s: float, as_json: bool) -> None:
    if as_json:
        echo_json({
            "finished": told.finished, "refused": told.refused, "superseded": told.superseded, "bytes": told.bytes,
            "bad": told.bad, "lost": told.lost, "repeated": told.repeated, "asked": told.asked, "open": told.open,
            "took_s": took_s,
        })  # fmt: skip
        return
    rate = told.bytes / max(took_s, 1e-9)
    parts = [f"received {format_count(told.finished, 'file')}, wrote {format_size(told.bytes)}"]
    parts[0] += f" in {took_s:.1f} s, {format_size(int(rate))}/s"
    parts += [f"{format_count(told.bad, 'damaged fragment')} asked for again"] if told.bad else []
    parts += [f"{format_count(told.refused, 'file')} refused"] if told.refused else []
    parts += [f"{format_count(told.superseded, 'older version')} dropped"] if told.superseded else []
    parts += [f"{format_count(told.open, 'file')} incomplete, kept"] if told.open else []
    click.echo("; ".join(parts))
