"""`headrace top`: the options, and the ways to show a queue at work.

The queue is looked at once in each interval and never in between; a terminal that changes its size gets the last frame
again, drawn anew.
"""

import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice

import click
import msgspec

from headrace.cli.opening import open_here
from headrace.cli.options import AGE, json_option, queue_argument
from headrace.cli.output import echo_json, is_terminal
from headrace.cli.top.frame import Frame, frame_of
from headrace.cli.top.snapshot import Camera
from headrace.errors import OptionError

INTERVAL_S_MIN = 0.1
Pause = Callable[[float], None]  # returns when that time (of time.monotonic) has come


@click.command()
@queue_argument
@click.option("--interval", type=AGE, default="1s", show_default=True, help="How often to look.")
@click.option("--once", is_flag=True, help="Look twice, one interval apart, show the result, and end.")
@json_option
def top(queue_path: str, interval: float, once: bool, as_json: bool) -> None:
    """See QUEUE at work: how full it is, what comes in, and what stations and consumers do about it.

    A bar shows how full a station is; where the queue itself is the capacity, how much of its size waits for the
    station. Rates are per second since the last look. `drop/s` counts what a station dropped, or what expired or was
    evicted before it was handed out. Ctrl-C ends it (exit code 130).

    With --json there is one object per interval, with the feeds that had products in it.

    \b
    Example:
      headrace top wx.queue
      headrace top wx.queue --interval 5s --json | jq '.stations[] | [.name, .lag_s]'
    """
    if interval < INTERVAL_S_MIN:
        raise OptionError(f"--interval {interval:g} s is too short", f"give {INTERVAL_S_MIN:g} s or more")
    if not (once or as_json or is_terminal()):
        raise click.UsageError("Standard output is not a terminal: give --once or --json")
    with open_here(queue_path) as queue:
        camera = Camera(queue)
        if once or as_json:
            for frame in islice(frames(camera, interval, _sleep_until), 1, 2 if once else None):
                _tell(frame, as_json)
        else:
            _live(camera, interval)


def frames(camera: Camera, interval_s: float, pause: Pause) -> Iterator[Frame]:
    """A frame for each interval, for ever; the first has no rates."""
    before = None
    while True:
        now = camera.take()
        yield frame_of(before, now)
        before = now
        pause(now.at_s + interval_s)


def _sleep_until(due_s: float) -> None:
    """Or until nobody reads the pipe any more that we write to."""
    watcher = select.poll()
    with suppress(OSError):  # not a file at all
        if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            watcher.register(sys.stdout.fileno(), 0)
    if watcher.poll(max(0.0, due_s - time.monotonic()) * 1000):
        raise BrokenPipeError


def _tell(frame: Frame, as_json: bool) -> None:
    if as_json:
        echo_json(msgspec.structs.replace(frame, feeds=[feed for feed in frame.feeds if feed.products_s]))
        return
    from rich.console import Console

    from headrace.cli.top.view import Canvas, draw

    console = Console()
    console.print(draw(frame, Canvas(console.width, None, console.options.ascii_only)))


def _live(camera: Camera, interval_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from headrace.cli.top.view import Canvas, draw

    console = Console()
    latest: list[Frame] = []
    with _resizes_held(), Live(console=console, screen=True, auto_refresh=False) as live:

        def show() -> None:
            width, height = console.size
            live.update(draw(latest[-1], Canvas(width, height, console.options.ascii_only)), refresh=True)

        for frame in frames(camera, interval_s, lambda due_s: _await_resizes(due_s, show)):
            latest[:] = [frame]
            show()


@contextmanager
def _resizes_held() -> Iterator[None]:
    """A change of the terminal's size waits until somebody asks for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _await_resizes(due_s: float, redraw: Callable[[], None]) -> None:
    """Until `due_s`, draw again whenever the terminal has changed its size."""
    while (left_s := due_s - time.monotonic()) > 0:
        if signal.sigtimedwait([signal.SIGWINCH], left_s) is not None:
            redraw()
