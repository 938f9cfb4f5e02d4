"""How much one source may write into the log of a site: the filter that bounds it, and counts what it left out.

A source is a line of the program that logs, and what it logs about: the text before formatting and its first argument,
which names the peer, the feed or the function; without one, where the error of its traceback was raised. Each source
writes at most `per_second` messages in a second, traceback and all; all sources of one line of the program together at
most ten times as many. So a flood from one peer hides neither the messages about others nor those of other lines, and
names that a peer makes up do not multiply what it may write. The number of sources that are told apart is bounded,
too; those beyond are counted with their line.

The next message of a source says how many were left out. If there is no next one, `summaries` has a line for it.
"""

import logging
import threading
import time
from collections import OrderedDict
from pathlib import Path

from headrace.text import visible

_SOURCES_MAX = 1000  # that are told apart
_LINE_SHARE = 10  # what all sources of one line of the program may write, in shares of one source
_SUBJECT_MAX = 200  # characters that tell sources apart
_LAST_MAX = 300  # characters that are kept of the last message left out
_IS_SUMMARY = "is_summary"

Line = tuple[str, str, int]  # the logger, the file, and the number of the line
Source = tuple[Line, str, str]  # the line, the text before formatting, the subject


class _Allowance:
    """What one source may still write, and what of it was left out."""

    __slots__ = ("last", "left", "left_out", "per_second", "when")

    def __init__(self, per_second: float, now: float) -> None:
        self.per_second, self.left, self.when = per_second, max(1.0, per_second), now
        self.left_out = 0
        self.last: tuple[str, int, str] | None = None  # logger, level and text of the last message left out

    def refill(self, now: float) -> bool:
        """Whether one message more may be written now."""
        self.left = min(max(1.0, self.per_second), self.left + (now - self.when) * self.per_second)
        self.when = now
        return self.left >= 1


class RateLimit(logging.Filter):
    """Passes a few messages of each source per second. Any thread may use it."""

    def __init__(self, per_second: float) -> None:
        super().__init__()
        self._per_second = per_second
        self._sources: OrderedDict[Source, _Allowance] = OrderedDict()  # the one that was used last at the end
        self._lines: dict[Line, _Allowance] = {}  # as many as the program has lines that log
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, _IS_SUMMARY, False):
            return True
        line = (record.name, record.pathname, record.lineno)
        source = (line, str(record.msg)[:_SUBJECT_MAX], _subject(record))
        with self._lock:
            now = time.monotonic()
            whole = self._lines.get(line) or self._lines.setdefault(
                line, _Allowance(_LINE_SHARE * self._per_second, now)
            )
            one = self._allowance(source, now)
            passes = one.refill(now) & whole.refill(now)
            if not passes:
                one.left_out += 1
                one.last = (record.name, record.levelno, _text(record))
                return False
            one.left, whole.left = one.left - 1, whole.left - 1
            left_out, one.left_out = one.left_out, 0
        if left_out:
            record.msg = f"{record.msg} ({left_out} more like this were left out)"
        return True

    def summaries(self) -> list[logging.LogRecord]:
        """A line for each source of which messages were left out and none has passed since. They pass this filter."""
        with self._lock:
            silent = [each for each in (*self._sources.values(), *self._lines.values()) if each.left_out and each.last]
            told = [(each.left_out, each.last) for each in silent if each.last]
            for each in silent:
                each.left_out = 0
        return [_summary(count, last) for count, last in told]

    def _allowance(self, source: Source, now: float) -> _Allowance:
        found = self._sources.get(source)
        if found is not None:
            self._sources.move_to_end(source)
            return found
        made = self._sources[source] = _Allowance(self._per_second, now)
        if len(self._sources) > _SOURCES_MAX:
            (line, _, _), oldest = self._sources.popitem(last=False)
            self._lines[line].left_out += oldest.left_out
            self._lines[line].last = oldest.last or self._lines[line].last
        return made


def _subject(record: logging.LogRecord) -> str:
    """What the message is about: its first argument, if that is text, or where its error was raised."""
    first = record.args[0] if isinstance(record.args, tuple) and record.args else None
    if isinstance(first, str):
        return first[:_SUBJECT_MAX]
    return raised_at(record.exc_info[1]) if record.exc_info and record.exc_info[1] else ""


def raised_at(error: BaseException) -> str:
    """The kind of an error and the line that raised it: the same for each time that this happens."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" in {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
    return type(error).__name__ + where


def _text(record: logging.LogRecord) -> str:
    """Kept instead of the record, which would keep all that its traceback refers to."""
    return visible(record.getMessage(), _LAST_MAX)


def _summary(count: int, last: tuple[str, int, str]) -> logging.LogRecord:
    name, level, text = last
    values = {
        "name": name, "levelno": level, "levelname": logging.getLevelName(level), _IS_SUMMARY: True,
        "msg": "%d more of these in the last minute; the last one: %s", "args": (count, text),
    }  # fmt: skip
    return logging.makeLogRecord(values)
