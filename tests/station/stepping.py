"""Kill a process between any two instructions: it is single-stepped while it holds the lock of a chain.

Failpoints cover only the steps that have a name. Here a kill can also fall between two stores that belong together. The
tracer reads in the chain's file which thread holds the lock.
"""

import ctypes
import mmap
import os
import signal
import struct
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TRACE_ME, _STEP = 0, 9
_LOCK_AT = 64  # in the chain's file; the first word of a robust lock is the thread that holds it
_OWNER = 0x3FFFFFFF
FOR_EVER = 1 << 62

_c = ctypes.CDLL(None, use_errno=True)
_c.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_c.ptrace.restype = ctypes.c_long


def can_trace() -> bool:
    """Whether processes may be traced here; some containers forbid it."""
    child = os.fork()
    if child == 0:
        os._exit(1 if _c.ptrace(_TRACE_ME, 0, None, None) else 0)
    return os.waitpid(child, 0)[1] == 0


def die_inside(chain: Path, prepare: Callable[[], Any], act: Callable[[Any], None], instructions: int) -> int:
    """Run `act(prepare())` in a new process, and kill it after so many instructions with the chain's lock held.

    Return how many there were: fewer if `act` ended before.
    """
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            prepared = prepare()
            _c.ptrace(_TRACE_ME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            act(prepared)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    inside = 0
    with chain.open("r+b") as handle, mmap.mmap(handle.fileno(), 4096) as words:
        status = os.waitpid(child, 0)[1]
        while os.WIFSTOPPED(status) and inside < instructions:
            _c.ptrace(_STEP, child, None, None)
            status = os.waitpid(child, 0)[1]
            inside += struct.unpack_from("<I", words, _LOCK_AT)[0] & _OWNER == child
    if os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    else:
        assert status == 0, f"the process ended by itself, with status {status}"
    return inside
