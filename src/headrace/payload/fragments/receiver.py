"""Receiver: joins the fragments of a feed to files in a directory, and tells senders what it misses.

    queue ──follow──► fragments ──hash, write at their place──► partial file ──all there, all equal──► its name
                          └──► receipts, a product each, to FEED/receipts

It reports what it misses when it is asked, when it has read a part of its queue, and when it has read all of it
(receipt.py). Then the sender sends that again, and nothing else. A fragment that is damaged, of the wrong size, or was
evicted before it was read is simply missing.

A full disk stops reading: nothing is dropped, the sender learns why it waits, and both go on when there is space.

Here is the loop: read, write, save the position, ask. What becomes of each transfer is in arrivals.py, the receipts in
reports.py, the state across a restart in inbox.py and journal.py.
"""

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.errors import FabricMessageError, ProductDamagedError, TransferIncompleteError
from headrace.payload.fragments import partial
from headrace.payload.fragments.arrivals import Arrivals
from headrace.payload.fragments.inbox import Inbox
from headrace.payload.fragments.journal import Entry
from headrace.payload.fragments.mark import mark_of
from headrace.payload.fragments.receiving import Received, ReceiverStatistics, Receiving
from headrace.payload.fragments.reports import REPORT_S, ReceiveQueue, Reports
from headrace.product.batch import Batch
from headrace.units import format_count

__all__ = ["FileReceiver", "Received", "ReceiverStatistics"]

_BATCH_BYTES = 32 << 20
_SAVE_S = 0.2
_ASK_S = (2.0, 5.0, 10.0, 30.0, 60.0)
_FULL_S = 1.0  # before a full disk is tried again
_SLEEP_S = 0.5
_FULL = (errno.ENOSPC, errno.EDQUOT)


