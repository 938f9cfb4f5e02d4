"""Pace: how much to ask a site's log for at once, over the link that there happens to be.

About half a second's worth. An answer that came sooner makes the next question ask for more, one that took longer for
less. So on a slow link no page keeps everything else waiting, and none is still on its way when the one who asked has
given up; on a fast link little time is spent on asking.
"""

from headrace.relay.question import Read

PAGES = 16  # in one answer
PRODUCTS = 20_000  # in one page
PAGE_BYTES = 4 << 20
_FIRST_BYTES = 256 << 10
_LEAST_BYTES = 16 << 10
_MOST_BYTES = PAGES * PAGE_BYTES
_AIM_S = 0.5
_PATIENCE_S, _PATIENCE_S_MAX = 10.0, 600.0  # a single product may be large, and its link slow


class Pace:
    """Of one who asks one site."""

    def __init__(self) -> None:
        self._bytes = _FIRST_BYTES
        self.patience_s = _PATIENCE_S  # how long to wait for a whole answer

    def question(self, selection: str, after: int) -> Read:
        pages = -(-self._bytes // PAGE_BYTES)
        return Read(selection, after, pages, PRODUCTS, min(self._bytes, PAGE_BYTES))

    def answered(self, size: int, seconds: float) -> None:
        """The whole answer had `size` bytes. A small one says nothing about a large one."""
        self.patience_s = _PATIENCE_S
        if seconds > 2 * _AIM_S:
            self._bytes = max(_LEAST_BYTES, int(self._bytes * _AIM_S / seconds))
        elif seconds < _AIM_S and size >= self._bytes // 2:
            self._bytes = min(_MOST_BYTES, 2 * self._bytes)

    def gave_up(self) -> None:
        """No whole answer came in time."""
        self.patience_s = min(_PATIENCE_S_MAX, 2 * self.patience_s)
        self._bytes = max(_LEAST_BYTES, self._bytes // 8)
