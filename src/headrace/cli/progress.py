"""A progress bar on standard error; none where standard error is no terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """How far something is; does nothing without a terminal."""

    def __init__(self, progress: "Progress | None", task: "TaskID | None") -> None:
        self._progress, self._task = progress, task

    def set(self, done: float, total: float | None = None) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


@contextmanager
def progress_bar(title: str, total: float | None = None, wanted: bool = True) -> Iterator[Bar]:
    """A bar that vanishes when it is done."""
    if not wanted or not sys.stderr.isatty():
        yield Bar(None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bar(progress, progress.add_task(title, total=total))
