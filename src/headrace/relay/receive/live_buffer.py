"""LiveBuffer: what has come live and was not looked at yet, bounded.

Zenoh's threads push, one thread of ours takes. While it is shut, and when it is full, whatever comes is dropped: the
log has it.
"""

import threading
from collections import deque
from dataclasses import dataclass

BYTES_MAX = 64 << 20
MESSAGES_MAX = 20_000
TAKEN_BYTES = 4 << 20  # at once, about


@dataclass(frozen=True, slots=True)
class Message:
    """A live page (with its feed), or a beat (without)."""

    feed: str | None
    attachment: bytes
    payload: bytes
    arrived_ns: int


class LiveBuffer:
    """`open`, `shut` and `take` by its owner; `push` by anybody."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._is_open = False
        self._changed = threading.Condition()
        self.dropped = 0

    @property
    def is_open(self) -> bool:
        return self._is_open

    def open(self) -> None:
        with self._changed:
            self._is_open = True

    def shut(self) -> None:
        """Forget everything, and take nothing more."""
        with self._changed:
            self._is_open = False
            self.dropped += len(self._messages)
            self._messages.clear()
            self._bytes = 0

    def push(self, message: Message) -> None:
        with self._changed:
            full = self._bytes + len(message.payload) > self._bytes_max or len(self._messages) >= MESSAGES_MAX
            if not self._is_open or full:
                self.dropped += 1
                return
            self._messages.append(message)
            self._bytes += len(message.payload)
            self._changed.notify()

    def take(self, timeout_s: float) -> list[Message]:
        """A beat, or the pages that have come before the next one; nothing if nothing comes."""
        with self._changed:
            if not self._messages:
                self._changed.wait(timeout_s)
            taken: list[Message] = []
            size = 0
            while self._messages and size < TAKEN_BYTES and not (taken and self._messages[0].feed is None):
                message = self._messages.popleft()
                taken.append(message)
                size += len(message.payload)
                if message.feed is None:
                    break
            self._bytes -= size
            return taken

    def wake(self) -> None:
        """Make a `take` that waits return."""
        with self._changed:
            self._changed.notify_all()
