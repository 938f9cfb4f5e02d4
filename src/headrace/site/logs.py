"""Logs: where a site writes its messages, and how many of one kind.

Messages are of one kind if their text before formatting is the same. Of each kind, at most `per_second` are written in
a second; the next one says how many were left out. So a flood of one message never hides the others.
"""

import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class RateLimit(logging.Filter):
    """Passes a few messages of each kind per second."""

    def __init__(self, per_second: float) -> None:
        super().__init__()
        self._per_second = per_second
        self._kinds: dict[tuple[str, str], tuple[float, float, int]] = {}  # allowance, when, left out

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = (record.name, str(record.msg)), time.monotonic()
        burst = max(1.0, self._per_second)
        allowance, then, left_out = self._kinds.get(kind, (burst, now, 0))
        allowance = min(burst, allowance + (now - then) * self._per_second)
        if allowance < 1:
            self._kinds[kind] = (allowance, now, left_out + 1)
            return False
        self._kinds[kind] = (allowance - 1, now, 0)
        if left_out:
            record.msg = f"{record.msg} ({left_out} more like this were left out)"
        return True


def is_logged_to(stream: IO[str]) -> bool:
    """Whether messages of level INFO go to the same file, pipe or terminal as this stream."""
    root = logging.getLogger("headrace")
    for handler in root.handlers:
        with suppress(OSError, ValueError):  # not a file
            if isinstance(handler, logging.StreamHandler) and root.isEnabledFor(logging.INFO):
                return os.path.sameopenfile(handler.stream.fileno(), stream.fileno())
    return False


def begin_logs(level: str, file: Path | None, per_second: float) -> logging.Handler:
    """Write the logs of Headrace to `file`, or to standard error."""
    handler: logging.Handler = logging.FileHandler(file) if file else logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter(_FORMAT, "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    handler.addFilter(RateLimit(per_second))
    root = logging.getLogger("headrace")
    before, root.handlers = root.handlers, [handler]
    for old in before:  # of the configuration before a reload
        old.close()
    root.setLevel(level.upper())
    root.propagate = False
    return handler
