"""Processes of a benchmark: spawned, ready before the clock starts, and ended afterwards.

Each child has one end of a pipe, and sends "ready" as soon as it can begin. If it dies, `recv` on the other end raises
EOFError instead of waiting forever.
"""

import contextlib
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from headrace.errors import HeadraceError


@contextlib.contextmanager
def processes(
    target: Callable[..., None], arguments: list[tuple[Any, ...]], ready_s: float = 60
) -> Iterator[list[Connection]]:
    """Spawn a process for each tuple of arguments, and yield their pipes once all have sent "ready".

    Processes that do not end by themselves are killed at the end. HeadraceError: a process is not ready in time.
    """
    context = get_context("spawn")
    pairs = [context.Pipe() for _ in arguments]
    started = [context.Process(target=target, args=(theirs, *more), daemon=True)
               for (_, theirs), more in zip(pairs, arguments, strict=True)]  # fmt: skip
    try:
        for process, (_, theirs) in zip(started, pairs, strict=True):
            process.start()
            theirs.close()  # only the child holds it now, so that its death closes the pipe
        for ours, _ in pairs:
            if not _is_ready(ours, ready_s):
                raise HeadraceError(
                    f"a process of the benchmark ended, or was not ready after {ready_s:g} s",
                    "its error is above, if it had one; otherwise run the benchmark when the machine is idle",
                )
        yield [ours for ours, _ in pairs]
    finally:
        for process in started:
            if process.pid is not None:
                process.join(10)
            if process.is_alive():
                process.kill()


def _is_ready(pipe: Connection, seconds: float) -> bool:
    try:
        return bool(pipe.poll(seconds) and pipe.recv() == "ready")
    except EOFError:
        return False
