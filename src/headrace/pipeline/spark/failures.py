"""Failures: why a Spark query ended, in one line for a person, and whether a retry can help.

Spark delivers errors of tasks, of the source and of actions as one text that contains the tracebacks of Python and
Java. They are recognised by the names of their classes. A failure is transient if its cause is outside the pipeline: a
site that is unreachable, a full disk, a folder without write permission, a process that was killed, a task that Spark
damaged while it made it. A failure caused by the rules or by the data is permanent, because a retry meets it again; so
is every failure that is not recognised.
"""

import builtins
import re
from typing import NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headrace.errors import (
    BlockedError,
    DiskFullError,
    FabricError,
    PipelineError,
    QueueAccessError,
    QueueBusyError,
    RejectedError,
    SiteUnreachableError,
    TargetError,
)

AGAIN = "start the pipeline again: every rule continues at its checkpoint"
JAVA_GONE = (Py4JError, ConnectionError)  # what a call to Spark raises once its Java has ended
SPARK_ERRORS = (*JAVA_GONE, PySparkException)  # what a call to Spark raises
_OWN = re.compile(r"^headrace\.errors\.(\w+): (.*)$", re.MULTILINE)
_TRANSIENT = frozenset(
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
_OUTSIDE = re.compile(rf"\b(?:(?:{_JAVA_ERRORS}|{_OS_ERRORS}): [^\n]*|{_WORKERS})")
_SLOW = re.compile(r"Python worker failed to connect back|waiting for the Python worker to connect back")
SLOW_START = "a Python process of Spark did not start within ten seconds: the machine is busy"  # Spark's own limit
_SIGNALLED = re.compile(r"ExitCodeException exitCode=1[2-9]\d\b")  # such as of the chmod that Hadoop starts
_CLOSED = re.compile(r"java\.io\.EOFException|java\.nio\.channels\.\w+Exception")  # without a message of its own
_UNREADABLE = re.compile(  # these have none either
    r"java\.io\.OptionalDataException|java\.io\.StreamCorruptedException|java\.util\.ConcurrentModificationException"
)
_RAISED = re.compile(  # the last line of a Python traceback, or what Java raised, which py4j puts behind a colon
    r"^(?:: )?(?:(?:\w+\.)+[A-Z]\w*|\w+(?:Error|Exception)): (?!An error occurred while calling )(.+)$", re.MULTILINE
)
_FRAME = re.compile(r"^\s*at .*$", re.MULTILINE)  # of a Java stack trace


class Failure(NamedTuple):
    """What a person reads, and whether a retry can help."""

    text: str
    is_transient: bool


def failure_of(text: str) -> Failure:
    """Explain the text of an exception."""
    text = _FRAME.sub("", text)
    own: list[tuple[str, str]] = _OWN.findall(text)
    outside = _OUTSIDE.findall(text)
    if own:
        kinds = {kind for kind, _ in own}
        return Failure(own[-1][1], not kinds.isdisjoint(_TRANSIENT))
    if _SLOW.search(text) is not None:
        return Failure(SLOW_START, True)
    if outside:
        return Failure(outside[-1].strip(), True)
    unreadable = _UNREADABLE.search(text)
    if unreadable is not None:
        return Failure(f"Spark could not read a task that it had made itself ({unreadable[0]})", True)
    if _SIGNALLED.search(text) is not None:
        return Failure("a program that Spark had started was ended by a signal", True)
    closed = _CLOSED.search(text)
    if closed is not None:
        return Failure(f"a Python process of Spark has ended unexpectedly ({closed[0]})", True)
    lines = _RAISED.findall(text)[-1:] or [line.strip() for line in text.splitlines() if line.strip()]
    return Failure(lines[0] if lines else "an error without a message", False)


def own_message(text: str) -> str:
    """The message of the last error of ours in this text, with its remedy; empty if there is none."""
    own: list[tuple[str, str]] = _OWN.findall(text)
    return own[-1][1] if own else ""


def is_java_gone(error: Exception) -> bool:
    """Whether Java has ended, and has not only thrown an exception."""
    exited = isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED"
    return exited or (isinstance(error, JAVA_GONE) and not isinstance(error, Py4JJavaError))


def java_gone() -> PipelineError:
    """The error for a Java that has ended."""
    hint = f"{AGAIN}; if it happens again, check that the machine has enough memory ([spark] driver.memory)"
    return PipelineError("the Java process of Spark has ended", hint)
