"""Place: a queue that is no longer where it was opened refuses to work.

A process that has a queue open keeps its files mapped, whatever becomes of the directory. Puts into a queue that was
deleted would be acknowledged and gone; a queue that was moved, or whose path leads to another one now, would find its
stations missing and skip their products. So every operation first asks the kernel whether the path still leads to the
control file that is mapped (kernel/log/place.pxi), and raises QueueMovedError if not. Nothing is remembered: a queue
that is moved back works again.

Here is the explanation: what happened to the directory, and what to do.
"""

import os
from pathlib import Path

from headrace.errors import HeadraceError, QueueError, QueueMovedError
from headrace.kernel import _kernel as kernel
from headrace.log.config import read_config
from headrace.log.explain import explain

_OPENED = "while this process had it open"
_RESTART = "restart the program"


def check_place(log: kernel.Log, path: Path, *, always: bool = False) -> None:
    """QueueMovedError if the queue is no longer at `path`. Unless `always`, the answer may be 0.1 s old."""
    outcome = log.look_for_place(always)
    if outcome == kernel.CODES["moved"]:
        raise moved(log, path)
    if outcome < 0:
        raise explain(kernel.KernelError(outcome), path)


def moved(log: kernel.Log, path: Path) -> QueueError:
    """The error that says what happened to the queue that was opened at `path`."""
    became = _whereabouts(log)
    if not path.exists():
        if became is None:
            return QueueMovedError(f"the queue {path} was deleted {_OPENED}", f"create or restore it, then {_RESTART}")
        return QueueMovedError(
            f"the queue {path} was moved to {became} {_OPENED}", f"move it back, or {_RESTART} with the new path"
        )
    if became == path.resolve():
        return QueueMovedError(
            f"{path / 'control'} was deleted or replaced {_OPENED}",
            "stop all programs that use the queue, then restore it from a backup",
        )
    fate = "deleted" if became is None else f"moved to {became}"
    there = "another queue is there now" if _is_queue(path) else "something else is there now"
    return QueueMovedError(f"the queue {path} was {fate} {_OPENED}, and {there}", f"{_RESTART} to use what is there")


def _whereabouts(log: kernel.Log) -> Path | None:
    """Where the directory is now; None if it was deleted."""
    if os.fstat(log.queue_fd).st_nlink == 0:
        return None
    return Path(os.readlink(f"/proc/self/fd/{log.queue_fd}"))


def _is_queue(path: Path) -> bool:
    try:
        read_config(path)
    except (HeadraceError, OSError):
        return False
    return True
