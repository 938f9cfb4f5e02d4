"""`headrace replay`: a window of a queue or of an archive again, shown or put onto a feed.

replay.py           the command, and what it replays
replay_run.py       onto a feed: a run, which continues after a crash
replay_control.py   commands from other processes; replay_keys.py: keys on the terminal
replay_show.py      the progress
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failure import NEGATIVE, OK, notice
from headrace.cli.group import Command
from headrace.cli.options import POSITION, Parsed, completes, json_option, open_queue, selection_of, selection_options
from headrace.errors import OptionError

if TYPE_CHECKING:
    from headrace.queue import AnyQueue
    from headrace.timing.replay import Replay
    from headrace.timing.replay.run import Run

_LIVE = "live"


def _speed(value: str, what: str) -> str:
    from headrace.timing.replay.spacing import parse_speed, speed_text

    return speed_text(parse_speed(value, what))


SPEED = Parsed("speed", _speed)


@click.command(cls=Command)
@click.argument("source", required=False, shell_complete=completes("queue"))
@click.argument("target", required=False, shell_complete=completes("queue"))
@selection_options
@click.option(
    "--from", "start", type=POSITION, default="oldest", show_default=True, metavar="oldest|SEQUENCE|AGE|TIME",
    help="Where the window begins.",
)  # fmt: skip
@click.option(
    "--to", "stop", type=POSITION, default="next", show_default="the end of the queue as it is now",
    metavar="live|SEQUENCE|AGE|TIME", help="Where it ends, not included; `live`: new products follow.",
)  # fmt: skip
@click.option(
    "--speed", type=SPEED, default=None, metavar="10x|max", help="How fast; 1x is the original pace.  [default: 1x]"
)
@click.option(
    "--by", type=click.Choice(["inserted", "created"]), default="inserted", show_default=True,
    help="The times that space products: of insertion into SOURCE, or of creation.",
)  # fmt: skip
@click.option(
    "--onto", metavar="FEED", help="The feed in TARGET; ** at its end is the original feed.  [default: replay/**]"
)
@click.option("--relay", is_flag=True, help="Other sites get the replayed products, too.")
@click.option(
    "--run", "run_word", metavar="RUN|last", help="Continue this run where it was, or the run that --control is for."
)
@click.option(
    "--control",
    metavar="COMMAND",
    help="Command a replay that runs: pause, resume, 'seek +5min', 'speed 10x', status, stop.",
)
@click.option("--runs", "lists", is_flag=True, help="List the runs of this user on this machine.")
@json_option
def replay(
    source: str | None, target: str | None, select: str | None, ident: str | None, start: int | str, stop: int | str,
    speed: str | None, by: str, onto: str | None, relay: bool, run_word: str | None, control: str | None, lists: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Replay a window of SOURCE, in its original spacing or faster: show its products, or put them into TARGET.

    SOURCE is a queue or a table of products (`headrace archive`), TARGET a queue. Products in TARGET are marked as a
    replay, below the feed `replay`: readers of live products do not see them. A run that was interrupted or killed is
    continued by --run, and stores nothing twice.

    Keys while it runs: space pauses, + and - change the speed, left and right seek by 10 s, up and down by a minute,
    m is as fast as possible, q stops. --control does the same from another terminal.

    Exit code 1 if products were lost, damaged or refused.

    \b
    Example:
      headrace replay wx.queue --from 2h --to 1h --speed 10x
      headrace replay wx.queue test.queue --select 'wx/radar/**' --speed max
      headrace replay tables/radar site:denver --from 2026-07-01T12:00Z --onto test/radar
      headrace replay --run last --control pause
    """
    from headrace.cli import replay_run

    if lists:
        return replay_run.list_runs(as_json)
    if control is not None:
        return replay_run.send_command(run_word, control, as_json)
    if run_word is not None:
        return replay_run.continue_run(run_word, (source, target), speed, as_json)
    source = _default() if source is None else source
    window = Window(str(selection_of(select, ident)), start, None if stop == _LIVE else stop, by, speed or "1x")
    if target is not None:
        return replay_run.begin_run(source, target, window, onto, relay, as_json)
    if onto is not None or relay:
        raise OptionError("--onto and --relay need a TARGET", "headrace replay SOURCE TARGET")
    return _show(source, window, as_json)


def _default() -> str:
    """The default queue, if there is one."""
    from headrace.cli.place import DEFAULT, has_default

    if not has_default():
        raise OptionError("SOURCE is missing", "headrace replay SOURCE [TARGET]; --run continues a run")
    return DEFAULT


@dataclass(frozen=True, slots=True)
class Window:
    """What to replay of a source, and how."""

    selection: str
    start: int | str
    stop: int | str | None
    by: Any
    speed: str


@contextlib.contextmanager
def opened(source: str, window: Window, run: "Run | None" = None) -> Iterator[tuple["Replay", str]]:
    """The replay of a source, and what identifies the source: the id of a queue, or nothing for a table.

    A `run` that continues does so at its position, which is in the window. ReplayError, before the window is looked
    for, if the source is not that of the run.
    """
    from headrace.timing.replay.run import check_source

    position = None if run is None else run.position
    table = table_at(source)
    if table is not None:
        from headrace.pipeline.archive import Archive

        if window.stop is None:
            raise OptionError(f"{source} is a table, which has no live products", "leave out --to live")
        if run is not None:
            check_source(run, "")
        yield Archive(table).replay(
            _moment(window.start), _moment(window.stop), window.selection, speed=window.speed, by=window.by,
            resume_ns=position,
        ), ""  # fmt: skip
        return
    with open_queue(source, waits=True) as queue:
        if run is not None:
            check_source(run, identity_of(queue))
        made = queue.replay(window.start, window.stop, window.selection, speed=window.speed, by=window.by)
        if position is not None:
            made.seek(position)
        yield made, identity_of(queue)


def identity_of(queue: "AnyQueue") -> str:
    """Differs for every queue that was ever created."""
    return queue.config.uuid


def table_at(source: str) -> Path | None:
    """The path of a table, if the word names one; None if it names a queue."""
    from headrace.cli.place import find_place
    from headrace.log.config import CONFIG_FILE

    place = find_place(source)
    path = Path(place.where)
    return None if place.is_remote or not path.exists() or (path / CONFIG_FILE).exists() else path


def _moment(place: int | str) -> int | str:
    """A place in an archive. The bounds of a run are nanoseconds; written ones are times and ages."""
    from headrace.product.product import utc

    return utc(place).isoformat() if isinstance(place, int) else place


def _show(source: str, window: Window, as_json: bool) -> int:
    """Without a target: one line for each product, when it is due."""
    from headrace.cli.replay_keys import keys
    from headrace.cli.stream import GapReports, stop_when_unread
    from headrace.cli.watch import show_batch

    gaps = GapReports(as_json)
    with opened(source, window) as (made, _), keys(made):
        unread = stop_when_unread(made.stop)
        for batch in made:
            if batch.lost is not None:
                gaps.lost(batch.lost)
            show_batch(batch, len(batch), False, as_json)
        now = made.progress()
    if unread.is_set():
        raise BrokenPipeError
    if now.damaged:
        notice(f"{now.damaged:,} products are damaged", as_json, damaged=now.damaged)
    return NEGATIVE if now.lost or now.damaged else OK
