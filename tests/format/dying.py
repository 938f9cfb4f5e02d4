"""Processes that are killed at the worst moment."""

import ctypes
import mmap
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import station_reader


@contextmanager
def at_work(work: Callable[[], object]) -> Iterator[int]:
    """Run `work` in a child that keeps its result; yield the pid, and kill the child at the end."""
    done, say = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kept = work()  # noqa: F841 - held until the end
            os.write(say, b"x")
            signal.pause()
        except Exception:  # noqa: BLE001 - printed here; the parent sees the closed pipe
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(say)
    try:
        assert os.read(done, 1) == b"x", "the child failed"
        yield child
    finally:
        os.close(done)
        end(child)


def end(child: int) -> None:
    """Kill a child and wait for its end."""
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def die_holding_a_chain(directory: Path, number: int, spoil: Callable[[mmap.mmap], None]) -> None:
    """Start a child that takes the lock of a chain at the offset of the page, spoils the file, and dies."""
    child = os.fork()
    if child == 0:
        try:
            with station_reader.chain_path(directory, number).open("r+b") as file:
                mapped = mmap.mmap(file.fileno(), 0)
            lock = ctypes.byref(ctypes.c_char.from_buffer(mapped, station_reader.CHAIN_HEADER["lock"][0]))
            if ctypes.CDLL(None).pthread_mutex_lock(lock) == 0:
                spoil(mapped)
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
