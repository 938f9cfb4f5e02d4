"""Logs: where a site writes its messages, and how many of one kind.

Messages are of one kind if their text before formatting is the same. Of each kind, at most `per_second` are written in
a second; the next one says how many were left out. So a flood of one message never hides the others. If there is no
next one, a line says so within a minute, and at the end of the process.
"""

import atexit
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

_SUMMARY_S = 60.0
_IS_SUMMARY = "is_summary"
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


_Kind = tuple[str, str]  # the logger, and the text before formatting


class RateLimit(logging.Filter):
    """Passes a few messages of each kind per second."""

    def __init__(self, per_second: float) -> None:
        super().__init__()
        self._per_second = per_second
        self._kinds: dict[_Kind, tuple[float, float]] = {}  # allowance, when
        self._left_out: dict[_Kind, tuple[int, logging.LogRecord]] = {}  # how many since the last that passed; the last
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, _IS_SUMMARY, False):
            return True
        kind, now = (record.name, str(record.msg)), time.monotonic()
        burst = max(1.0, self._per_second)
        with self._lock:
            allowance, then = self._kinds.get(kind, (burst, now))
            allowance = min(burst, allowance + (now - then) * self._per_second)
            passes = allowance >= 1
            self._kinds[kind] = (allowance - 1 if passes else allowance, now)
            left_out, _ = self._left_out.pop(kind, (0, record))
            if not passes:
                self._left_out[kind] = (left_out + 1, record)
        if passes and left_out:
            record.msg = f"{record.msg} ({left_out} more like this were left out)"
        return passes

    def summaries(self) -> list[logging.LogRecord]:
        """One line for each kind of which messages were left out and none has passed since. They pass this filter."""
        with self._lock:
            left_out, self._left_out = self._left_out, {}
        return [_summary(count, last) for count, last in left_out.values()]


def _summary(count: int, last: logging.LogRecord) -> logging.LogRecord:
    values = {
        "name": last.name, "levelno": last.levelno, "levelname": last.levelname, _IS_SUMMARY: True,
        "msg": "%d more of these in the last minute; the last one: %s", "args": (count, last.getMessage()),
    }  # fmt: skip
    return logging.makeLogRecord(values)


def _summarise(handler: logging.Handler, limit: RateLimit) -> None:
    for summary in limit.summaries():
        handler.handle(summary)


def _summarise_regularly(handler: logging.Handler, limit: RateLimit) -> None:
    """Until the configuration has been reloaded, and another handler is used."""
    while handler in logging.getLogger("headrace").handlers:
        time.sleep(_SUMMARY_S)
        _summarise(handler, limit)


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
    limit = RateLimit(per_second)
    handler.addFilter(limit)
    root = logging.getLogger("headrace")
    before, root.handlers = root.handlers, [handler]
    for old in before:  # of the configuration before a reload
        for each in old.filters:
            if isinstance(each, RateLimit):
                _summarise(old, each)
        old.close()
    atexit.register(_summarise, handler, limit)
    threading.Thread(target=_summarise_regularly, args=(handler, limit), name="headrace-logs", daemon=True).start()
    root.setLevel(level.upper())
    root.propagate = False
    return handler
