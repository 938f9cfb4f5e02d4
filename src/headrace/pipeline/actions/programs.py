"""Programs of a pipeline: the command lines of all its pipes, in groups that share them, with one limit for all.

A group has the actions whose command lines may turn out equal, and one lock. Batches of its actions take turns, so that
one program gets the rows of all of them; batches of other groups do not wait for it, even if it hangs. Whether two
command lines may be equal is decided by their templates: `decoder {1}.gem` and `decoder a.gem` may be. Actions that
frame rows differently, or with other metadata, never share: a program reads one form.

    Programs ─┬─ group ─┬─ command line ── program
              │         └─ command line ── program        at most `limit` in all; the least recently used one is closed
              └─ group ─── …

A program without rows for `idle` is closed: its input ends, and it may finish. A program that is busy is not closed, so
that there may be one program more than the limit for each query that runs.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from headrace.guard import GuardedThread
from headrace.pipeline.actions.command_line import Command, CommandLine, Refuse
from headrace.pipeline.rules.rule import PROGRAMS, PipeAction
from headrace.pipeline.rules.template import template

_IDLE_POLL_S = 0.5


class Group:
    """The command lines of some actions. Hold `lock` from the first row of a batch until all its rows are read."""

    def __init__(self, programs: "Programs", name: str) -> None:
        self.programs = programs
        self.name = name  # unique within the pipeline, the same after a restart
        self.lock = threading.Lock()
        self.lines: dict[tuple[Command, Path | None], CommandLine] = {}

    def begin_batch(self) -> None:
        for line in self.lines.values():
            line.begin_batch()

    def line(self, command: Command, folder: Path | None, refuse: Refuse) -> CommandLine:
        """The command line; another one is closed if there are too many."""
        found = self.lines.get((command, folder))
        if found is None:
            self.programs.make_room(self, refuse)
            found = self.lines[command, folder] = CommandLine(command, folder)
        self.programs.note_use(found, self)
        return found

    def drain(self, refuse: Refuse) -> None:
        for line in self.lines.values():
            line.drain(refuse)

    def close(self, line: CommandLine) -> None:
        line.close()
        del self.lines[line.command, line.folder]
        self.programs.forget(line)


class Programs:
    """All groups of a pipeline."""

    def __init__(self, limit: int = PROGRAMS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._lines: OrderedDict[CommandLine, Group] = OrderedDict()  # least recently used first
        self._over = threading.Event()
        self._reaper: threading.Thread | None = None

    def note_use(self, line: CommandLine, group: Group) -> None:
        with self._lock:
            self._lines[line] = group
            self._lines.move_to_end(line)
            if self._reaper is None:
                self._reaper = GuardedThread(self._reap, "headrace-pipe-idle", until=self._over.is_set, daemon=True)
                self._reaper.start()

    def forget(self, line: CommandLine) -> None:
        with self._lock:
            self._lines.pop(line, None)

    def make_room(self, group: Group, refuse: Refuse) -> None:
        """Close the least recently used command lines until one more is within the limit. The caller holds the lock of
        `group`; lines of its own batch are drained first, and lines of other groups that are busy are skipped."""
        for line, owner in self._least_used():
            if len(self._lines) < self._limit:
                return
            if owner is group:
                line.drain(refuse)
                owner.close(line)
            elif owner.lock.acquire(blocking=False):
                try:
                    if line in self._lines:
                        owner.close(line)
                finally:
                    owner.lock.release()

    def close(self) -> None:
        """Close the input of every program, and wait for the end of each, at most for its timeout."""
        self._over.set()
        if self._reaper is not None:
            self._reaper.join()
        for line, owner in self._least_used():
            with owner.lock:
                owner.close(line)

    def _least_used(self) -> list[tuple[CommandLine, Group]]:
        with self._lock:
            return list(self._lines.items())

    def _reap(self) -> None:
        while not self._over.wait(_IDLE_POLL_S):
            now = time.monotonic()
            for line, owner in self._least_used():
                if now - line.used > line.idle_s and owner.lock.acquire(blocking=False):
                    try:
                        if line in self._lines and now - line.used > line.idle_s:
                            owner.close(line)
                    finally:
                        owner.lock.release()


# --- which actions share ----------------------------------------------------------------------------


def groups_of(actions: Mapping[str, PipeAction], programs: Programs) -> dict[str, Group]:
    """The group of each action. The names of actions are unique within the pipeline; a group has that of its first."""
    firsts = dict(zip(actions, sharing(list(actions.values())), strict=True))
    names = list(actions)
    made = {first: Group(programs, names[first]) for first in set(firsts.values())}
    return {name: made[first] for name, first in firsts.items()}


def sharing(actions: Sequence[PipeAction]) -> list[int]:
    """For each action, the number of the first one with which it may share a program, directly or through others."""
    firsts = list(range(len(actions)))
    known: dict[tuple[object, ...], dict[Command, int]] = {}  # by form, the number of each distinct command
    for number, action in enumerate(actions):
        form = (action.folder, action.framing, action.metadata, len(action.command))
        commands = known.setdefault(form, {})
        equal = [commands[action.command]] if action.command in commands else _equal(action.command, commands)
        joined = {firsts[each] for each in equal}
        if joined:
            first = min(joined)
            firsts[:number] = [first if each in joined else each for each in firsts[:number]]
            firsts[number] = first
        commands.setdefault(action.command, number)
    return firsts


def _equal(command: Command, commands: Mapping[Command, int]) -> list[int]:
    """The numbers of those commands that may be equal to this one, which is not among them."""
    is_fixed = _is_fixed(command)
    return [
        number
        for other, number in commands.items()
        if not (is_fixed and _is_fixed(other)) and all(map(_may_be_equal, command, other))
    ]


@lru_cache(16384)
def _is_fixed(command: Command) -> bool:
    return all(template(argument, "argument").is_constant for argument in command)


def _may_be_equal(one: str, other: str) -> bool:
    """Whether two arguments can become the same text, judged by how they begin and end."""
    (begin, end, is_fixed), (begins, ends, is_other_fixed) = _ends(one), _ends(other)
    if is_fixed and is_other_fixed:
        return begin == begins
    if is_fixed or is_other_fixed:
        (text, _, _), (begin, end, _) = (_ends(one), _ends(other)) if is_fixed else (_ends(other), _ends(one))
        return len(text) >= len(begin) + len(end) and text.startswith(begin) and text.endswith(end)
    return _overlap(begin, begins, str.startswith) and _overlap(end, ends, str.endswith)


def _overlap(one: str, other: str, does: Callable[[str, str], bool]) -> bool:
    return does(one, other) or does(other, one)


@lru_cache(16384)
def _ends(argument: str) -> tuple[str, str, bool]:
    """The constant beginning and end of an argument, and whether it is constant as a whole."""
    parts = template(argument, "argument").parts or ("",)
    begin, end = (part if isinstance(part, str) else "" for part in (parts[0], parts[-1]))
    return begin, end, len(parts) == 1 and isinstance(parts[0], str)
