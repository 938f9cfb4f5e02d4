"""Pipe: programs that stay, and are given rows on standard input as they come. At least once.

Each command line that occurs is a program of its own, started when it is needed and kept over batches; at most
`programs` run at once, and one that has had nothing for `idle` is let go: its input is closed, and it may come to its
end.

    framing   none: contents one after the other   lines: each ends with a line feed   length: 4 bytes before each, the
              highest first, tell how long it is

A batch is done when every row has been read by its program to the last byte. If a program ends, or takes nothing for
`timeout`, it is killed and started again after a pause that doubles, and what it had not read is given to the new one.
So is the row that it read last, if it did not end by itself with status 0; when `tries` programs have ended over a
row, that row is a dead letter. What a program had read ahead and not dealt with when it died is lost to it; whether it
has dealt with a row, nobody here can know."""

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

FAILURES_MAX = 5  # rows in a row that a program is given up for; then the rest of the batch is not tried
_PAUSE_S_MAX = 60.0
_LOOK_S = 0.005
_IDLE_LOOK_S = 0.5

Command = tuple[str, ...]


@dataclass(eq=False)
class Item:
    """A row on its way."""

    row: PreparedRow
    data: bytes
    end: int = 0  # of it in what the program was given
    falls: int = 0  # programs that have ended over it


