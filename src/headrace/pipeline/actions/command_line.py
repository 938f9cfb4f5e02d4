"""A command line of a pipe, and the program that runs for it.

    todo ──give──► sent ──note_read──► read to the last byte
      ▲              │
      └── the program has ended, or reads nothing: what it had not read goes to the next one

A program that ends, or reads nothing for `timeout`, is killed and started again after a pause that doubles. The next
one gets what the old one had not read, and the row that the old one read last, unless the old one ended by itself with
status 0. After `tries` programs have ended on a row, that row is a dead letter. Rows that a program has read ahead and
not processed when it dies are lost to it: whether a program has processed a row is unknown here.

Rules may share a command line (pipe.py). Each row keeps the terms of its own rule: timeout, tries and pause.

Used by one thread at a time: the one that holds the lock of its group.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headrace.pipeline.actions.prepared import PreparedRow
from headrace.pipeline.actions.program import EndedError, HungError, Program, ProgramError, StartError
from headrace.pipeline.rules.rule import PipeAction

FAILURES_MAX = 5  # consecutive failed rows of a command line; then the rest of the batch is not tried
_PAUSE_S_MAX = 60.0
_POLL_S = 0.005

Command = tuple[str, ...]


@dataclass(eq=False)
class Item:
    """A row on its way to a program."""

    row: PreparedRow
    data: bytes
    rule: str
    action: str  # its name
    terms: PipeAction
    end: int = 0  # its end in the bytes that the program was given
    deaths: int = 0  # of programs that had read it last


Refuse = Callable[[Item, str], None]  # makes a row a dead letter, with the reason


@dataclass(eq=False)
class CommandLine:
    """`used` and `idle_s` are for those who close programs that nobody needs (programs.py)."""

    command: Command
    folder: Path | None
    program: Program | None = None
    given: int = 0  # bytes since the program was started
    todo: deque[Item] = field(default_factory=deque)
    sent: deque[Item] = field(default_factory=deque)  # given, and not read to the last byte
    last: Item | None = None  # the row that the program read last
    deaths: int = 0  # consecutive ones, without a row read in between
    failures: int = 0  # consecutive rows that became dead letters
    used: float = 0.0
    idle_s: float = 0.0
    timeout_s: float = 0.0  # of the latest row

    def begin_batch(self) -> None:
        """Drop what an unfinished batch has left: Spark repeats it."""
        self.todo.clear()
        self.sent.clear()
        self.failures = 0

    def add(self, item: Item, refuse: Refuse) -> None:
        """Pass a row to the program, after those that wait."""
        self.used, self.timeout_s = time.monotonic(), item.terms.timeout_s
        self.idle_s = max(self.idle_s, item.terms.idle_s)
        self.todo.append(item)
        self._give(refuse)

    def drain(self, refuse: Refuse) -> None:
        """Wait until every row is read, or is a dead letter."""
        end = time.monotonic() + self.timeout_s
        while True:
            self._give(refuse)
            before = len(self.sent)
            self._note_read()
            if not self.sent:
                return
            timeout_s = self.sent[0].terms.timeout_s
            if len(self.sent) < before:
                end = time.monotonic() + timeout_s
            if self.program is not None and self.program.code() is not None:
                self._ended(EndedError(self.program.end_text()), refuse)
            elif time.monotonic() > end:
                left = self.given - self.sent[0].end + len(self.sent[0].data)
                self._ended(HungError(f"it did not read {left:,} bytes within {timeout_s:g} s"), refuse)
                end = time.monotonic() + timeout_s
            else:
                time.sleep(_POLL_S)

    def close(self) -> None:
        """End the input of the program, and wait for its end; it is killed after the timeout."""
        if self.program is not None:
            with suppress(ProgramError):  # it had read everything, and was killed after the timeout
                self.program.finish(self.timeout_s)
            self.program = None

    def _give(self, refuse: Refuse) -> None:
        """Pass every waiting row to the program, or refuse it."""
        while self.todo:
            item = self.todo[0]
            if self.failures >= FAILURES_MAX:
                refuse(item, f"not tried: {self.command[0]} has failed on {FAILURES_MAX} rows in a row")
                self.todo.popleft()
                continue
            try:
                self._running(item.terms.pause_s).give(item.data, item.terms.timeout_s)
            except StartError as error:
                refuse(item, str(error))
                self.todo.popleft()
                self.failures += 1
                continue
            except (EndedError, HungError) as error:
                self._ended(error, refuse)
                continue
            self.todo.popleft()
            self.given += len(item.data)
            item.end = self.given
            self.sent.append(item)
            self._note_read()

    def _running(self, pause_s: float) -> Program:
        """The program, started if necessary. EndedError: it has ended."""
        if self.program is None:
            if self.deaths:
                time.sleep(min(_PAUSE_S_MAX, pause_s * 2 ** (self.deaths - 1)))
            self.program, self.given, self.last = Program(self.command, self.folder), 0, None
        elif self.program.code() is not None:
            raise EndedError(self.program.end_text())
        return self.program

    def _note_read(self) -> None:
        """Find out which rows have been read."""
        if self.program is None:
            return
        read = self.given - self.program.unread
        while self.sent and self.sent[0].end <= read:
            self.last = self.sent.popleft()
            self.deaths = self.failures = 0

    def _ended(self, error: ProgramError, refuse: Refuse) -> None:
        """The program has ended: what it has not read goes to the next one."""
        program = self.program
        assert program is not None
        self._note_read()
        code = program.code()
        program.kill()
        self.program = None
        self.deaths += 1
        blamed = self.last if self.last is not None and code != 0 else None
        again = list(self.sent)
        self.sent.clear()
        self.todo.extendleft(reversed(again if blamed is None else [blamed, *again]))
        if blamed is None and self.last is None and self.todo:
            blamed = self.todo[0]  # the program has read nothing at all
        self.last = None
        if blamed is not None:
            blamed.deaths += 1
            if blamed.deaths >= blamed.terms.tries:
                self.todo.remove(blamed)
                refuse(blamed, f"{self.command[0]}: {error}")
                self.failures += 1
