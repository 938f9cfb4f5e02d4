"""Logs: where a site writes its messages, and in what form.

A message is one line, whatever is in it: text from other sites and from payloads is made visible (headrace.text), and
bounded. The lines of a traceback follow, indented, so that none of them can be taken for a message. Each source writes
a few messages per second (log_limit.py). Errors that no code expected, in any thread, are messages as well: the
interpreter alone would write them to standard error as they are, as often as they come.
"""

import atexit
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from headrace.guard import GuardedThread
from headrace.site.log_limit import RateLimit, raised_at
from headrace.text import visible, visible_lines
from headrace.units import format_count

_SUMMARY_S = 60.0
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MESSAGE_MAX = 2000  # characters
_TRACE_LINES_MAX = 60
_TRACE_LINE_MAX = 300  # characters

log = logging.getLogger("headrace.site")


class VisibleFormatter(logging.Formatter):
    """One line for each message, and indented ones for its traceback."""

    def __init__(self, form: str = _FORMAT) -> None:
        super().__init__(form, "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        record.message, record.asctime = record.getMessage(), self.formatTime(record, self.datefmt)
        lines = [visible(self.formatMessage(record), _MESSAGE_MAX)]
        traces = [self.formatException(record.exc_info)] if record.exc_info else []
        for trace in (*traces, *filter(None, [record.stack_info])):
            lines += [f"    {line}" for line in visible_lines(trace, _TRACE_LINES_MAX, _TRACE_LINE_MAX)]
        return "\n".join(lines)


class _Unwritten(logging.Handler):
    """Counts what cannot be written, such as to a full disk, instead of writing tracebacks to standard error."""

    unwritten = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is that of the library
        self.unwritten += 1


class _ToFile(_Unwritten, logging.FileHandler):
    pass


class _ToStream(_Unwritten, logging.StreamHandler[IO[str]]):
    pass


def _summarise(handler: _Unwritten, limit: RateLimit) -> None:
    for summary in limit.summaries():
        handler.handle(summary)
    unwritten, handler.unwritten = handler.unwritten, 0
    if unwritten:
        log.error("%s could not be written", format_count(unwritten, "message"))


def _summarise_regularly(handler: _Unwritten, limit: RateLimit) -> None:
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
    handler = _ToFile(file, encoding="utf-8", errors="backslashreplace") if file else _ToStream(sys.stderr)
    handler.setFormatter(VisibleFormatter())
    limit = RateLimit(per_second)
    handler.addFilter(limit)
    root = logging.getLogger("headrace")
    before, root.handlers = root.handlers, [handler]
    for old in before:  # of the configuration before a reload
        for each in old.filters:
            if isinstance(each, RateLimit) and isinstance(old, _Unwritten):
                _summarise(old, each)
        old.close()
    atexit.register(_summarise, handler, limit)
    GuardedThread(
        _summarise_regularly,
        "headrace-logs",
        args=(handler, limit),
        until=lambda: handler not in root.handlers,
        daemon=True,
    ).start()
    root.setLevel(level.upper())
    root.propagate = False
    return handler


# --- errors that no code expected -----------------------------------------------------------------


def log_stray_errors() -> None:
    """From now on, errors that end a thread or come out of a callback are messages of the log, as warnings are.

    Zenoh logs the errors of callbacks by itself, to a logger of its own.
    """
    sys.excepthook = _end_with
    threading.excepthook = _thread_ended
    sys.unraisablehook = _unraisable
    logging.captureWarnings(True)
    for name in ("zenoh", "py.warnings"):
        logging.getLogger(name).parent = logging.getLogger("headrace")


def _end_with(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    log.error("%s: unexpected error", raised_at(error), exc_info=(kind, error, trace))


def _thread_ended(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None:
        name = told.thread.name if told.thread else "unknown"
        trace = (told.exc_type, told.exc_value, told.exc_traceback)
        log.error("%s: unexpected error; thread %s has ended", raised_at(told.exc_value), name, exc_info=trace)


def _unraisable(told: "sys.UnraisableHookArgs") -> None:
    if told.exc_value is not None:
        trace = (told.exc_type, told.exc_value, told.exc_traceback)
        log.error("%s: unexpected error, ignored", raised_at(told.exc_value), exc_info=trace)