class FileReceiver:
    """Receives the files of one feed: call `run`."""

    def __init__(
        self, queue: ReceiveQueue, root: Path, feed: str, *, existing: str = "refuse", size_max: int | None = None,
        once: bool = False, count: int | None = None, timeout_s: float | None = None,
        on_received: Callable[[Received], None] = lambda received: None,
        on_progress: Callable[[ReceiverStatistics], None] = lambda statistics: None,
    ) -> None:  # fmt: skip
        """`existing` is what to do if a file has the name already: refuse, replace or number.

        `once` ends with the files that are in the queue now, `count` after so many. `timeout_s` is how long to wait
        without any fragment.
        """
        self._queue, self._feed, self._once, self._count, self._timeout_s = queue, feed, once, count, timeout_s
        self.on_progress = on_progress
        root.mkdir(parents=True, exist_ok=True)
        self._inbox = Inbox(root)
        self._config = queue.config
        self._queue_key = f"{self._config.uuid} {feed}"
        self._where = f"{os.uname().nodename}:{root.absolute()}"
        self._open: dict[str, Receiving] = {}
        self.statistics = ReceiverStatistics()
        self._reports = Reports(queue, feed, self._where, self._inbox, self.statistics, self._open)
        self._arrivals = Arrivals(
            root, self._inbox, self._config, self._open, self._reports, self.statistics, existing=existing,
            size_max=size_max, on_received=on_received,
        )  # fmt: skip
        self._writers = ThreadPoolExecutor(2, "headrace-join")
        self._saved_s = 0.0
        self._stopped = False
        self._follower: Any = None

    def stop(self) -> None:
        """End `run` soon; from a signal handler or another thread."""
        self._stopped = True
        if self._follower is not None:
            self._follower.stop()

    def run(self) -> ReceiverStatistics:
        """Receive until the end that was asked for. TransferIncompleteError if something is missing then."""
        try:
            self._resume()
            start = self._inbox.position(self._queue_key)
            follower = self._queue.follow("oldest" if start is None else start, self._feed, bytes_limit=_BATCH_BYTES)
            self._follower = follower
            end = self._queue.next
            while not self._stopped:
                batch = self._next(follower)
                if batch is not None:
                    self._take(batch)
                    self._rewind(follower)
                    self._save(follower.position)
                    self.on_progress(self._told())
                elif self._is_over(follower.position >= end):
                    break
                else:
                    self._idle(follower)
            self._save(follower.position, now=True)
        finally:
            self._writers.shutdown()
            self._arrivals.close()
            self._inbox.close()
        return self._told()

    def _told(self) -> ReceiverStatistics:
        told, partials = self.statistics, [receiving.partial for receiving in self._open.values()]
        told.open, told.open_bytes = len(partials), sum(each.manifest.size for each in partials)
        told.held_bytes = sum(each.held_bytes for each in partials)
        return told

    # --- one turn -----------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Go on with what was begun before this process."""
        for begun in partial.begun_in(self._inbox.folder):
            self._store(lambda begun=begun: self._arrivals.resume(begun))  # type: ignore[misc]
        self._store(self._arrivals.name_complete)

    def _next(self, follower: Any) -> Batch | None:
        try:
            batch: Batch | None = follower.next_nowait()
        except ProductDamagedError as error:
            self.statistics.bad += 1
            follower.position = error.next
            return None
        return batch

    def _rewind(self, follower: Any) -> None:
        """Read fragments again whose manifest came behind them: the one before them was evicted."""
        if self._arrivals.rewind_to is not None:
            follower.position, self._arrivals.rewind_to = min(follower.position, self._arrivals.rewind_to), None

    def _idle(self, follower: Any) -> None:
        """All that is in the queue was read."""
        self._ask_again()
        self._reports.report()
        self._save(follower.position)
        self.on_progress(self._told())
        follower.wait(REPORT_S if self._reports.is_due else _SLEEP_S)

    def _save(self, position: int, now: bool = False) -> None:
        if now or time.monotonic() - self._saved_s >= _SAVE_S:
            with suppress(OSError):  # a full disk: what is read again does no harm
                self._inbox.save(self._queue_key, position)
            self._saved_s = time.monotonic()

    def _is_over(self, has_read_all: bool) -> bool:
        """Whether the end has come that was asked for; called when there is nothing to read."""
        if self._count is not None and self.statistics.finished + self.statistics.refused >= self._count:
            self._reports.report(now=True)
            return True
        if self._once and has_read_all and not self._open and not self._arrivals.unknown:
            self._reports.report(now=True)
            return True
        if self._timeout_s is None or time.monotonic() - self._arrivals.moved_s < self._timeout_s:
            return False
        self._reports.report(now=True)
        if self._open or self._arrivals.unknown:
            raise TransferIncompleteError(
                f"nothing came for {self._timeout_s:g} s: {self._waits_for()}",
                "run headrace send again at the other end; what is here is kept, and not sent again",
            )
        if self._count is not None:
            came = self.statistics.finished + self.statistics.refused
            raise TransferIncompleteError(
                f"nothing came for {self._timeout_s:g} s: {came} of {format_count(self._count, 'file')} came",
                f"check that the sender runs, and sends through feed {self._feed}",
            )
        return True

    # --- products -----------------------------------------------------------------------------------

    def _take(self, batch: Batch) -> None:
        """Deal with a batch; again and again while the disk is full."""
        if batch.lost is not None:
            self.statistics.lost += batch.lost.products
        self._store(lambda: self._take_products(batch))
        self._reports.report_progress()

    def _store(self, act: Callable[[], None]) -> None:
        """Do what writes to the disk, until there is space; what was done is not done again."""
        while not self._stopped:
            try:
                act()
                return
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._wait_for_space()
        self.statistics.waits_for = ""

    def _wait_for_space(self) -> None:
        problem = f"the disk of {self._where} is full"
        self.statistics.waits_for = problem
        for receiving in self._open.values():
            receiving.is_due = receiving.is_due or receiving.problem != problem
            receiving.problem = problem
        self._reports.report()
        self.on_progress(self._told())
        time.sleep(_FULL_S)

    def _take_products(self, batch: Batch) -> None:
        writes: list[tuple[Receiving, int, memoryview]] = []
        seen: dict[str, int] = {}
        for product in batch:
            mark = mark_of(product)
            if mark is None:
                self.statistics.invalid += 1
            elif mark.is_manifest:
                self._write(writes)
                self._see(seen)
                writes = []
                self._arrivals.take_manifest(product, mark)
            elif (wanted := self._arrivals.wanted(product, mark)) is not None:
                writes.append((wanted, mark.number, product.part))
            seen[product.origin] = product.origin_sequence
        self._write(writes)
        self._arrivals.name_complete()
        self._see(seen)

    def _see(self, seen: dict[str, int]) -> None:
        """Everything up to there is written, or is missing for good."""
        for origin, sequence in seen.items():
            self._inbox.seen[origin] = max(self._inbox.seen.get(origin, 0), sequence)

    def _write(self, writes: list[tuple[Receiving, int, memoryview]]) -> None:
        """Write fragments at once, and record those that were."""
        jobs = [(each[0], self._writers.submit(each[0].partial.write, each[1], each[2])) for each in writes]
        entries: dict[str, list[Entry]] = {}
        failed: OSError | None = None
        for receiving, job in jobs:
            try:
                entries.setdefault(receiving.partial.manifest.transfer, []).append(job.result())
            except FabricMessageError:
                self.statistics.bad += 1
            except OSError as error:
                failed = error
        for transfer, written in entries.items():
            self._arrivals.record(self._open[transfer], written)
        if failed is not None:
            raise failed

    # --- asking ------------------------------------------------------------------------------------

    def _ask_again(self) -> None:
        """Report files again for which nothing came for a while."""
        now = time.monotonic()
        for receiving in self._open.values():
            if now - receiving.moved_s > _ASK_S[min(receiving.asks, len(_ASK_S) - 1)]:
                receiving.moved_s, receiving.is_due = now, True
                receiving.asks += 1
                self.statistics.asked += 1
                self.statistics.waits_for = self._waits_for()

    def _waits_for(self) -> str:
        """What is missing, for people."""
        receiving = next(iter(self._open.values()), None)
        if receiving is None:
            return (
                f"asked the sender for the manifest of {next(iter(self._arrivals.unknown.values()), (0, 'a file'))[1]}"
            )
        manifest, missing = receiving.partial.manifest, int((~receiving.partial.held).sum())
        more = f" and {format_count(len(self._open) - 1, 'more file')}" if len(self._open) > 1 else ""
        what = (
            f"{missing:,} of {format_count(manifest.count, 'fragment')} of {manifest.name}{more}"
            if missing
            else f"the hashes of {manifest.name}{more}"
        )
        return (
            f"asked the sender for {what}: not sent yet, still on the way (is a link down?), or evicted from the queue"
        )
