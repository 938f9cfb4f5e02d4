"""PageSize: how many bytes of products a client asks for at once when it reads.

A site gives up a link that is full for several seconds, because a thread waits for it. A page that takes longer would
never arrive, however often it is called for. So a page is as large as the link carries in about a second: the first
ones are small, and they grow while they arrive quickly. Gets of consumers are limited by the site, which knows how long
their products took (remote/server/consumer.py). A product that is larger than a page comes in parts of that size, and a
put that is larger than the link carries in about a second goes in parts (puts.py).
"""

from headrace.remote.protocol.fields import PAGE_BYTES_MAX

FIRST_BYTES = 1 << 20
FIRST_PART_BYTES = 1 << 18
_BYTES_MIN = 1 << 16
_QUICK_S, _SLOW_S = 0.5, 2.0


class PageSize:
    """Of one connection. Threads may share it: what they note by turns is an estimate anyway."""

    def __init__(self, first_bytes: int = FIRST_BYTES) -> None:
        self.bytes = first_bytes

    def note(self, payload_bytes: int, took_s: float) -> None:
        """A page has arrived. A small one tells nothing: the call may have waited for products."""
        if took_s > _SLOW_S and payload_bytes * 2 >= self.bytes:
            self.bytes = max(_BYTES_MIN, self.bytes // 2)
        elif took_s < _QUICK_S and payload_bytes >= self.bytes:
            self.bytes = min(PAGE_BYTES_MAX, self.bytes * 2)
