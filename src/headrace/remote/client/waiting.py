"""How a call waits: in the thread of its caller, or in a task of an event loop.

Calls are written once, as coroutines that take a Wait:

    BLOCKING    blocks the thread wherever the coroutine waits. So the coroutine runs to its end at once (`finish`)
    AWAITING    suspends the task. A reply arrives on a thread of Zenoh's and completes a future of the event loop

No task has a thread: a thousand of them may wait on one Connection. Sending blocks while the link is full, so a
Connection sends for all its tasks in one thread (Sender), and the event loop goes on meanwhile. The same thread sends
large payloads for callers that block, because nobody can leave a send: the caller leaves the thread at its timeout.
"""

import queue as stdlib_queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

from headrace.guard import GuardedThread
from headrace.log.in_thread import in_thread
from headrace.remote.client.pending import PendingReply, RawReply, SlowReply

Result = TypeVar("Result")
Pending = TypeVar("Pending", bound=PendingReply)


class Sender:
    """One thread, from its first use on, that executes what it is given, in that order, until `close`.

    What it is given afterwards is executed by the caller: such a call finds its connection closed.
    """

    def __init__(self) -> None:
        self._acts: stdlib_queue.SimpleQueue[Callable[[], None] | None] = stdlib_queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished = 0
        self._thread: threading.Thread | None = None
        self._has_ended = False

    @property
    def is_busy(self) -> bool:
        """Whether it is sending: the link may be full."""
        return self._unfinished > 0

    def submit(self, act: Callable[[], Result]) -> "Future[Result]":
        """The future has what `act` returns or raises; `act` is not called if the future is cancelled before."""
        future: Future[Result] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                with suppress(RuntimeError):  # the event loop was closed meanwhile
                    try:
                        result = act()
                    except BaseException as error:  # noqa: BLE001 - for the task that awaits it
                        future.set_exception(error)
                    else:
                        future.set_result(result)
            with self._lock:
                self._unfinished -= 1

        with self._lock:
            self._unfinished += 1
            has_ended = self._has_ended
            if not has_ended:
                self._acts.put(run)
            if self._thread is None:
                self._thread = GuardedThread(self._run, "headrace-calls", until=lambda: self._has_ended, daemon=True)
                self._thread.start()
        if has_ended:
            run()
        return future

    def _run(self) -> None:
        while (act := self._acts.get()) is not None:
            act()
            del act  # it may hold the connection, whose end ends this thread
        with self._lock:
            self._has_ended = True
        while not self._acts.empty():  # what was given between the end and this moment
            act = self._acts.get()
            if act is not None:
                act()

    def close(self) -> None:
        """End the thread after what it was given. Takes no lock: the garbage collector may call this."""
        self._acts.put(None)


class Wait(Protocol):
    """The ways to wait."""

    @property
    def is_async(self) -> bool: ...
    async def start(self, sender: Sender, send: Callable[[], Pending]) -> Pending:
        """Send a call."""
        ...

    async def sent(self, sending: "Future[Pending]", limit_s: float | None) -> Pending | None:
        """A call that the Sender sends; None if the link was full for so long: the call is then abandoned."""
        ...

    async def take(self, pending: PendingReply) -> RawReply | None:
        """The reply; None if none arrives."""
        ...

    async def has_ended(self, pending: SlowReply, within_s: float | None) -> bool:
        """Whether there is a reply, or will be none."""
        ...

    async def pause(self, closed: threading.Event, seconds: float) -> None: ...


class _Blocking:
    is_async = False

    async def start(self, sender: Sender, send: Callable[[], Pending]) -> Pending:
        return send()

    async def sent(self, sending: "Future[Pending]", limit_s: float | None) -> Pending | None:
        try:
            return sending.result(limit_s)
        except TimeoutError:
            _abandon(sending)
            return None

    async def take(self, pending: PendingReply) -> RawReply | None:
        return pending.take()

    async def has_ended(self, pending: SlowReply, within_s: float | None) -> bool:
        return pending.has_ended(within_s)

    async def pause(self, closed: threading.Event, seconds: float) -> None:
        closed.wait(seconds)


class _Awaiting:
    """`asyncio` is imported where it is used: it is slow to load, and loaded already where these run."""

    is_async = True

    async def start(self, sender: Sender, send: Callable[[], Pending]) -> Pending:
        import asyncio

        return await asyncio.wrap_future(sender.submit(send))

    async def sent(self, sending: "Future[Pending]", limit_s: float | None) -> Pending | None:
        import asyncio

        try:
            return await asyncio.wait_for(asyncio.wrap_future(sending), limit_s)
        except TimeoutError:
            _abandon(sending)
            return None

    async def take(self, pending: PendingReply) -> RawReply | None:
        if not isinstance(pending, SlowReply):  # a thread has sent it, and left it to this task
            return await in_thread(pending.take, "reply")
        await self.has_ended(pending, None)
        return pending.take()

    async def has_ended(self, pending: SlowReply, within_s: float | None) -> bool:
        import asyncio

        if pending.ended.done():
            return True
        done, _ = await asyncio.wait([asyncio.wrap_future(pending.ended)], timeout=within_s)
        return bool(done)

    async def pause(self, closed: threading.Event, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)


def _abandon(sending: "Future[Pending]") -> None:
    """Do not send it; if it is being sent, nobody waits for its reply."""
    if not sending.cancel():
        sending.add_done_callback(lambda sent: None if sent.exception() else sent.result().cancel())


BLOCKING: Wait = _Blocking()
AWAITING: Wait = _Awaiting()


def finish(call: Coroutine[Any, Any, Result]) -> Result:
    """Run a call that was given BLOCKING."""
    try:
        call.send(None)
    except StopIteration as end:
        return cast(Result, end.value)
    raise AssertionError("a call that blocks has awaited something")
