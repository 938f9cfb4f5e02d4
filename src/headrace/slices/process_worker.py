"""ProcessWorker: the user's function in a process of its own, for work that needs a core, or that may end its process.

The child receives its products as records, and answers with the outcome. Its place in the task lies in shared memory:
if it dies or hangs, that very product is blamed, and the others of its task are done by another worker.

If a product takes long, the node takes back what follows it. It writes where the child has to stop, and looks a moment
later where the child is: by then each has seen what the other has written.

A child dies with its node, whatever it is doing: work that hangs does not stay behind when the node is killed.
"""

import fcntl
import math
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import c_double, c_int64
from multiprocessing.connection import Connection, wait
from typing import Any

from headrace.guard import OnceThread
from headrace.log.records import Names, rows_of
from headrace.product.batch import Batch
from headrace.remote.protocol.products import batch_of, products_of
from headrace.slices.tasks import (
    PRODUCTS_MAX,
    Outcome,
    Pulse,
    Task,
    Work,
    error_text,
    given_up,
    without,
    work_on_batches,
    work_through,
)
from headrace.slices.workers import Finished

_context = multiprocessing.get_context("spawn")
_IDLE, _STARTING = -1, -2  # places of a child that has no product in work
_SEEN_S = 0.02  # until a child has seen what the node has written


class ProcessWorker:
    """A process, and the thread that talks with it."""

    def __init__(self, work: Work, batches: bool, finished: Finished) -> None:
        self.task: Task | None = None
        self._finished, self._is_given_up, self._batches = finished, False, batches
        self._place, self._since_s = _context.RawValue(c_int64, _STARTING), _context.RawValue(c_double, 0.0)
        self._stop, self._stop_s = _context.RawValue(c_int64, PRODUCTS_MAX), math.inf
        self._pipe, theirs = _context.Pipe()
        self._process = _context.Process(
            target=_work_on, args=(theirs, work, batches, self._place, self._since_s, self._stop), daemon=True,
            name="headrace-work",
        )  # fmt: skip
        self._process.start()
        theirs.close()
        self._tasks = threading.Semaphore(0)
        self._is_stopped = False
        OnceThread(self._talk, "headrace-work").start()

    def begin(self, task: Task) -> None:
        self.task, self._stop.value, self._stop_s = task, PRODUCTS_MAX, math.inf
        self._tasks.release()

    @property
    def has_started(self) -> bool:
        return bool(self._place.value != _STARTING)

    @property
    def place(self) -> int:
        return int(self._place.value)

    def _talk(self) -> None:
        while True:
            self._tasks.acquire()
            if self._is_stopped:
                self._pipe.close()
                self._process.join()
                return
            task = self.task
            assert task is not None
            slices = task.slices.tolist()  # the task has fewer later, if the node takes some back
            try:
                self._pipe.send_bytes(pickle.dumps((slices, [_packed(each) for each in task.batches()])))
                outcome = _unpickled(self._pipe.recv_bytes(), slices)
            except (EOFError, OSError):
                self._process.join()
                if self._is_given_up:
                    return
                why = f"the process ended with {_status(self._process.exitcode)}"
                self._is_given_up = True
                outcome = given_up(len(slices), self._place.value, why)
            if not self._is_given_up or outcome.ended:
                self._finished(self, task, outcome)
            if self._is_given_up:
                return

    def give_up(self, why: str) -> Outcome:
        assert self.task is not None
        self._is_given_up = True
        outcome = given_up(len(self.task), self._place.value, why)
        with suppress(ProcessLookupError, TypeError):
            os.kill(self._process.pid, signal.SIGKILL)  # type: ignore[arg-type]
        return outcome

    def keep_rest(self) -> tuple[int, Outcome | None] | None:
        place, now_s = self._place.value, time.monotonic()
        if self._batches or place < 0:
            return None
        if self._stop.value == PRODUCTS_MAX:
            self._stop.value, self._stop_s = place + 1, now_s
        if now_s < self._stop_s + _SEEN_S:
            return None
        self._stop_s = math.inf  # once is enough
        return place, None  # what became of the others is in the other process

    def hangs_since(self) -> float | None:
        return float(self._since_s.value) if self._place.value >= 0 else None

    def stop(self) -> None:
        self._is_stopped = True
        self._tasks.release()


class _SharedPulse(Pulse):
    """A pulse in memory that the node reads."""

    def __init__(self, place: Any, since_s: Any, stop: Any) -> None:
        object.__setattr__(self, "shared", (place, since_s, stop))

    @property
    def stop(self) -> int:  # type: ignore[override]
        return int(self.shared[2].value)  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> None:
        place, since_s, _ = self.shared  # type: ignore[attr-defined]
        if name in ("place", "since_s"):
            (place if name == "place" else since_s).value = value


def _work_on(pipe: Connection, work: Work, batches: bool, place: Any, since_s: Any, stop: Any) -> None:
    """The child: one task after the other, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the node decides when it ends
    _die_with_node()
    place.value = _IDLE
    pulse, names = _SharedPulse(place, since_s, stop), Names()
    with suppress(EOFError, OSError):
        while True:
            slices, packed = pickle.loads(pipe.recv_bytes())
            read = [batch_of(each[0], each[1], names) for each in packed]
            if batches:
                outcome = work_on_batches(read, work, pulse)
            else:
                outcome = work_through((product for batch in read for product in batch), slices, work, pulse)
            pipe.send_bytes(_pickled(outcome, slices))


def _die_with_node() -> None:
    """Let the kernel kill this process when the node ends, also in a call of native code that never returns.

    The node holds one end of a pipe for nothing else; its end closes that, which is signalled here.
    """
    node = multiprocessing.parent_process()
    assert node is not None
    fcntl.fcntl(node.sentinel, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(node.sentinel, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(node.sentinel, fcntl.F_SETFL, fcntl.fcntl(node.sentinel, fcntl.F_GETFL) | os.O_ASYNC)
    if wait([node.sentinel], 0):  # it ended before
        os._exit(1)


def _pickled(outcome: Outcome, slices: Sequence[int]) -> bytes:
    """An outcome as the child sends it. A result that cannot be sent is a failure of its product."""
    return pickle.dumps(tuple(_each_result(outcome, slices, pickle.dumps, "cannot be sent to the node")))


def _unpickled(message: bytes, slices: Sequence[int]) -> Outcome:
    return _each_result(Outcome(*pickle.loads(message)), slices, pickle.loads, "cannot be read by the node")


def _each_result(outcome: Outcome, slices: Sequence[int], change: Callable[[Any], Any], fault: str) -> Outcome:
    results: list[tuple[int, Any]] = []
    failures: list[tuple[int, str]] = []
    for place, value in outcome.results:
        try:
            results.append((place, change(value)))
        except Exception as error:  # noqa: BLE001 - a user's class may raise anything
            failures.append((place, f"the result {fault}: {error_text(error)}"))
    changed = outcome._replace(results=results)
    return without(changed, failures, slices) if failures else changed


def _packed(batch: Batch) -> tuple[Any, bytes]:
    return products_of(batch, batch.next, len(rows_of(batch)))


def _status(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"status {code}"
