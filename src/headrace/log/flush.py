"""Flush: make what was put survive a power failure.

Under `disk`, a put returns when its product is on the disk, and readers see it only then. Many puts share one flush:
while one process flushes, the others append, and the next flush takes them all. Under `process` a thread flushes once a
second as long as there is something new. Under `memory` nothing is ever flushed.
"""

import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.guard import GuardedThread
from headrace.kernel import _kernel as kernel
from headrace.log.explain import segment_path
from headrace.log.place import check_place
from headrace.log.seams import Storage

FLUSH_INTERVAL_S = 1.0
COMMIT_RECHECK_S = 0.2  # if the process that flushes dies, the next takes over after this

logger = logging.getLogger("headrace.queue")


def flush(path: Path, log: kernel.Log, storage: Storage) -> None:
    """Make everything appended so far durable, and visible if it was waiting for that."""
    with log.held_for_sync():
        _flush_and_publish(path, log, storage)


def commit(path: Path, log: kernel.Log, storage: Storage, sequence: int) -> None:
    """Return when `sequence` is durable and visible. The first caller flushes for all that wait."""
    while log.head <= sequence:
        with log.held_for_sync(patient=False) as mine:
            if mine and log.head <= sequence:
                _flush_and_publish(path, log, storage)
        if not mine:
            log.wait_once(sequence, COMMIT_RECHECK_S)


def _flush_and_publish(path: Path, log: kernel.Log, storage: Storage) -> None:
    """After the disk has refused a flush, a later success proves nothing: every flush fails until all processes have
    closed the queue and it was opened again.
    """
    check_place(log, path, always=True)
    state = log.state
    if state["sync_failed"]:
        raise OSError(errno.EIO, "an earlier flush failed; stop all programs that use the queue, then open it again")
    try:
        _flush_to(path, log, storage, state)
    except OSError:
        check_place(log, path, always=True)  # the disk refused nothing if the files are elsewhere
        log.set_state(sync_failed=1)
        raise
    log.publish(state["tail"])


def _flush_to(path: Path, log: kernel.Log, storage: Storage, state: "kernel.State") -> None:
    names = state["feeds_end"] + state["origins_end"]
    if names != state["synced_names"]:  # before the segments: rows refer to them
        storage.sync_file(path / "names")
        log.set_state(synced_names=names)
    if state["tail"] <= state["synced"]:
        return
    for number in range(state["segment_oldest"], state["segment_newest"] + 1):
        entry = log.entry(number)
        if entry["number"] == number and (not entry["end"] or entry["end"] > state["synced"]):
            _sync_segment(path, entry["file"], storage)
    if state["synced_file"] < state["next_file"]:
        storage.sync_directory(path / "segments")
    check_place(log, path, always=True)  # a segment that is not there was evicted, and not moved away with the others
    log.set_state(synced=state["tail"], synced_file=state["next_file"])


def _sync_segment(path: Path, file: int, storage: Storage) -> None:
    try:
        storage.sync_file(segment_path(path, file))
    except FileNotFoundError:
        return  # it was evicted in the meantime


class Flusher:
    """The thread that, from the first put on, flushes and evicts what is too old once a second."""

    def __init__(
        self, path: Path, log: kernel.Log, storage: Storage, mind_stations: Callable[[], None],
        save_stations: Callable[[], None],
    ) -> None:  # fmt: skip
        self._path, self._log, self._storage = path, log, storage
        self._mind_stations, self._save_stations = mind_stations, save_stations
        self._ending = threading.Event()
        self.failure: Exception | None = None
        self._thread = GuardedThread(self._run, "headrace-flush", until=self._ending.is_set, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(FLUSH_INTERVAL_S):
            self._flush()

    def _flush(self) -> None:
        failure: Exception | None = None
        try:
            self._mind_stations()
            with self._log.held():
                kernel.apply_limits(self._log, 0)
        except (OSError, HeadraceError, kernel.KernelError) as error:
            failure = error
        try:
            flush(self._path, self._log, self._storage)
            self._storage.sync_file(self._path / "cursors")
            self._save_stations()
        except (OSError, HeadraceError, kernel.KernelError) as error:
            failure = error
        self._note(failure)

    def _note(self, failure: Exception | None) -> None:
        """Keep the failure for `statistics`, and log it when it begins, changes and ends."""
        before, self.failure = self.failure, failure
        if failure is not None and str(failure) != str(before):
            logger.warning("products and positions of %s are not saved: %s", self._path, failure)
        elif failure is None and before is not None:
            logger.warning("products and positions of %s are saved again", self._path)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
