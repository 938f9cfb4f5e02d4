"""Receiver: joins the fragments of a feed to files in a directory, and tells senders what it misses.

    queue ──follow──► fragments ──hash, write at their place──► partial file ──all there, all equal──► its name
                          └──► receipts, a product each, to FEED/receipts

It reports what it misses when it is asked, when it has read a part of its queue, and when it has read all of it
(receipt.py). Then the sender sends that again, and nothing else. A fragment that is damaged, of the wrong size, or was
evicted before it was read is simply missing.

A full disk stops reading: nothing is dropped, the sender learns why it waits, and both go on when there is space.

Nothing that a sender says is believed: names stay inside the directory, sizes are bounded, hashes are compared.
"""

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Unpack

from headrace.errors import (
    AccessDeniedError,
    FabricMessageError,
    HeadraceError,
    NameRefusedError,
    ProductDamagedError,
    TransferIncompleteError,
)
from headrace.log.append import Duplicate
from headrace.log.config import QueueConfig
from headrace.log.seams import Timeout
from headrace.payload.fragments import names, partial
from headrace.payload.fragments.cutting import room_in
from headrace.payload.fragments.inbox import Inbox
from headrace.payload.fragments.journal import Entry
from headrace.payload.fragments.manifest import Manifest, decode_manifest
from headrace.payload.fragments.mark import Mark, mark_of
from headrace.payload.fragments.partial import Partial
from headrace.payload.fragments.ranges import ranges_of
from headrace.payload.fragments.receipt import (
    RANGES_MAX,
    TRANSFERS_MAX,
    Receipt,
    TransferState,
    encode_receipt,
    receipts_feed,
)
from headrace.product.batch import Batch
from headrace.product.product import Product
from headrace.product.put import PutFacts
from headrace.units import format_count, format_size

OPEN_MAX = 1024  # files on their way at once
_BATCH_BYTES = 32 << 20
_REPORT_S = 0.05  # between receipts, unless one is due for another reason
_SAVE_S = 0.2
_ASK_S = (2.0, 5.0, 10.0, 30.0, 60.0)
_FULL_S = 1.0  # before a full disk is tried again
_SLEEP_S = 0.5
_MOVED_S = 10.0  # without a fragment, after which a file may come from another origin
_FULL = (errno.ENOSPC, errno.EDQUOT)


class ReceiveQueue(Protocol):
    """What a receiver needs of a queue, wherever that is."""

    @property
    def config(self) -> QueueConfig: ...
    @property
    def next(self) -> int: ...
    def put(
        self, payload: Any, *, feed: str, ident: str = "", timeout: Timeout = None, **facts: Unpack[PutFacts]
    ) -> int | Duplicate: ...
    def follow(self, start: Any = ..., selection: Any = ..., *, bytes_limit: Any = ...) -> Any: ...


