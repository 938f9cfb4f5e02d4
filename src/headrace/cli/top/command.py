"""`headrace top`: the options, and the three ways to show a queue at work: live, once, as JSON lines.

The queue is read once in each interval and never in between. When the terminal changes its size, the last frame is
drawn again.
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

from headrace.cli.group import Command
from headrace.cli.options import AGE, json_option, open_queue, queue_argument
from headrace.cli.output import echo_json, is_terminal
from headrace.cli.station_chain import each_station, in_order
from headrace.cli.top.frame import Frame, Snapshot, frame_of
from headrace.errors import NotAQueueError, OptionError, QueueMissingError
from headrace.kernel import _kernel as kernel
from headrace.log.config import read_config
from headrace.log.explain import explain
from headrace.queue import AnyQueue, Queue

INTERVAL_S_MIN = 0.1
Pause = Callable[[float], None]  # returns at that time of time.monotonic


@click.command(cls=Command)
@queue_argument
@click.option("--interval", type=AGE, default="1s", show_default=True, help="Time between two readings.")
@click.option("--once", is_flag=True, help="Read twice, one interval apart, show the result, and end.")
@json_option
def top(queue_path: str, interval: float, once: bool, as_json: bool) -> None:
    """Watch QUEUE at work: how full it is, what arrives, and how stations and consumers keep up.

    The bar of a station shows how full it is; for a station without a capacity of its own, how much of the queue waits
    for it. Rates are per second since the last reading. `drop/s` counts products that a station dropped, and products
    that expired or were evicted before they were delivered. Ctrl-C ends it (exit code 130).

    With --json there is one object per interval, with the feeds that received products in it.

    \b
    Example:
      headrace top wx.queue
      headrace top site:denver --interval 5s
      headrace top wx.queue --interval 5s --json | jq '.stations[] | [.name, .lag_s]'
    """
    if interval < INTERVAL_S_MIN:
        raise OptionError(f"--interval {interval:g} s is too short", f"give {INTERVAL_S_MIN:g} s or more")
    if not (once or as_json or is_terminal()):
        raise click.UsageError("Standard output is not a terminal: give --once or --json")
    with open_queue(queue_path) as queue:
        reader = SnapshotReader(queue)
        if once or as_json:
            for frame in islice(frames(reader, interval, _sleep_until), 1, 2 if once else None):
                _print(frame, as_json)
        else:
            _show_live(reader, interval)


class SnapshotReader:
    """Reads the statistics of one open queue, its stations and its consumers."""

    def __init__(self, queue: AnyQueue) -> None:
        self._queue = queue
        self._uuid = queue.config.uuid

    def read(self) -> Snapshot:
        """The statistics now. HeadraceError if the queue is gone, was replaced, or is no longer readable."""
        if isinstance(self._queue, Queue):
            self._check_exists(self._queue)
        try:
            return self._read()
        except kernel.KernelError as error:
            raise explain(error, self._queue.path) from None

    def _check_exists(self, queue: Queue) -> None:
        """Mapped files stay readable after their directory is removed, so this must be checked each time."""
        path = queue.path
        try:
            config = read_config(path)
        except NotAQueueError:
            raise QueueMissingError(
                f"the queue {path} was removed while it was watched", "start again when it exists"
            ) from None
        if config.uuid != self._uuid:
            raise QueueMissingError(f"another queue is at {path} now", "start again to watch that one")

    def _read(self) -> Snapshot:
        found = each_station(self._queue, lambda station: (station.statistics(), station.consumers()))
        return Snapshot(
            path=str(self._queue.path),
            time_ns=time.time_ns(),
            at_s=time.monotonic(),
            queue=self._queue.statistics(),
            stations=in_order(statistics for statistics, _ in found),
            consumers=[consumer for _, consumers in found for consumer in consumers],
        )


def frames(reader: SnapshotReader, interval_s: float, pause: Pause) -> Iterator[Frame]:
    """A frame for each interval, without end; the first has no rates."""
    before = None
    while True:
        now = reader.read()
        yield frame_of(before, now)
        before = now
        pause(now.at_s + interval_s)


def _sleep_until(due_s: float) -> None:
    """BrokenPipeError if standard output is a pipe and its reader goes away meanwhile."""
    watcher = select.poll()
    with suppress(OSError):  # not a file at all
        if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            watcher.register(sys.stdout.fileno(), 0)
    if watcher.poll(max(0.0, due_s - time.monotonic()) * 1000):
        raise BrokenPipeError


def _print(frame: Frame, as_json: bool) -> None:
    if as_json:
        echo_json(msgspec.structs.replace(frame, feeds=[feed for feed in frame.feeds if feed.products_s]))
        return
    from rich.console import Console

    from headrace.cli.top.view import Canvas, draw

    console = Console()
    console.print(draw(frame, Canvas(console.width, None, console.options.ascii_only)))


def _show_live(reader: SnapshotReader, interval_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from headrace.cli.top.view import Canvas, draw

    console = Console()
    latest: list[Frame] = []
    with resizes() as resized, Live(console=console, screen=True, auto_refresh=False) as live:

        def show() -> None:
            width, height = console.size
            live.update(draw(latest[-1], Canvas(width, height, console.options.ascii_only)), refresh=True)

        for frame in frames(reader, interval_s, lambda due_s: redraw_until(due_s, resized, show)):
            latest[:] = [frame]
            show()


@contextmanager
def resizes() -> Iterator[int]:
    """A descriptor that becomes readable when the terminal has changed its size, until then or since the last read.

    The operating system may give the signal to any thread of the process, so no thread waits for it: its handler writes
    to a pipe.
    """
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    handler = signal.signal(signal.SIGWINCH, lambda number, frame: None)
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGWINCH, handler)
        os.close(reading)
        os.close(writing)


def redraw_until(due_s: float, resized: int, redraw: Callable[[], None]) -> None:
    """Until `due_s`, draw again each time the terminal changes its size."""
    watcher = select.poll()
    watcher.register(resized, select.POLLIN)
    while (left_s := due_s - time.monotonic()) > 0:
        if watcher.poll(left_s * 1000):
            os.read(resized, 4096)
            redraw()
