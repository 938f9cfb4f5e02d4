"""Flushing: getting what was put onto the disk.

Under `disk`, a put returns when its product is there, and readers see it only then. Many puts share one flush: while
one process flushes, the others append, and the next flush takes them all. Under `process` a thread flushes once a
second for as long as there is something new. Under `memory` nothing is ever flushed.
"""

import threading
from pathlib import Path

from headrace.queue.directory import segment_path
from headrace.queue.kernel import _kernel as kernel
from headrace.queue.storage import Storage

FLUSH_INTERVAL_S = 1.0


def flush(path: Path, log: kernel.Log, storage: Storage, wanted: int | None = None) -> None:
    """Make everything below `tail` durable, unless `wanted` has become visible meanwhile."""
    log.lock_sync()
    try:
        if wanted is not None and log.head > wanted:
            return
        state = log.state
        tail = state["tail"]
        names = state["feeds_end"] + state["origins_end"]
        if names != state["synced_names"]:  # before the segments: rows refer to them
            storage.sync_file(path / "names")
            log.set_state(synced_names=names)
        if tail > state["synced"]:
            for number in range(state["segment_oldest"], state["segment_newest"] + 1):
                entry = log.entry(number)
                if entry["number"] == number and (not entry["end"] or entry["end"] > state["synced"]):
                    _sync_segment(path, entry["file"], storage)
            if state["synced_file"] < state["next_file"]:
                storage.sync_directory(path / "segments")
            log.set_state(synced=tail, synced_file=state["next_file"])
        log.publish(tail)
    finally:
        log.unlock_sync()


def _sync_segment(path: Path, file: int, storage: Storage) -> None:
    try:
        storage.sync_file(segment_path(path, file))
    except FileNotFoundError:
        return  # evicted meanwhile


class Flusher:
    """The thread that flushes once a second under durability `process`; it starts with the first put."""

    def __init__(self, path: Path, log: kernel.Log, storage: Storage) -> None:
        self._path, self._log, self._storage = path, log, storage
        self._ending = threading.Event()
        self.failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-flush", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(FLUSH_INTERVAL_S):
            self._flush()

    def _flush(self) -> None:
        try:
            flush(self._path, self._log, self._storage)
            self._storage.sync_file(self._path / "cursors")
            self.failure = None
        except OSError as error:
            self.failure = error  # shown by statistics(), tried again in a second

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
