"""Readers: what users from elsewhere read at this moment, for those who want to know whether anybody wants a feed."""

import threading
import time

from headrace.errors import SelectionError
from headrace.selection import Selection

READ_S = 30.0  # who follows asks again much sooner
SELECTIONS_MAX = 1000
_EVERYTHING = "**"


class Readers:
    """Of one site. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}  # by the text of a selection

    def __len__(self) -> int:
        return len(self._last)

    def note(self, selection: str) -> None:
        """Somebody reads what this selection wants."""
        now = time.monotonic()
        with self._lock:
            if len(self._last) > SELECTIONS_MAX:
                self._last = {text: then for text, then in self._last.items() if now - then < READ_S}
            if len(self._last) <= SELECTIONS_MAX or selection in self._last:
                self._last[selection] = now

    def patterns(self) -> set[str]:
        """The feeds that somebody has read just now; all of them, if those are too many to tell."""
        now = time.monotonic()
        with self._lock:
            recent = [text for text, then in self._last.items() if now - then < READ_S]
        return {_feeds(text) for text in recent} if len(recent) <= SELECTIONS_MAX else {_EVERYTHING}


def _feeds(selection: str) -> str:
    try:
        return Selection.parse(selection).feed or _EVERYTHING
    except SelectionError:  # it was refused, too
        return _EVERYTHING
