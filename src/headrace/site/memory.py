"""Memory: gives back to the operating system what the allocator keeps after a burst.

Messages of many sizes, allocated and freed by many threads, leave free memory in every heap of the C library, which
keeps it for later. After a burst of large messages a site would hold the memory of its peak for good, and nobody could
tell that from a leak. So its watch looks once a second, and has the library trim its heaps when the site has grown
much since the last time. Trimming takes some milliseconds, so it happens once a minute at most.
"""

import ctypes
import os
from collections.abc import Callable

GROWTH_BYTES = 32 << 20  # since the last trim
PAUSE_S = 60.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def anonymous_bytes() -> int:
    """The memory of this process that is in no file: resident pages without the shared ones."""
    with open("/proc/self/statm", "rb") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    return (resident - shared) * _PAGE_BYTES


def trim_heaps() -> None:
    """Give free memory back, if the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


class MemoryWatch:
    """`look` is called now and then, with monotonic seconds."""

    def __init__(self, used: Callable[[], int] = anonymous_bytes, trim: Callable[[], None] = trim_heaps) -> None:
        self._used, self._trim = used, trim
        self._kept = used()
        self._trimmed = 0.0

    def look(self, now: float) -> None:
        if now - self._trimmed >= PAUSE_S and self._used() >= self._kept + GROWTH_BYTES:
            self._trim()
            self._kept, self._trimmed = self._used(), now
