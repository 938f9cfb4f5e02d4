"""Run: what a replay onto a feed needs to continue after a crash, in a small file of its own.

A run has a number, which its products carry. Its file says what is replayed, how, and how far it has come:

    $XDG_STATE_HOME/headrace/replays/RUN.json       ~/.local/state by default
                                     locks          one byte for each run is locked while a process replays it
                                     RUN.control    the socket that takes commands meanwhile (cli/replay_control.py)

The position is saved after products were put. So after a crash some are put again, and the queue drops them by their
signature (marks.py): nothing is stored twice, and nothing is skipped. A file is some hundred bytes; the newest
KEPT_MAX files of runs that have ended are kept.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Literal

import msgspec

from headrace.errors import OptionError, QueueDamagedError, QueueVersionError, ReplayError
from headrace.log.documents import Document
from headrace.log.seams import Disk

KEPT_MAX = 100
LAST = "last"
_HEX = 16
_LOCKS = "locks"


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run: its terms, and how far it has come."""

    run: str  # 16 hexadecimal digits
    source: str  # as it was written: a directory, a site, a context, a table
    target: str
    identity: str  # of the source: the id of a queue; empty for a table
    selection: str
    start: int
    stop: int | None
    by: Literal["inserted", "created"]
    onto: str
    relay: bool
    speed: str
    position: int
    is_complete: bool = False
    products: int = 0
    stored: int = 0
    duplicates: int = 0
    expired: int = 0
    refused: int = 0
    lost: int = 0
    damaged: int = 0
    lap: int = 0  # how often it went back
    target_next: int = 0  # of a target without duplicate check: the sequence of its next product then
    target_identity: str = ""  # the id of the target; empty in files that were written before it was noted
    format: int = 1


_FILES = Document(Run, 1, field="format", remedy="start the replay again, as a new run")


def check_source(run: Run, identity: str) -> None:
    """ReplayError if the source is not the one that the run replays: its positions mean other products."""
    if identity != run.identity:
        raise ReplayError(
            f"{run.source} is another queue than the one that run {run.run} replays: it was deleted and created again",
            "start a new run: headrace replay SOURCE TARGET",
        )


def check_target(run: Run, identity: str) -> None:
    """ReplayError if the target is not the one that the run has put products into: those would be missing."""
    if run.target_identity and identity != run.target_identity:
        raise ReplayError(
            f"{run.target} is another queue than the one that run {run.run} has put {run.stored:,} products into: it "
            "was deleted and created again, and does not have them",
            "start a new run, which puts everything: headrace replay SOURCE TARGET",
        )


def folder() -> Path:
    """Where the files of runs are."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "headrace" / "replays"


def run_text(number: int) -> str:
    return f"{number:0{_HEX}x}"


def parse_run(text: str) -> int:
    """The number of a run from its hexadecimal digits, or of the `last` one; OptionError if they are none."""
    if text == LAST:
        runs = read_runs()
        if not runs:
            raise ReplayError(f"there is no run in {folder()}", "headrace replay SOURCE TARGET begins one")
        return int(runs[-1].run, 16)
    try:
        number = int(text, 16) if len(text) == _HEX and text.isalnum() else 0
    except ValueError:
        number = 0
    if not number:
        raise OptionError(
            f"run {text!r} is invalid", f"give its {_HEX} hexadecimal digits, or last: headrace replay --runs"
        )
    return number


def read_run(number: int) -> Run:
    """ReplayError if this user has no such run on this machine."""
    path = folder() / f"{run_text(number)}.json"
    found = _FILES.read(path)
    if found is None:
        raise ReplayError(f"there is no run {run_text(number)} in {path.parent}", "headrace replay --runs lists them")
    return found


def read_runs() -> list[Run]:
    """All runs that are known here, the latest last; without files that are damaged or of a newer Headrace."""
    found: list[tuple[int, Run]] = []
    for path in folder().glob("*.json"):
        with suppress(QueueDamagedError, QueueVersionError, FileNotFoundError):
            run = _FILES.read(path)
            found += [] if run is None else [(path.stat().st_mtime_ns, run)]
    return [run for _, run in sorted(found, key=itemgetter(0))]


class RunFile:
    """The file of a run that this process replays."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._path = folder() / f"{run.run}.json"

    def save(self, *, durable: bool = False, **changes: object) -> None:
        """Replace the file; `durable`: it survives a power failure."""
        self.run = msgspec.structs.replace(self.run, **changes)
        _FILES.write(self._path, self.run, Disk() if durable else None)


@contextmanager
def held(number: int) -> Iterator[None]:
    """Be the one process that replays this run; ReplayError if there is another."""
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder() / _LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number >> 1)
        except (BlockingIOError, PermissionError):
            raise ReplayError(
                f"another process replays run {run_text(number)}",
                f"headrace replay --run {run_text(number)} --control status",
            ) from None
        yield
    finally:
        os.close(descriptor)


def forget_old() -> None:
    """Keep the files of the latest runs only; those that have not ended stay."""
    ended = [run for run in read_runs() if run.is_complete]
    for run in ended[:-KEPT_MAX]:
        (folder() / f"{run.run}.json").unlink(missing_ok=True)
