"""`headrace audit`: who joined a site, who was refused, and who changed what."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.failure import json_line
from headrace.cli.group import Command
from headrace.cli.options import Parsed, directory_of, json_option, queue_argument
from headrace.cli.output import echo_json, show_table
from headrace.errors import QueueMissingError
from headrace.text import visible
from headrace.units import parse_age, parse_time

if TYPE_CHECKING:
    from headrace.link.audit import Entry
    from headrace.link.audit_reading import Tail

_LOOK_S = 0.5


def _since(value: str, what: str) -> str:
    """The earliest time, as the log writes it; an age is counted back from now."""
    is_time = "-" in value
    seconds = parse_time(value, what) / 1e9 if is_time else time.time() - parse_age(value, what)
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@click.command(cls=Command)
@queue_argument
@click.option("--who", metavar="NAME", help='Only this principal; "-": clients without a name, and the site itself.')
@click.option("--since", type=Parsed("age|time", _since), help="Only what is not older.")
@click.option("--refused", is_flag=True, help="Only what was refused.")
@click.option("--follow", is_flag=True, help="Show what comes from now on, too, until Ctrl-C.")
@json_option
def audit(queue_path: str, who: str | None, since: str | None, refused: bool, follow: bool, as_json: bool) -> None:
    """Show who joined the site of QUEUE, who was refused, and who changed what.

    The log is in the directory of the queue (site/audit) and of bounded size. Of one principal only some lines per
    second are written; `left out` says how many are missing before a line.

    \b
    Example:
      headrace audit wx.queue --since 1h --refused
      headrace audit wx.queue --who denver --follow
    """
    from headrace.link.audit_files import audit_folder
    from headrace.link.audit_reading import Tail, entries_of

    queue = Path(directory_of(queue_path, "the audit log is a file in it"))
    if not queue.is_dir():
        raise QueueMissingError(f"there is no queue at {queue}", "check the path")
    folder = audit_folder(queue)

    def is_wanted(entry: "Entry") -> bool:
        is_theirs = who is None or entry.principal == (None if who == "-" else who)
        return is_theirs and entry.time >= (since or "") and (entry.outcome == "refused" or not refused)

    tail = Tail(folder) if follow else None
    entries = [entry for entry in entries_of(folder) if is_wanted(entry)]
    if tail is not None:
        for entry in entries:
            _show(entry, as_json)
        _follow(tail, is_wanted, as_json)
    elif as_json:
        for entry in entries:
            echo_json(entry)
    elif entries:
        header = ("time", "principal", "action", "subject", "outcome", "peer", "detail", "left out")
        show_table("audit log", header, map(_cells, entries), right=(7,))
    else:
        click.echo("the audit log has no such entry")


def _follow(tail: "Tail", is_wanted: Callable[["Entry"], bool], as_json: bool) -> None:
    try:
        while True:
            for entry in filter(is_wanted, tail.read()):
                _show(entry, as_json)
            sys.stdout.flush()
            time.sleep(_LOOK_S)
    finally:
        tail.close()


def _cells(entry: "Entry") -> tuple[str, ...]:
    left_out = str(entry.left_out or "")
    return (
        entry.time, entry.principal or "-", entry.action, entry.subject, entry.outcome, entry.peer, entry.detail,
        left_out,
    )  # fmt: skip


def _show(entry: "Entry", as_json: bool) -> None:
    click.echo(json_line(entry) if as_json else "  ".join(visible(cell) for cell in _cells(entry) if cell))
