"""Pipe: programs that keep running and read rows from standard input as they come. At least once.

Each distinct command line is a program of its own, started on first use and kept from batch to batch. At most
`programs` run at once. A program without rows for `idle` is closed: its input ends, and it may finish.

    framing   none     contents one after the other
              lines    each content ends with a line feed
              length   each content is preceded by its length, 4 bytes, big-endian

A batch is done when every row has been read by its program to the last byte. If a program ends, or reads nothing for
`timeout`, it is killed and started again after a pause that doubles, and the new one gets what the old one had not
read. It also gets the row that the old one read last, unless the old one ended by itself with status 0. After `tries`
programs have ended on a row, that row is a dead letter. Rows that a program has read ahead and not processed when it
dies are lost to it: whether a program has processed a row is unknown here.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipeline.actions.action import Context, Counts
from headrace.pipeline.actions.dead_letters import DeadLetters, Letters
from headrace.pipeline.actions.prepared import PreparedRow, Recipe, prepared_batches, rows_in
from headrace.pipeline.actions.program import EndedError, HungError, Program, ProgramError, StartError
from headrace.pipeline.rules.rule import PAYLOAD, Framing, PipeAction

FAILURES_MAX = 5  # consecutive failed rows of a command line; then the rest of the batch is not tried
_PAUSE_S_MAX = 60.0
_POLL_S = 0.005
_IDLE_POLL_S = 0.5

Command = tuple[str, ...]


@dataclass(eq=False)
class Item:
    """A row on its way to a program."""

    row: PreparedRow
    data: bytes
    end: int = 0  # its end in the bytes that the program was given
    deaths: int = 0  # of programs that had read it last


@dataclass(eq=False)
class CommandLine:
    """A command line, and the program that runs for it."""

    command: Command
    program: Program | None = None
    given: int = 0  # bytes since the program was started
    todo: deque[Item] = field(default_factory=deque)
    sent: deque[Item] = field(default_factory=deque)  # given, and not read to the last byte
    last: Item | None = None  # the row that the program read last
    deaths: int = 0  # consecutive ones, without a row read in between
    failures: int = 0  # consecutive rows that became dead letters
    used: float = 0.0

    def begin_batch(self) -> None:
        """Drop what an unfinished batch has left: Spark repeats it."""
        self.todo.clear()
        self.sent.clear()
        self.failures = 0

    def note_read(self) -> None:
        """Find out which rows have been read."""
        if self.program is None:
            return
        read = self.given - self.program.unread
        while self.sent and self.sent[0].end <= read:
            self.last = self.sent.popleft()
            self.deaths = self.failures = 0


def framed(content: bytes, framing: Framing) -> bytes:
    if framing == "length":
        return len(content).to_bytes(4) + content
    return content if framing == "none" or content.endswith(b"\n") else content + b"\n"


class PipePerformer:
    """[rule.pipe]."""

    def __init__(self, action: PipeAction, name: str, pattern: str | None, letters: DeadLetters) -> None:
        self._action = action
        self._name = name
        self._letters = letters
        self._lines: OrderedDict[Command, CommandLine] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._reaper: threading.Thread | None = None
        command = tuple((argument, "argument") for argument in action.command)
        self.recipe = Recipe(
            command,  # type: ignore[arg-type]
            pattern, action.content or PAYLOAD, action.remove, metadata=action.metadata,
        )  # fmt: skip

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        self.recipe.check(frame.columns)
        return self.perform_batches(prepared_batches(frame, self.recipe), context)

    def perform_batches(self, batches: Iterable[pa.RecordBatch], context: Context) -> Counts:
        """As `perform`, with prepared rows."""
        rows = 0
        with self._lock, self._letters.writing(context, self._name) as letters:
            for line in self._lines.values():
                line.begin_batch()
            for row in rows_in(batches):
                rows += 1
                if row.error is not None:
                    letters.add(row, row.error)
                    continue
                line = self._line(tuple(row.texts), letters)
                line.todo.append(Item(row, framed(row.content, self._action.framing)))
                self._give(line, letters)
            for line in self._lines.values():
                self._drain(line, letters)
        self._start_reaper()
        return Counts(max(0, rows - letters.count), failed=letters.count)

    def close(self) -> None:
        """Close the input of every program, and wait for the end of each, at most for its timeout."""
        self._over.set()
        if self._reaper is not None:
            self._reaper.join()
        with self._lock:
            for line in self._lines.values():
                self._close(line)
            self._lines.clear()

    # --- command lines ------------------------------------------------------------------------------------

    def _line(self, command: Command, letters: Letters) -> CommandLine:
        if command not in self._lines:
            while len(self._lines) >= self._action.programs:
                line = next(iter(self._lines.values()))
                self._drain(line, letters)
                self._close(line)
                del self._lines[line.command]
            self._lines[command] = CommandLine(command)
        self._lines.move_to_end(command)
        self._lines[command].used = time.monotonic()
        return self._lines[command]

    def _close(self, line: CommandLine) -> None:
        if line.program is not None:
            with suppress(ProgramError):  # it had read everything, and was killed after the timeout
                line.program.finish(self._action.timeout_s)
            line.program = None

    def _start_reaper(self) -> None:
        if self._reaper is None and self._lines:
            self._reaper = threading.Thread(target=self._reap, name="headrace-pipe-idle", daemon=True)
            self._reaper.start()

    def _reap(self) -> None:
        """Close programs that have been idle for too long."""
        while not self._over.wait(_IDLE_POLL_S):
            with self._lock:
                before = time.monotonic() - self._action.idle_s
                for line in [line for line in self._lines.values() if line.used < before]:
                    self._close(line)
                    del self._lines[line.command]

    # --- rows -------------------------------------------------------------------------------------

    def _give(self, line: CommandLine, letters: Letters) -> None:
        """Pass every waiting row to the program, or to the dead letters."""
        while line.todo:
            item = line.todo[0]
            if line.failures >= FAILURES_MAX:
                letters.add(item.row, f"not tried: {line.command[0]} has failed on {FAILURES_MAX} rows in a row")
                line.todo.popleft()
                continue
            try:
                program = self._running(line)
                program.give(item.data, self._action.timeout_s)
            except StartError as error:
                letters.add(item.row, str(error))
                line.todo.popleft()
                line.failures += 1
                continue
            except (EndedError, HungError) as error:
                self._ended(line, error, letters)
                continue
            line.todo.popleft()
            line.given += len(item.data)
            item.end = line.given
            line.sent.append(item)
            line.note_read()

    def _running(self, line: CommandLine) -> Program:
        """The program, started if necessary. EndedError: it has ended."""
        if line.program is None:
            if line.deaths:
                time.sleep(min(_PAUSE_S_MAX, self._action.pause_s * 2 ** (line.deaths - 1)))
            line.program, line.given, line.last = Program(line.command, self._action.folder), 0, None
        elif line.program.code() is not None:
            raise EndedError(line.program.end_text())
        return line.program

    def _drain(self, line: CommandLine, letters: Letters) -> None:
        """Wait until every row is read."""
        end = time.monotonic() + self._action.timeout_s
        while True:
            self._give(line, letters)
            before = len(line.sent)
            line.note_read()
            if not line.sent:
                return
            if len(line.sent) < before:
                end = time.monotonic() + self._action.timeout_s
            if line.program is not None and line.program.code() is not None:
                self._ended(line, EndedError(line.program.end_text()), letters)
            elif time.monotonic() > end:
                left = line.given - line.sent[0].end + len(line.sent[0].data)
                why = f"it did not read {left:,} bytes within {self._action.timeout_s:g} s"
                self._ended(line, HungError(why), letters)
                end = time.monotonic() + self._action.timeout_s
            else:
                time.sleep(_POLL_S)

    def _ended(self, line: CommandLine, error: ProgramError, letters: Letters) -> None:
        """A program has ended: what it has not read goes to the next one."""
        program = line.program
        assert program is not None
        line.note_read()
        program_code = program.code()
        program.kill()
        line.program = None
        line.deaths += 1
        blamed = line.last if line.last is not None and program_code != 0 else None
        again = list(line.sent)
        line.sent.clear()
        line.todo.extendleft(reversed(again if blamed is None else [blamed, *again]))
        if blamed is None and line.last is None and line.todo:
            blamed = line.todo[0]  # the program has read nothing at all
        line.last = None
        if blamed is not None:
            blamed.deaths += 1
            if blamed.deaths >= self._action.tries:
                line.todo.remove(blamed)
                letters.add(blamed.row, f"{line.command[0]}: {error}")
                line.failures += 1
