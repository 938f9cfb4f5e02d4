"""LiveBuffer: live messages that wait for the upstream, bounded.

Zenoh's threads push; one thread of ours at a time takes, and is woken if it found nothing before. While the buffer is
shut, and when it is full, messages are dropped: the log has them. The caller gives the counts of dropped messages, by
reason (counts.py), and reads them as it likes.
"""

import threading
from collections import deque
from collections.abc import Callable

from headrace.relay.receive.actions import LiveMessage
from headrace.relay.receive.counts import Dropped, nothing_dropped

BYTES_MAX = 64 << 20  # of one upstream
TOGETHER_BYTES_MAX = 128 << 20  # of all upstreams of a receiver
MESSAGES_MAX = 20_000
TAKEN_BYTES = 4 << 20  # at once, about


class LiveBudget:
    """The bytes that the live buffers of one receiver may still take; threads share it."""

    def __init__(self, bytes_max: int = TOGETHER_BYTES_MAX) -> None:
        self._lock, self._left = threading.Lock(), bytes_max

    def take(self, size: int) -> bool:
        """Whether there is so much left; then it is taken."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._left += size


class LiveBuffer:
    """Its owner calls `open`, `shut` and `take`; any thread may call `push`."""

    def __init__(
        self, dropped: dict[Dropped, int] | None = None, budget: LiveBudget | None = None, bytes_max: int = BYTES_MAX,
        wake: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """`wake` is called on the thread that pushes, if the last `take` found nothing."""
        self._bytes_max, self._budget = bytes_max, budget or LiveBudget()
        self._messages: deque[LiveMessage] = deque()
        self._bytes = 0
        self._is_open = self._is_awaited = False
        self._lock, self._wake = threading.Lock(), wake
        self.dropped = nothing_dropped() if dropped is None else dropped

    def open(self) -> None:
        """Keep messages from now on."""
        with self._lock:
            self._is_open = True

    def shut(self) -> None:
        """Forget the messages that wait, and drop further ones."""
        with self._lock:
            self._is_open = False
            self.dropped["catching up"] += len(self._messages)
            self._messages.clear()
            self._budget.give_back(self._bytes)
            self._bytes = 0

    def push(self, message: LiveMessage) -> None:
        size = len(message.attachment) + len(message.payload)
        with self._lock:
            full = self._bytes + size > self._bytes_max or len(self._messages) >= MESSAGES_MAX
            if not self._is_open or full or not self._budget.take(size):
                self.dropped["full" if self._is_open else "catching up"] += 1
                return
            self._messages.append(message)
            self._bytes += size
            is_awaited, self._is_awaited = self._is_awaited, False
        if is_awaited and self._wake is not None:
            self._wake()

    def take(self) -> list[LiveMessage]:
        """One beat, or the pages that have come before the next beat; empty if nothing has come."""
        with self._lock:
            self._is_awaited = not self._messages
            taken: list[LiveMessage] = []
            size = 0
            while self._messages and size < TAKEN_BYTES and not (taken and self._messages[0].feed is None):
                message = self._messages.popleft()
                taken.append(message)
                size += len(message.attachment) + len(message.payload)
                if message.feed is None:
                    break
            self._bytes -= size
            self._budget.give_back(size)
            return taken
