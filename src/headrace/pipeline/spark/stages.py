"""Stages: what a start of Spark is doing, for a person who waits several seconds for it.

On a terminal, a line with a spinner, which disappears in the end. Elsewhere nothing: `headrace pipeline run` and other
commands write lines of their own.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Stage = Callable[[str], None]  # called with what begins now


@contextmanager
def shown_stages() -> Iterator[Stage]:
    """Show the stages that are announced inside this context, on standard error if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.console import Console

    with Console(stderr=True).status("Spark") as line:
        yield lambda stage: line.update(f"Spark: {stage}")
