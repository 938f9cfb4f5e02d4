"""Trouble: why a query of Spark's has ended, in our own words if there are any, and whether it may heal.

Spark hands errors of tasks, of the source and of actions over as one text, with the traces of Python and Java in it;
so they are known by the names of their classes. What the world does to a pipeline heals: a site that is away, a disk
that is full, a folder that may not be written, a process that was killed. What the rules or the data say does not, and
neither does what nobody has thought of: it would be met again and again.
"""

import builtins
import re
from typing import NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

from headrace.errors import (
    BlockedError,
    DiskFullError,
    FabricError,
    QueueAccessError,
    QueueBusyError,
    RejectedError,
    SiteUnreachableError,
    TargetError,
)

PAUSE_S_MAX = 60.0
JAVA_GONE = (Py4JError, ConnectionError)  # what a question to Spark raises when its Java has ended
_OWN = re.compile(r"^headrace\.errors\.(\w+): (.*)$", re.MULTILINE)
_HEALING = frozenset(
    kind.__name__
    for kind in (
        BlockedError, DiskFullError, FabricError, QueueAccessError, QueueBusyError, RejectedError, SiteUnreachableError,
        TargetError,
    )
)  # fmt: skip
_OS_ERRORS = "|".join(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, OSError)
)
_JAVA_ERRORS = (
    r"java\.io\.\w+Exception|java\.net\.\w+Exception|java\.nio\.file\.\w+Exception"
    r"|org\.apache\.hadoop\.fs\.\w+Exception|org\.apache\.hadoop\.fs\.FSError"
)
_WORKERS = r"Python worker (?:exited|failed|was killed|is killed)[^\n]*|ExecutorLostFailure[^\n]*"
_WORLD = re.compile(rf"\b(?:(?:{_JAVA_ERRORS}|{_OS_ERRORS}): [^\n]*|{_WORKERS})")
_RAISED = re.compile(  # the last line of a trace of Python's, but for that of whoever passes on what Java says
    r"^(?:(?:\w+\.)+[A-Z]\w*|\w+(?:Error|Exception)): (?!An error occurred while calling )(.+)$", re.MULTILINE
)
_FRAME = re.compile(r"^\s*at .*$", re.MULTILINE)  # of a trace of Java's


class Trouble(NamedTuple):
    """What a person reads, and whether it is worth while to try again."""

    text: str
    heals: bool


def trouble_of(told: str) -> Trouble:
    """Of the text of an exception."""
    told = _FRAME.sub("", told)
    own: list[tuple[str, str]] = _OWN.findall(told)
    world = _WORLD.findall(told)
    if own:
        kinds = {kind for kind, _ in own}
        return Trouble(own[-1][1], not kinds.isdisjoint(_HEALING))
    if world:
        return Trouble(world[-1].strip(), True)
    lines = _RAISED.findall(told)[-1:] or [line.strip() for line in told.splitlines() if line.strip()]
    return Trouble(lines[0] if lines else "an error without words", False)


def is_java_gone(error: Exception) -> bool:
    """Whether Java has ended, and not just thrown something."""
    return isinstance(error, JAVA_GONE) and not isinstance(error, Py4JJavaError)


def pause_s(attempt: int) -> float:
    """Before the next attempt, when so many have failed."""
    return min(PAUSE_S_MAX, 2.0 ** min(attempt - 1, 10))
