"""LiveBuffer: what has come live and was not looked at yet, bounded.

Zenoh's threads push, one thread of ours pops. While it is shut, and when it is full, whatever comes is dropped: the log
has it.
"""

import threading
from collections import deque
from dataclasses import dataclass

BYTES_MAX = 64 << 20
MESSAGES_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Message:
    """A live page (with its feed), or a beat (without)."""

    feed: str | None
    attachment: bytes
    payload: bytes
    arrived_ns: int


class LiveBuffer:
    """`open`, `shut` and `pop` by its owner; `push` by anybody."""

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

    def pop(self, timeout_s: float) -> Message | None:
        with self._changed:
            if not self._messages:
                self._changed.wait(timeout_s)
            if not self._messages:
                return None
            message = self._messages.popleft()
            self._bytes -= len(message.payload)
            return message

    def wake(self) -> None:
        """Make a `pop` that waits return."""
        with self._changed:
            self._changed.notify_all()
