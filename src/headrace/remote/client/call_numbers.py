"""CallNumbers: by what number a site recognises a call that is repeated.

A call that must not be executed twice has a number. The site remembers the reply of each number until the client says
that it will not be repeated, which each later call does (`oldest`). `Get` has numbers, too, which the site remembers
until the next Get of that consumer.
"""

import threading
from collections import deque

_PARKED_SPAN = 256  # calls for which a parked one is remembered; a site remembers 1,024 of one client


class CallNumbers:
    """Of one client. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._open: dict[int, None] = {}  # calls that may be repeated, the oldest first
        self._ended: deque[int] = deque()  # those of them that will not be repeated
        self._parked: set[int] = set()  # those that are under way no longer, and may be repeated later

    def begin(self) -> int:
        """A number for a call that must not be executed twice; it is remembered until `end`."""
        with self._lock:
            self._last += 1
            self._open[self._last] = None
            return self._last

    def begin_get(self) -> int:
        """A number for a Get, which the site remembers until the next Get."""
        with self._lock:
            self._last += 1
            return self._last

    def end(self, number: int) -> None:
        """The call has its reply, or will not be repeated. Takes no lock: the garbage collector may call this."""
        self._ended.append(number)

    def park(self, number: int) -> None:
        """The call has no reply, and may be repeated later: the site remembers it until many others were made."""
        with self._lock:
            self._parked.add(number)

    def resume(self, number: int) -> int:
        """The number of a parked call that is repeated now; 0 if too many others were made since."""
        with self._lock:
            self._parked.discard(number)
            return number if number in self._open else 0

    def oldest(self) -> int:
        """The oldest number that may be repeated; the site forgets those before it."""
        with self._lock:
            while self._ended:
                self._open.pop(self._ended.popleft(), None)
            for parked in [each for each in self._parked if each < self._last - _PARKED_SPAN]:
                self._parked.discard(parked)
                self._open.pop(parked, None)
            return next(iter(self._open), self._last + 1)