@dataclass(eq=False)
class Seat:
    """A command line, and the program that runs for it."""

    command: Command
    program: Program | None = None
    given: int = 0  # bytes since it was started
    todo: deque[Item] = field(default_factory=deque)
    sent: deque[Item] = field(default_factory=deque)  # not read to the end
    last: Item | None = None  # read last by this program
    falls: int = 0  # in a row
    failures: int = 0  # rows in a row
    used: float = 0.0

    def forget(self) -> None:
        """A batch begins. What one that was not finished has left comes again with it."""
        self.todo.clear()
        self.sent.clear()
        self.failures = 0

    def look(self) -> None:
        """See what has been read."""
        if self.program is None:
            return
        read = self.given - self.program.unread
        while self.sent and self.sent[0].end <= read:
            self.last = self.sent.popleft()
            self.falls = self.failures = 0


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
        self._seats: OrderedDict[Command, Seat] = OrderedDict()  # the one that waited longest first
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._tidier: threading.Thread | None = None
        command = tuple((argument, "argument") for argument in action.command)
        self.recipe = Recipe(command, pattern, action.content or PAYLOAD, action.remove)  # type: ignore[arg-type]

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        self.recipe.check(frame.columns)
        return self.perform_batches(prepared_batches(frame, self.recipe), context)

    def perform_batches(self, batches: Iterable[pa.RecordBatch], context: Context) -> Counts:
        """The same with prepared rows."""
        rows = 0
        with self._lock, self._letters.writing(context, self._name) as letters:
            for seat in self._seats.values():
                seat.forget()
            for row in rows_in(batches):
                rows += 1
                if row.error is not None:
                    letters.add(row, row.error)
                    continue
                seat = self._seat(tuple(row.texts), letters)
                seat.todo.append(Item(row, framed(row.content, self._action.framing)))
                self._give(seat, letters)
            for seat in self._seats.values():
                self._drain(seat, letters)
        self._start_tidier()
        return Counts(max(0, rows - letters.count), failed=letters.count)

    def close(self) -> None:
        """Close the input of every program, and wait for each as long as its time-out."""
        self._over.set()
        if self._tidier is not None:
            self._tidier.join()
        with self._lock:
            for seat in self._seats.values():
                self._let_go(seat)
            self._seats.clear()

    # --- seats ------------------------------------------------------------------------------------

    def _seat(self, command: Command, letters: Letters) -> Seat:
        if command not in self._seats:
            while len(self._seats) >= self._action.programs:
                seat = next(iter(self._seats.values()))
                self._drain(seat, letters)
                self._let_go(seat)
                del self._seats[seat.command]
            self._seats[command] = Seat(command)
        self._seats.move_to_end(command)
        self._seats[command].used = time.monotonic()
        return self._seats[command]

    def _let_go(self, seat: Seat) -> None:
        if seat.program is not None:
            with suppress(ProgramError):  # it had read everything, and was killed
                seat.program.finish(self._action.timeout_s)
            seat.program = None

    def _start_tidier(self) -> None:
        if self._tidier is None and self._seats:
            self._tidier = threading.Thread(target=self._tidy, name="headrace-pipe-idle", daemon=True)
            self._tidier.start()

    def _tidy(self) -> None:
        """Let go of what has had nothing for long."""
        while not self._over.wait(_IDLE_LOOK_S):
            with self._lock:
                before = time.monotonic() - self._action.idle_s
                for seat in [seat for seat in self._seats.values() if seat.used < before]:
                    self._let_go(seat)
                    del self._seats[seat.command]

    # --- rows -------------------------------------------------------------------------------------

    def _give(self, seat: Seat, letters: Letters) -> None:
        """Everything that is to be done, to the program or to the dead letters."""
        while seat.todo:
            item = seat.todo[0]
            if seat.failures >= FAILURES_MAX:
                letters.add(item.row, f"not tried: {seat.command[0]} has failed on {FAILURES_MAX} rows before")
                seat.todo.popleft()
                continue
            try:
                program = self._running(seat)
                program.give(item.data, self._action.timeout_s)
            except StartError as error:
                letters.add(item.row, str(error))
                seat.todo.popleft()
                seat.failures += 1
                continue
            except (EndedError, HungError) as error:
                self._fall(seat, error, letters)
                continue
            seat.todo.popleft()
            seat.given += len(item.data)
            item.end = seat.given
            seat.sent.append(item)
            seat.look()

    def _running(self, seat: Seat) -> Program:
        """The program, started if need be; EndedError: it was there, and is gone."""
        if seat.program is None:
            if seat.falls:
                time.sleep(min(_PAUSE_S_MAX, self._action.pause_s * 2 ** (seat.falls - 1)))
            seat.program, seat.given, seat.last = Program(seat.command, self._action.folder), 0, None
        elif seat.program.code() is not None:
            raise EndedError(seat.program.told())
        return seat.program

    def _drain(self, seat: Seat, letters: Letters) -> None:
        """Wait until everything is read."""
        end = time.monotonic() + self._action.timeout_s
        while True:
            self._give(seat, letters)
            before = len(seat.sent)
            seat.look()
            if not seat.sent:
                return
            if len(seat.sent) < before:
                end = time.monotonic() + self._action.timeout_s
            if seat.program is not None and seat.program.code() is not None:
                self._fall(seat, EndedError(seat.program.told()), letters)
            elif time.monotonic() > end:
                left = seat.given - seat.sent[0].end + len(seat.sent[0].data)
                why = f"it has not read {left:,} bytes in {self._action.timeout_s:g} s"
                self._fall(seat, HungError(why), letters)
                end = time.monotonic() + self._action.timeout_s
            else:
                time.sleep(_LOOK_S)

    def _fall(self, seat: Seat, error: ProgramError, letters: Letters) -> None:
        """A program is no more: what it has not read is to be done again."""
        program = seat.program
        assert program is not None
        seat.look()
        program_code = program.code()
        program.kill()
        seat.program = None
        seat.falls += 1
        blamed = seat.last if seat.last is not None and program_code != 0 else None
        again = list(seat.sent)
        seat.sent.clear()
        seat.todo.extendleft(reversed(again if blamed is None else [blamed, *again]))
        if blamed is None and seat.last is None and seat.todo:
            blamed = seat.todo[0]  # it has read nothing at all
        seat.last = None
        if blamed is not None:
            blamed.falls += 1
            if blamed.falls >= self._action.tries:
                seat.todo.remove(blamed)
                letters.add(blamed.row, f"{seat.command[0]}: {error}")
                seat.failures += 1
