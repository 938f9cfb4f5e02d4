"""Processes of a benchmark: spawned, ready before the clock starts, and ended afterwards.

Each child has one end of a pipe, and sends "ready" as soon as it can begin. If it dies, `recv` on the other end raises
EOFError instead of waiting forever. A Pool does the same with processes that it uses again, because a process takes a
second to start.
"""

import contextlib
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Self

from headrace.errors import HeadraceError

_ENDED, _END_S = "ended", 30.0


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
        _wait_until_ready([ours for ours, _ in pairs], ready_s)
        yield [ours for ours, _ in pairs]
    finally:
        for process in started:
            if process.pid is not None:
                process.join(10)
            if process.is_alive():
                process.kill()


class Pool:
    """Processes that run one function after the other. Use it by `with`."""

    def __init__(self) -> None:
        self._started, self._idle = contextlib.ExitStack(), list[Connection]()

    @contextlib.contextmanager
    def run(
        self, target: Callable[..., None], arguments: list[tuple[Any, ...]], ready_s: float = 60
    ) -> Iterator[list[Connection]]:
        """As `processes`, with those that are idle. Each function must have received all messages when it ends."""
        missing = len(arguments) - len(self._idle)
        if missing > 0:
            self._idle += self._started.enter_context(processes(_perform, [()] * missing, ready_s))
        pipes = [self._idle.pop() for _ in arguments]
        for pipe, more in zip(pipes, arguments, strict=True):
            pipe.send((target, more))
        _wait_until_ready(pipes, ready_s)
        yield pipes
        self._idle += [pipe for pipe in pipes if _has_ended(pipe)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._idle:
            pipe.send(None)
        self._started.close()


def _perform(parent: Connection) -> None:
    parent.send("ready")
    while (call := parent.recv()) is not None:
        target, arguments = call
        target(parent, *arguments)
        parent.send(_ENDED)


def _has_ended(pipe: Connection) -> bool:
    """Whether the function of a process has ended; whatever else it has sent is discarded."""
    try:
        while pipe.poll(_END_S):
            message = pipe.recv()
            if isinstance(message, str) and message == _ENDED:
                return True
    except EOFError:
        pass
    return False


def _wait_until_ready(pipes: list[Connection], ready_s: float) -> None:
    if not all(_is_ready(pipe, ready_s) for pipe in pipes):
        raise HeadraceError(
            f"a process of the benchmark ended, or was not ready after {ready_s:g} s",
            "its error is above, if it had one; otherwise run the benchmark when the machine is idle",
        )


def _is_ready(pipe: Connection, seconds: float) -> bool:
    try:
        return bool(pipe.poll(seconds) and pipe.recv() == "ready")
    except EOFError:
        return False
