"""Processes of a benchmark: spawned, ready before the clock starts, and ended afterwards."""

import contextlib
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any


@contextlib.contextmanager
def processes(
    target: Callable[..., None], arguments: list[tuple[Any, ...]], ready_s: float = 60
) -> Iterator[list[Connection]]:
    """Spawned processes that have sent "ready"; those that do not end by themselves are killed at the end."""
    context = get_context("spawn")
    pairs = [context.Pipe() for _ in arguments]
    started = [context.Process(target=target, args=(theirs, *more), daemon=True)
               for (_, theirs), more in zip(pairs, arguments, strict=True)]  # fmt: skip
    try:
        for process in started:
            process.start()
        for ours, _ in pairs:
            if not ours.poll(ready_s) or ours.recv() != "ready":
                raise RuntimeError("a process of the benchmark did not start")
        yield [ours for ours, _ in pairs]
    finally:
        for process in started:
            process.join(10)
            if process.is_alive():
                process.kill()
