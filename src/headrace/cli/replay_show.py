"""How far a replay is: a bar on a terminal, or a line of JSON each second.

The bar is on standard error and shows the part of the window that is done, the time in the stream, the speed, products
per second, and by how much the target is late. JSON lines are on standard output, and the last one is the result.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headrace.cli.output import echo_json
from headrace.cli.replay_control import progress_values
from headrace.guard import OnceThread
from headrace.product.product import utc
from headrace.timing.replay.spacing import speed_text
from headrace.units import format_count, format_latency

if TYPE_CHECKING:
    from rich.progress import Task

    from headrace.timing.replay import Replay

_LATE_S = 0.5  # less is not worth a word
_EACH_S = 1.0
_BAR_WIDTH = 24


@contextmanager
def shown(replay: "Replay", *, as_json: bool, bar: bool) -> Iterator[None]:
    """Show the progress until the end of the block."""
    if as_json:
        with _lines(replay):
            yield
    elif bar and sys.stderr.isatty():
        with _bar(replay):
            yield
    else:
        yield


@contextmanager
def _lines(replay: "Replay") -> Iterator[None]:
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(_EACH_S):
            echo_json({"progress": progress_values(replay)})

    thread = OnceThread(tell, "headrace-progress")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _bar(replay: "Replay") -> Iterator[None]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn
    from rich.table import Column
    from rich.text import Text

    class State(ProgressColumn):
        """What the replay does at this moment; it is asked whenever the bar is drawn."""

        def __init__(self) -> None:
            super().__init__(Column(no_wrap=True))
            self._rate = Rate()

        def render(self, task: "Task") -> Text:
            return Text(state_text(replay, self._rate))

    class Done(BarColumn):
        def render(self, task: "Task") -> Any:
            task.completed = replay.progress().fraction or 0.0
            return super().render(task)

    columns = (Done(bar_width=_BAR_WIDTH), State())
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as progress:
        progress.add_task("replay", total=1.0)
        yield


class Rate:
    """Products per second over the last second or so."""

    def __init__(self) -> None:
        self._then, self._products, self._rate = time.monotonic(), 0, 0.0

    def per_s(self, products: int) -> float:
        now = time.monotonic()
        if now - self._then >= _EACH_S:
            self._rate = max(0, products - self._products) / (now - self._then)
            self._then, self._products = now, products
        return self._rate


def state_text(replay: "Replay", rate: Rate) -> str:
    """`2026-11-18 06:12:07  10x  1,204 products  120/s  paused`."""
    now = replay.progress()
    words = [f"{utc(now.time_ns):%Y-%m-%d %H:%M:%S}" if now.time_ns else "…", speed_text(now.speed)]
    words += [format_count(now.products, "product"), f"{rate.per_s(now.products):,.0f}/s"]
    if now.is_paused:
        words.append("paused")
    elif now.is_live:
        words.append("live")
    elif now.behind_s > _LATE_S:
        words.append(f"{format_latency(now.behind_s)} late")
    if now.lost:
        words.append(f"{now.lost:,} lost")
    return "  ".join(words)
