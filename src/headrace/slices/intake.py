"""Intake: one reader for all slices of a node.

    front   all slices that are up to date, read by one follower as products arrive
    lag     slices that came later and begin further back, read up to the front in turns with it, then joined to it

So a slice that is added or taken away changes what is read from the next product on: nothing is restarted, and the
other slices do not wait. It is exact by sequence: a slice joins the front at the very position that its lag has
reached. Both are plain reads with a selection of slices, so they are the same on a queue elsewhere.

A slice that is taken away disturbs the others even less: the front goes on with the wider selection for a second, or
until it falls behind, and what it reads of that slice is skipped.

Every change has a number, and every batch the number of the last change before it was read. The node discards rows of a
slice that were read before the slice came (again).
"""

import math
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from headrace.errors import HeadraceError
from headrace.guard import OnceThread
from headrace.log.follow import AnyFollower
from headrace.product.batch import Batch
from headrace.queue.interface import AnyQueue
from headrace.selection import Selection
from headrace.share.interface import Flags, Marks, Slices

ROWS = 8192  # in one batch
BYTES = 16 << 20
_PAUSE_S = 0.2  # after an error
_IDLE_S = 1.0
_STOP_S = 2.0  # for the thread to end; a call to a site that is away may take longer, and then counts for nothing
SPANS_MAX = 1000  # of slices in one selection, whose text a site has to accept
_WIDE_S = 1.0  # with slices that were taken away
_FOLLOW_S = 2.0  # without a product; after a change of slices, a site forgets the read only then


class Intaken(NamedTuple):
    """What was read: everything of these slices up to `next`."""

    batch: Batch | None  # None: nothing
    next: int
    slices: Flags
    change: int  # the last one before the read


class Intake:
    """The reader of one node, in a thread of its own."""

    def __init__(
        self, queue: AnyQueue, feed: str, slices: int, post: Callable[[Intaken | Exception], None],
        has_room: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._queue, self._feed, self._post, self._has_room = queue, feed, post, has_room
        self._front = np.zeros(slices, np.bool_)
        self._lag = np.zeros(slices, np.bool_)
        self._lag_position = 0
        self._follower: AnyFollower | None = None
        self._narrow_s = math.inf  # when the follower is to be made again, because it reads too much
        self._changed = threading.Condition()
        self._added: list[Marks] = []
        self._removed: list[Slices] = []
        self._change = 0
        self._stopped = False
        self._thread = OnceThread(self._run, "headrace-intake")
        self.position = 0  # of the front

    def start(self) -> None:
        self._thread.start()

    def change(self, added: Marks, removed: Slices) -> int:
        """Read other slices from now on: the added ones from their positions. The number of the change."""
        with self._changed:
            self._removed.append(removed)
            self._added.append(added)
            self._change += 1
            if added:
                self._wake()
            else:
                self._changed.notify_all()
            return self._change

    def nudge(self) -> None:
        """There may be room again."""
        with self._changed:
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._wake()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _wake(self) -> None:
        self._changed.notify_all()
        if self._follower is not None:
            self._follower.stop()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped:
            try:
                number = self._take_changes()
                if number is not None:
                    self._read(number)
            except HeadraceError as error:  # the site is away, or the queue was moved: the node hears of it
                self._post(error)
                with self._changed:
                    self._follower = None
                    self._changed.wait(_PAUSE_S)
            except Exception as error:  # noqa: BLE001 - a node that does not read must not keep its slices
                self._post(error)
                return

    def _take_changes(self) -> int | None:
        """Wait for room and something to read; None if there is neither yet. Then the number of the last change."""
        with self._changed:
            if not self._stopped and not (self._added or self._removed) and not self._is_ready():
                self._changed.wait(_IDLE_S)
            for removed, added in zip(self._removed, self._added, strict=True):
                self._apply(removed, added)
            self._added, self._removed = [], []
            return self._change if self._is_ready() and not self._stopped else None

    def _is_ready(self) -> bool:
        return self._has_room() and bool(self._front.any() or self._lag.any())

    def _apply(self, removed: Slices, added: Marks) -> None:
        self._front[removed] = self._lag[removed] = False
        self._narrow_s = min(self._narrow_s, time.monotonic() + _WIDE_S)
        if added or not self._front.any():
            self._follower = None
        if added:
            if not self._front.any():
                self.position = int(added.positions.max())
            behind = added.positions < self.position
            self._front[added.slices[~behind]] = True
            if behind.any():
                first = int(added.positions[behind].min())
                self._lag_position = min(first, self._lag_position) if self._lag.any() else first
                self._lag[added.slices[behind]] = True

    def _read(self, number: int) -> None:
        if self._lag.any():
            self._read_lag(number)
        if self._front.any():
            self._read_front(number)

    def _read_lag(self, number: int) -> None:
        batch = self._queue.read_batch(
            self._lag_position, self._selection(self._lag), limit=ROWS, bytes_limit=BYTES, stop=self.position
        )
        self._post(Intaken(batch, batch.next, self._lag.copy(), number))
        self._lag_position = batch.next
        if batch.next >= self.position:  # up to date: from here on they are read with the others
            self._front |= self._lag
            self._lag[:] = False
            self._follower = None

    def _read_front(self, number: int) -> None:
        follower = self._follower
        if follower is None or time.monotonic() >= self._narrow_s:
            self._narrow_s = math.inf
            follower = self._queue.follow(self.position, self._selection(self._front), limit=ROWS, bytes_limit=BYTES)
            with self._changed:
                self._follower = follower
                if self._added or self._removed or self._stopped:
                    return
        batch = follower.next_nowait()
        if follower.position > self.position:
            self.position = follower.position
            self._post(Intaken(batch, self.position, self._front.copy(), number))
            if batch is not None and 2 * len(batch) >= ROWS and self._narrow_s < math.inf:
                self._narrow_s = 0.0  # it is behind: read no more than necessary
        elif not self._lag.any():
            follower.wait(_FOLLOW_S)

    def _selection(self, slices: Flags) -> Selection:
        return Selection(feed=self._feed, slices=np.flatnonzero(in_spans(slices)).tolist())


def in_spans(slices: Flags, spans_max: int = SPANS_MAX) -> Flags:
    """These slices; if they have too many gaps, also those in the smallest gaps, which the node then skips."""
    numbers = np.flatnonzero(slices)
    gaps = np.diff(numbers)
    if np.count_nonzero(gaps > 1) < spans_max:
        return slices
    breaks = np.sort(np.argpartition(gaps, -(spans_max - 1))[-(spans_max - 1) :])
    wider = np.zeros(len(slices) + 1, np.int64)
    np.add.at(wider, numbers[np.append(0, breaks + 1)], 1)
    np.add.at(wider, numbers[np.append(breaks, len(numbers) - 1)] + 1, -1)
    spanned: Flags = np.cumsum(wider)[:-1] > 0
    return spanned
