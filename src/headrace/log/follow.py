"""Follow: batches from a queue as they arrive, for `for` and `async for`.

It sleeps in the kernel until a writer wakes it, and does not poll. Iteration ends after `timeout` seconds without a
product that matches the selection; without a timeout it never ends. Empty batches are left out, except those that
report a lost range.

A follower that starts at a time in the future is inactive until then: it sleeps, whatever is put.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Protocol

from headrace.errors import StartAheadError
from headrace.kernel import _kernel as kernel
from headrace.log.in_thread import in_thread
from headrace.product.batch import Batch

_NEVER = 1 << 62  # a sequence that no queue has yet


class AnyFollower(Protocol):
    """Batches as they arrive, for `for` and `async for`; `Queue.follow` and `Cursor.follow` make one."""

    position: int

    def __iter__(self) -> Iterator[Batch]: ...
    def __next__(self) -> Batch: ...
    def __aiter__(self) -> AsyncIterator[Batch]: ...
    def next_nowait(self) -> Batch | None: ...
    def wait(self, timeout_s: float) -> None: ...
    def stop(self) -> None: ...
    async def __aenter__(self) -> "AnyFollower": ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Follower:
    """An endless read; made by `Queue.follow` and `Cursor.follow`."""

    def __init__(
        self, log: kernel.Log, read: Callable[[int], Batch], check: Callable[[], None], start: int,
        timeout_s: float | None, find_start: Callable[[], int] | None = None,
    ) -> None:  # fmt: skip
        """`check` raises if the queue can no longer be used; it is called after each sleep, of a second at most.

        `find_start` is the position, or raises StartAheadError: until it returns, the follower is inactive.
        """
        self._log, self._read, self._check, self._timeout_s = log, read, check, timeout_s
        self._find_start = find_start
        self._stopped = False
        self.position = start  # where the next batch begins

    def stop(self) -> None:
        """End the iteration from another thread; it wakes up at once."""
        self._stopped = True
        self._log.wake_all()

    def next_nowait(self) -> Batch | None:
        """The next batch if there is one already."""
        if self._find_start is not None and self._inactive_s():
            self._check()
            return None
        if self.position >= self._log.head:
            self._check()
            return None
        batch = self._read(self.position)
        self.position = batch.next
        return batch if len(batch) or batch.lost else None

    def wait(self, timeout_s: float) -> None:
        """Sleep until there is something to read, another thread calls `stop`, or the timeout passes."""
        inactive_s = self._inactive_s()
        if inactive_s:
            self._log.wait_once(_NEVER, min(timeout_s, inactive_s))
        elif not self._stopped and self.position >= self._log.head:
            self._log.wait_once(self.position, timeout_s)

    def _inactive_s(self) -> float:
        """How long until it becomes active; 0.0: it is."""
        if self._find_start is None:
            return 0.0
        try:
            self.position, self._find_start = self._find_start(), None
        except StartAheadError as error:
            return max(error.ahead_s, 0.001)
        return 0.0

    def _wait(self, deadline: float | None) -> bool:
        """Sleep until there is something to read; False if the iteration has to end."""
        if self._stopped:
            return False
        left = -1.0 if deadline is None else deadline - time.monotonic()
        if deadline is not None and left <= 0:
            return False
        self._log.wait_once(self.position, left)
        return True

    def __iter__(self) -> Iterator[Batch]:
        """The follower itself: after a `break`, another loop goes on with the batch after the last one.

        Nothing is acknowledged or saved. For a position that survives the program, commit to a cursor.
        """
        return self

    def __next__(self) -> Batch:
        while self._find_start is not None and not self._stopped and (inactive_s := self._inactive_s()):
            self._check()
            self._log.wait_once(_NEVER, inactive_s)
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while not self._stopped:
            batch = self.next_nowait()
            if batch is not None:
                return batch
            if self.position >= self._log.head and not self._wait(deadline):
                break
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[Batch]:
        """As `__iter__`; the sleep is in a thread of its own, which ends with the iteration.

        A `break` stops the follower: for the rest, follow again at its `position`.
        """
        return iterate_async(self)

    async def __aenter__(self) -> "Follower":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Stoppable(Iterator[Batch], Protocol):
    """What `iterate_async` takes: any follower, local or remote."""

    def stop(self) -> None: ...


async def iterate_async(follower: Stoppable) -> AsyncIterator[Batch]:
    """The batches of a follower, whose waiting happens in a thread of its own."""
    try:
        while (batch := await in_thread(lambda: next(follower, None), "follow")) is not None:
            yield batch
    finally:
        follower.stop()  # the event loop goes on while the thread ends
