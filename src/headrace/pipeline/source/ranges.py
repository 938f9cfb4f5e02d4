"""Ranges: from the options of a read to sequences, and to a selection by time of creation.

    startingOffsets, endingOffsets        sequences, or times and ages by `inserted`, the time here
    startingTimestamp, endingTimestamp    times by `created`, the time at the origin; part of the selection

A range that ends before it begins, or begins where no product is yet, is an error and not an empty DataFrame: mostly an
option is wrong. `earliest` to `earliest`, which is empty, is valid.
"""

import time
from dataclasses import dataclass

from headrace.errors import OptionError, StartAheadError
from headrace.log.read import time_of
from headrace.queue import AnyQueue
from headrace.selection import Selection

EARLIEST, LATEST = "earliest", "latest"
_WORDS = {EARLIEST: "oldest", LATEST: "next"}  # Kafka's words, and those of `Queue.resolve`
_NS_PER_MS = 1_000_000
_HINT = "give earliest, latest, a sequence such as 4711, a time such as 2026-11-15T12:00Z, or an age such as 1h"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a range begins or ends: the option that says so, and its value."""

    option: str
    text: str

    def resolved(self, queue: AnyQueue) -> int:
        """The sequence that it means now; OptionError if it is a sequence or a time of the future."""
        if self.text.isdecimal():
            return self._checked(queue, int(self.text))
        if (word := self._word()) is not None:
            return queue.resolve(word)
        self._time_ns()
        try:
            return queue.resolve(self.text)
        except StartAheadError:
            if self.option.startswith("starting"):
                problem = f"option {self.option}: {self.text!r} is in the future"
                raise OptionError(problem, f"no product can be there yet; {_HINT}") from None
            return queue.next  # an end in the future: everything that is there now

    def check(self) -> None:
        """OptionError if it is none of the possible values."""
        if not self.text.isdecimal() and self._word() is None:
            self._time_ns()

    def _word(self) -> str | None:
        """The word of `Queue.resolve`, also for Kafka's; None: it is not a word. Kafka's source ignores case, too."""
        word = self.text.strip().lower()
        return _WORDS.get(word, word if word in _WORDS.values() else None)

    def _checked(self, queue: AnyQueue, sequence: int) -> int:
        if sequence > (end := queue.next):
            raise OptionError(
                f"option {self.option}: {sequence} is in the future, the next product will be {end}",
                f"give {LATEST} for the end of the queue, or a sequence that exists; if the queue is a new one, start"
                " with a new checkpoint",
            )
        return max(sequence, 1)

    def _time_ns(self) -> int:
        try:
            return time_of(self.text, time.time_ns())
        except OptionError:
            raise OptionError(f"option {self.option}: {self.text!r} is invalid", _HINT) from None


def range_of(queue: AnyQueue, start: Position, end: Position) -> tuple[int, int]:
    """The sequences of a batch, `end` not included. OptionError: it ends before it begins, or begins in the future."""
    first, last = start.resolved(queue), end.resolved(queue)
    if first > last:
        raise OptionError(
            f"the range ends before it begins: {start.option} {start.text} is sequence {first},"
            f" {end.option} {end.text} is sequence {last}",
            f"exchange them; for everything leave out both ({EARLIEST} to {LATEST})",
        )
    return first, last


# --- by time of creation ----------------------------------------------------------------------------


def moment_of(option: str, text: str) -> int:
    """Nanoseconds since 1970 of a time, or of milliseconds since 1970 as Kafka's source has them. OptionError."""
    if text.isdecimal():
        return int(text) * _NS_PER_MS
    try:
        if not text[:1].isdecimal() or "-" not in text:
            raise OptionError("an age", "")
        return time_of(text, 0)
    except OptionError:
        raise OptionError(
            f"option {option}: {text!r} is not a time",
            "give a time such as 2026-11-15T12:00Z, or milliseconds since 1970; an age would mean another range after"
            " every restart",
        ) from None


def created_within(selection: Selection, since_ns: int | None, until_ns: int | None) -> Selection:
    """The same selection, of products created from `since_ns` on and before `until_ns`.

    OptionError: no product can be in the range, or the selection has a condition on `created` already.
    """
    if since_ns is until_ns is None:
        return selection
    if selection.created is not None:
        raise OptionError("both select and startingTimestamp or endingTimestamp limit `created`", "use one of them")
    if since_ns is not None and until_ns is not None and since_ns >= until_ns:
        raise OptionError("endingTimestamp is not after startingTimestamp", "exchange them")
    if since_ns is not None and since_ns > time.time_ns():
        raise OptionError("startingTimestamp is in the future", "no product can be created there yet")
    return selection.replace(created=(since_ns, until_ns))