@dataclass(slots=True)
class Receiving:
    """One file on its way."""

    partial: Partial
    origin: str
    is_due: bool = True  # for a receipt
    moved_s: float = field(default_factory=time.monotonic)  # the last fragment, or question
    written_s: float = 0.0  # the last fragment
    asks: int = 0  # how often what is missing was asked for without an answer
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a transfer: done, refused or withdrawn."""

    name: str
    size: int
    state: str
    problem: str = ""
    root: str = ""  # the hash of the whole


@dataclass(slots=True)
class ReceiverStatistics:
    finished: int = 0
    refused: int = 0
    bytes: int = 0  # written
    finished_bytes: int = 0
    repeated: int = 0  # fragments that were there already
    bad: int = 0  # fragments that did not match, and were asked for again
    lost: int = 0  # products that were evicted before they were read
    invalid: int = 0  # messages that are no valid manifest or fragment
    asked: int = 0  # times that missing fragments were asked for because nothing came
    open: int = 0
    open_bytes: int = 0  # of the files on their way
    held_bytes: int = 0  # of those, there already
    waits_for: str = ""


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
        self._queue, self._root, self._feed, self._existing, self._size_max = queue, root, feed, existing, size_max
        self._once, self._count, self._timeout_s = once, count, timeout_s
        self._on_received, self.on_progress = on_received, on_progress
        root.mkdir(parents=True, exist_ok=True)
        self._inbox = Inbox(root)
        self._config = queue.config
        self._queue_key = f"{self._config.uuid} {feed}"
        self._where = f"{os.uname().nodename}:{root.absolute()}"[-255:]
        self._open: dict[str, Receiving] = {}
        self._refused: dict[str, TransferState] = {}
        self._unknown: dict[str, tuple[int, str]] = {}  # fragments without a manifest: sequence and ident of the first
        self._products: dict[str, None] = {}  # transfers that are no files
        self._rewind_to: int | None = None  # fragments from there on came before their manifest
        self._due: dict[str, dict[str, TransferState]] = {}  # by origin: states to report besides those of open files
        self._writers = ThreadPoolExecutor(2, "headrace-join")
        self._unreported = 0  # bytes
        self._reported_s = self._saved_s = 0.0
        self._moved_s = time.monotonic()
        self._may_report = True
        self._stopped = False
        self._follower: Any = None
        self.statistics = ReceiverStatistics()

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
            for receiving in self._open.values():
                receiving.partial.close()
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
            if begun.has_name:
                self._inbox.note_done(begun.manifest.transfer, begun.manifest.name)
                partial.forget(self._inbox.folder, begun.manifest.transfer)
            else:
                self._store(lambda begun=begun: self._begin(begun.manifest, begun.origin))  # type: ignore[misc]

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
        if self._rewind_to is not None:
            follower.position, self._rewind_to = min(follower.position, self._rewind_to), None

    def _idle(self, follower: Any) -> None:
        """All that is in the queue was read."""
        self._ask_again()
        self._report()
        self._save(follower.position)
        self.on_progress(self._told())
        is_due = self._due or any(receiving.is_due for receiving in self._open.values())
        follower.wait(_REPORT_S if is_due else _SLEEP_S)

    def _save(self, position: int, now: bool = False) -> None:
        if now or time.monotonic() - self._saved_s >= _SAVE_S:
            with suppress(OSError):  # a full disk: what is read again does no harm
                self._inbox.save(self._queue_key, position)
            self._saved_s = time.monotonic()

    def _is_over(self, has_read_all: bool) -> bool:
        """Whether the end has come that was asked for; called when there is nothing to read."""
        if self._count is not None and self.statistics.finished + self.statistics.refused >= self._count:
            self._report(now=True)
            return True
        if self._once and has_read_all and not self._open and not self._unknown:
            self._report(now=True)
            return True
        if self._timeout_s is None or time.monotonic() - self._moved_s < self._timeout_s:
            return False
        self._report(now=True)
        if self._open or self._unknown:
            raise TransferIncompleteError(
                f"nothing came for {self._timeout_s:g} s: {self._waits_for()}",
                "run headrace send again at the other end; what is here is kept, and not sent again",
            )
        return True

    # --- products -----------------------------------------------------------------------------------

    def _take(self, batch: Batch) -> None:
        """Deal with a batch; again and again while the disk is full."""
        if batch.lost is not None:
            self.statistics.lost += batch.lost.products
        self._store(lambda: self._take_products(batch))
        if self._unreported >= self._room() // 8:
            self._report(now=True)

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
        self._report()
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
                self._take_manifest(product, mark)
            elif (wanted := self._wanted(product, mark)) is not None:
                writes.append((wanted, mark.number, product.part))
            seen[product.origin] = product.origin_sequence
        self._write(writes)
        self._see(seen)

    def _see(self, seen: dict[str, int]) -> None:
        """Everything up to there is written, or is missing for good."""
        for origin, sequence in seen.items():
            self._inbox.seen[origin] = max(self._inbox.seen.get(origin, 0), sequence)

    def _wanted(self, product: Product, mark: Mark) -> Receiving | None:
        """The file that this fragment belongs to, if it is missing there."""
        receiving = self._open.get(mark.transfer)
        if receiving is None:
            if not any(mark.transfer in known for known in (self._inbox.done, self._refused, self._products)):
                if len(self._unknown) < OPEN_MAX:
                    self._unknown.setdefault(mark.transfer, (product.sequence, product.ident))
                self._note(product.origin, TransferState(mark.transfer, "unknown"))
            return None
        if receiving.origin != product.origin or mark.count != receiving.partial.manifest.count:
            self.statistics.invalid += 1
            return None
        receiving.is_due = True
        if receiving.partial.held[mark.number]:
            self.statistics.repeated += 1
            return None
        return receiving

    def _write(self, writes: list[tuple[Receiving, int, memoryview]]) -> None:
        """Write fragments at once, record those that were, and finish files that are complete."""
        jobs = [(each[0], self._writers.submit(each[0].partial.write, *each[1:])) for each in writes]
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
            self._record(self._open[transfer], written)
        if failed is not None:
            raise failed

    def _record(self, receiving: Receiving, written: list[Entry]) -> None:
        receiving.partial.record(written)
        size = sum(receiving.partial.manifest.length_of(number) for number, _ in written)
        self.statistics.bytes += size
        self._unreported += size
        receiving.moved_s = receiving.written_s = self._moved_s = time.monotonic()
        receiving.asks, receiving.problem, self.statistics.waits_for = 0, "", ""
        if receiving.partial.is_complete:
            self._finish(receiving)

    # --- manifests ----------------------------------------------------------------------------------

    def _take_manifest(self, product: Product, mark: Mark) -> None:
        try:
            manifest = decode_manifest(product.part)
            if manifest.transfer != mark.transfer or manifest.count != mark.count:
                raise FabricMessageError("the manifest does not belong to its product", "it is refused")
        except HeadraceError as error:
            self.statistics.invalid += 1
            if mark.transfer not in self._open and mark.transfer not in self._inbox.done:
                self._refuse(mark.transfer, product.ident, 0, product.origin, error.problem)
            return
        if manifest.kind == "product":
            self._note_product(mark.transfer)
        elif manifest.withdrawn:
            self._withdraw(manifest, product.origin)
        elif manifest.transfer in self._refused:
            self._note(product.origin, self._refused[manifest.transfer])
        elif manifest.transfer in self._inbox.done and not self._is_asked_again(manifest):
            self._note(product.origin, TransferState(manifest.transfer, "done"))
        else:
            self._accept(manifest, product.origin)

    def _is_asked_again(self, manifest: Manifest) -> bool:
        """Whether a finished file was removed since, and the sender sends it once more."""
        with names.folder_of(self._root, manifest.name) as (folder, last):
            is_gone = manifest.asks and names.found(folder, last) is None
        if is_gone:
            self._inbox.forget_done(manifest.transfer)
        return is_gone

    def _accept(self, manifest: Manifest, origin: str) -> None:
        if self._is_foreign(manifest, origin):
            self.statistics.invalid += 1
            return
        try:
            self._check(manifest)
            if manifest.kind == "directory":
                names.make_folder(self._root, manifest.name, manifest.mode)
                self._note_finished(manifest, manifest.name, origin)
                return
            self._begin(manifest, origin)
        except HeadraceError as error:
            self._refuse(manifest.transfer, manifest.name, manifest.size, origin, error.problem)

    def _is_foreign(self, manifest: Manifest, origin: str) -> bool:
        """Whether somebody else speaks of a file on its way. Its sender may go on at another site after a while."""
        receiving = self._open.get(manifest.transfer)
        if receiving is None:
            return False
        is_silent = time.monotonic() - receiving.written_s > _MOVED_S
        return (origin != receiving.origin and not is_silent) or not receiving.partial.manifest.describes_same(manifest)

    def _check(self, manifest: Manifest) -> None:
        """Raise if the file will not be received: better now than when all of it has come."""
        if manifest.transfer in self._open:
            return
        if self._size_max is not None and manifest.size > self._size_max:
            raise NameRefusedError(
                f"{manifest.name!r} has {format_size(manifest.size)}, and the limit is {format_size(self._size_max)}",
                "receive with a larger --size-max",
            )
        fragment_bytes_max = self._config.payload_bytes_max
        if min(manifest.fragment_bytes, manifest.size) > fragment_bytes_max:
            raise NameRefusedError(
                f"{manifest.name!r} comes in fragments of {format_size(manifest.fragment_bytes)}, and the queue of the "
                f"receiver takes {format_size(fragment_bytes_max)} at most",
                "receive from a larger queue, or send through a smaller one",
            )
        if len(self._open) >= OPEN_MAX:
            raise NameRefusedError(f"{OPEN_MAX} files are on their way already", "wait until some are finished")
        if manifest.kind == "file":
            with names.folder_of(self._root, manifest.name) as (folder, last):
                partial.allowed_name(folder, last, self._existing)

    def _begin(self, manifest: Manifest, origin: str) -> None:
        """Begin or continue a file, with what this manifest says."""
        receiving = self._open.get(manifest.transfer)
        if receiving is None:
            receiving = Receiving(Partial(self._inbox.folder, manifest, origin), origin)
            self._open[manifest.transfer] = receiving
            self._moved_s = time.monotonic()
            if manifest.transfer in self._unknown:
                first, _ = self._unknown.pop(manifest.transfer)
                self._rewind_to = first if self._rewind_to is None else min(first, self._rewind_to)
        elif manifest.has_hashes and not receiving.partial.manifest.has_hashes:
            receiving.partial.compare(manifest)
            self.statistics.bad += receiving.partial.bad
        receiving.origin = origin
        receiving.is_due = True
        if receiving.partial.is_complete:
            self._finish(receiving)

    def _finish(self, receiving: Receiving) -> None:
        manifest = receiving.partial.manifest
        try:
            name = receiving.partial.finish(self._root, self._existing)
        except NameRefusedError as error:
            receiving.partial.discard()
            del self._open[manifest.transfer]
            self._refuse(manifest.transfer, manifest.name, manifest.size, receiving.origin, error.problem)
            return
        receiving.partial.close()
        del self._open[manifest.transfer]
        self._note_finished(manifest, name, receiving.origin)
        partial.forget(self._inbox.folder, manifest.transfer)

    def _note_finished(self, manifest: Manifest, name: str, origin: str) -> None:
        self._inbox.note_done(manifest.transfer, name)
        self._note(origin, TransferState(manifest.transfer, "done"))
        self.statistics.finished += 1
        self.statistics.finished_bytes += manifest.size
        self._moved_s = time.monotonic()
        self._on_received(Received(name, manifest.size, "done", root=manifest.root.hex()))

    def _refuse(self, transfer: str, name: str, size: int, origin: str, problem: str) -> None:
        if transfer not in self._refused:
            self.statistics.refused += 1
            if len(self._refused) >= OPEN_MAX:
                self._refused.pop(next(iter(self._refused)))
            self._refused[transfer] = TransferState(transfer, "refused", problem=problem[:2000])
            self._on_received(Received(name, size, "refused", problem))
        self._note(origin, self._refused[transfer])

    def _note_product(self, transfer: str) -> None:
        """A large product that was put as fragments: not for us (join.py)."""
        self._unknown.pop(transfer, None)
        if len(self._products) >= OPEN_MAX:
            self._products.pop(next(iter(self._products)))
        self._products[transfer] = None

    def _withdraw(self, manifest: Manifest, origin: str) -> None:
        receiving = self._open.get(manifest.transfer)
        if receiving is not None and receiving.origin == origin:
            del self._open[manifest.transfer]
            receiving.partial.discard()
            self._on_received(Received(manifest.name, manifest.size, "withdrawn", manifest.withdrawn))

    # --- receipts -----------------------------------------------------------------------------------

    def _note(self, origin: str, state: TransferState) -> None:
        """Report this state with the next receipt."""
        due = self._due.setdefault(origin, {})
        if len(due) >= TRANSFERS_MAX:
            self._report(now=True)
            due = self._due.setdefault(origin, {})
        due[state.transfer] = state

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
            return f"asked the sender for the manifest of {next(iter(self._unknown.values()), (0, 'a file'))[1]}"
        manifest, missing = receiving.partial.manifest, int((~receiving.partial.held).sum())
        more = f" and {format_count(len(self._open) - 1, 'more file')}" if len(self._open) > 1 else ""
        what = (
            f"{missing:,} of {format_count(manifest.count, 'fragment')} of {manifest.name}{more}"
            if missing
            else f"the hashes of {manifest.name}{more}"
        )
        return f"asked the sender for {what}, which the queue no longer holds or never had"

    def _report(self, now: bool = False) -> None:
        """Put receipts about everything that is due."""
        if not now and time.monotonic() - self._reported_s < _REPORT_S:
            return
        for transfer, receiving in self._open.items():
            if receiving.is_due:
                receiving.is_due = False
                self._due.setdefault(receiving.origin, {}).setdefault(transfer, _state_of(receiving))
        due, self._due = self._due, {}
        for origin, states in due.items():
            listed = list(states.values())
            for place in range(0, len(listed), TRANSFERS_MAX):
                self._put_receipt(origin, listed[place : place + TRANSFERS_MAX])
        self._reported_s, self._unreported = time.monotonic(), 0

    def _put_receipt(self, origin: str, states: list[TransferState]) -> None:
        if not self._may_report:
            return
        seen = self._inbox.seen.get(origin, 0)
        receipt = Receipt(self._inbox.receiver, self._where, origin, seen, self._room(), transfers=states)
        try:
            self._queue.put(encode_receipt(receipt), feed=receipts_feed(self._feed), timeout=5.0)
        except AccessDeniedError:
            self._may_report = False
            self.statistics.waits_for = f"not permitted to put receipts to {receipts_feed(self._feed)}"

    def _room(self) -> int:
        """Bytes of fragments that may be on their way in the queue from which they are read."""
        sizes = [receiving.partial.manifest.fragment_bytes for receiving in self._open.values()]
        return min([room_in(self._config, each) for each in sizes], default=self._config.size // 4)


def _state_of(receiving: Receiving) -> TransferState:
    manifest = receiving.partial.manifest
    missing = ranges_of(~receiving.partial.held, RANGES_MAX)
    exact_to = missing[-1][1] + 1 if len(missing) == RANGES_MAX else manifest.count
    return TransferState(
        manifest.transfer, "waiting" if receiving.problem else "receiving", missing, exact_to, receiving.problem
    )
