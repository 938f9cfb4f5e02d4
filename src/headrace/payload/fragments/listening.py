"""Listening: the receipts for one sender, as they arrive. A thread follows them; another takes them."""

import threading
from collections import deque
from collections.abc import Collection, Iterator
from typing import Protocol

from headrace.errors import HeadraceError
from headrace.guard import GuardedThread
from headrace.payload.fragments.receipt import Receipt, decode_receipt
from headrace.product.batch import Batch

_STOPS = 100  # a stop is missed by a thread that is just about to sleep
_STOP_S = 0.05


class Following(Protocol):
    """What follows the receipts."""

    def __iter__(self) -> Iterator[Batch]: ...
    def stop(self) -> None: ...


class Listener:
    """Call `start` once, and `stop` at the end."""

    def __init__(self, sites: Collection[str] = ()) -> None:
        """Only receipts that were put at these sites count; without any, all do. `ignored` counts the others."""
        self._sites, self.ignored = frozenset(sites), 0
        self._came: deque[Receipt] = deque()
        self._is_woken = threading.Event()
        self._error: HeadraceError | None = None
        self._is_stopped = False
        self._follower: Following | None = None
        self._thread: threading.Thread | None = None

    def start(self, follower: Following) -> None:
        self._follower = follower
        self._thread = GuardedThread(
            self._listen, "headrace-receipts", args=(follower,), until=lambda: self._is_stopped, daemon=True
        )
        self._thread.start()

    def take(self) -> Iterator[Receipt]:
        """What has come; then the error that ended the thread, if one has."""
        self._is_woken.clear()
        while self._came:
            yield self._came.popleft()
        if self._error is not None:
            raise self._error

    def wait(self, timeout_s: float) -> None:
        """Until a receipt has come, or the thread has ended."""
        self._is_woken.wait(timeout_s)

    def stop(self) -> None:
        self._is_stopped = True
        for _ in range(_STOPS):
            if self._follower is not None and self._thread is not None and self._thread.is_alive():
                self._follower.stop()
                self._thread.join(_STOP_S)

    def _listen(self, follower: Following) -> None:
        try:
            for batch in follower:
                for product in batch:
                    if self._sites and product.origin not in self._sites:
                        self.ignored += 1
                        continue
                    try:
                        self._came.append(decode_receipt(product.payload))
                    except HeadraceError:  # not by a receiver of ours
                        continue
                self._is_woken.set()
        except HeadraceError as error:
            self._error = error
            self._is_woken.set()
