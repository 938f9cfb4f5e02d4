"""In a thread: what an event loop must not wait for, for `put_async`, `get_async`, `async for` and `async with`.

Each wait has a thread of its own, so that a hundred tasks may wait without a pool that is full. The threads are
daemons: a program whose event loop was dropped ends, and what a thread held is treated as after a crash (leases are
restored, and a product is stored completely or not at all).

Not here: what waits. Functions come from the queue, the consumer or the follower, local or remote.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from headrace.errors import BlockedError
from headrace.guard import OnceThread
from headrace.log.seams import Timeout
from headrace.units import parse_age

ATTEMPT_S = 1.0  # of a put that waits: how soon its thread notices that the task was cancelled
Result = TypeVar("Result")


def started(function: Callable[[], Result], name: str) -> "Future[Result]":
    """Call the function in a thread of its own; the future has what it returns or raises."""
    future: Future[Result] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        with suppress(RuntimeError):  # the event loop was closed meanwhile: nobody is left to hear of it
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - belongs to the task that awaits it
                future.set_exception(error)
            else:
                future.set_result(result)

    OnceThread(run, f"headrace-{name}").start()
    return future


async def in_thread(function: Callable[[], Result], name: str) -> Result:
    """Await what the function returns. If the task is cancelled, the function goes on without it."""
    import asyncio  # slow to load, and loaded already where this runs

    return await asyncio.wrap_future(started(function, name))


async def cancellable(function: "Callable[[threading.Event], Result]", name: str) -> Result:
    """As `in_thread`, for a function that looks at an event: it is set if the task is cancelled."""
    import asyncio

    cancelled = threading.Event()
    try:
        return await asyncio.wrap_future(started(lambda: function(cancelled), name))
    except asyncio.CancelledError:
        cancelled.set()
        raise


async def put_in_thread(put: Callable[[float], Result], timeout: Timeout) -> Result:
    """Await a put that may wait for a blocking station; `put` takes a timeout in seconds.

    It is tried with short timeouts, so that a cancelled task leaves no put that waits without end. Each attempt stores
    everything or nothing. One that is under way when the task is cancelled may still succeed, within ATTEMPT_S.
    """
    seconds = None if timeout is None else parse_age(timeout, "timeout")
    deadline = None if seconds is None else time.monotonic() + seconds

    def attempts(cancelled: threading.Event) -> Result:
        while True:
            left = ATTEMPT_S if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                return put(min(left, ATTEMPT_S))
            except BlockedError:
                if cancelled.is_set() or (deadline is not None and left <= ATTEMPT_S):
                    raise

    return await cancellable(attempts, "put")
