"""Sender: puts files into a queue as fragments, and sends again what receivers miss.

    file ──read, hash──► fragments ──put_many──► queue ──► receivers
                             ▲                               │
                             └──────── receipts ◄────────────┘

**Flow control.** The queue evicts its oldest products, so no more than half of it is on its way (`room_in`): put, and
not yet behind the `seen` of the slowest receiver. A file of any size passes through a queue of any size while somebody
receives. Without a receiver the sender fills its window and waits, and says so.

**What is sent again** is what a receiver misses although it has read beyond it (receipt.py). A repeated fragment has a
signature of its own, so that no queue takes it for the one that is lost.

**Resume.** The id of a transfer follows from the file, and the first manifest asks receivers what they have. So a
sender keeps no state. Receipts that are still in the queue count, too.

One thread puts; two read and hash ahead of it; one follows the receipts.
"""

import os
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, Unpack

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from headrace.errors import HeadraceError, SourceChangedError, TransferError, TransferIncompleteError
from headrace.log.append import Receipt
from headrace.log.columns import PutColumns, Texts
from headrace.log.config import QueueConfig
from headrace.log.seams import Timeout
from headrace.payload.fragments import receipt as receipts
from headrace.payload.fragments.cutting import kept_bytes, room_in
from headrace.payload.fragments.manifest import HASH_BYTES, Manifest, encode_manifest, hash_of, zeros_hash
from headrace.payload.fragments.mark import Mark, facts_of
from headrace.payload.fragments.ranges import Numbers, numbers_of
from headrace.payload.fragments.receipt import TransferState, decode_receipt, receipts_feed
from headrace.payload.fragments.source import Source
from headrace.product.batch import Batch
from headrace.units import format_count, format_size

OPEN_MAX = 256  # transfers that are not finished
ATTEMPTS_MAX = 20  # of one fragment
_BATCH_BYTES = 16 << 20
_BATCH_FRAGMENTS = 64
_ANSWER_S = 1.0  # that receivers have to tell what they hold, if none is known
_KNOWN_ANSWER_S = 10.0  # if one is
_ACTIVE_S = 60.0  # a receiver that was not heard of for so long delays no other
_REMIND_S = (2.0, 4.0, 8.0, 15.0, 30.0)
_SLEEP_S = 0.25


class Following(Protocol):
    """What follows the receipts."""

    def __iter__(self) -> Iterator[Batch]: ...
    def stop(self) -> None: ...


class SendQueue(Protocol):
    """What a sender needs of a queue, wherever that is."""

    @property
    def config(self) -> QueueConfig: ...
    def put_many(
        self, payloads: Any, *, feed: Texts, ident: Texts = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt: ...
    def follow(self, start: Any = ..., selection: Any = ...) -> Any: ...


@dataclass(slots=True)
class Receiver:
    """What is known of one receiver."""

    where: str
    seen: int = 0
    room: int = 0
    heard_s: float = 0.0


@dataclass(slots=True)
class Sending:
    """One transfer."""

    source: Source
    manifest: Manifest
    to_send: Numbers
    sent: npt.NDArray[np.int64]  # the sequence of each fragment; 0: not sent by this process
    attempts: npt.NDArray[np.uint8]
    hashes: npt.NDArray[np.uint8]
    hashed: Numbers
    begun: int = 0  # the sequence of the first manifest
    answer_by: float = 0.0  # no fragment is sent before, unless a receiver has answered
    has_answer: bool = False
    has_end: bool = False  # the manifest with the hashes was put
    held: dict[str, Numbers] = field(default_factory=dict)  # by receiver
    final: dict[str, TransferState] = field(default_factory=dict)  # done or refused, by receiver
    problem: str = ""  # of a receiver that waits

    @property
    def held_bytes(self) -> int:
        """What receivers had already, and holes: bytes that were not sent."""
        return int(((self.sent == 0) & ~self.to_send).sum()) * self.manifest.fragment_bytes

    @property
    def is_sent(self) -> bool:
        return self.has_end and not self.to_send.any()


@dataclass(frozen=True, slots=True)
class Sent:
    """A transfer is finished at the receivers: done, or refused, or withdrawn by the sender."""

    name: str
    size: int
    state: str  # done, refused, withdrawn, put
    receivers: tuple[str, ...] = ()
    problem: str = ""


@dataclass(slots=True)
class SenderStatistics:
    files: int = 0
    bytes: int = 0  # of all files
    finished: int = 0
    failed: int = 0
    sent_bytes: int = 0  # by this process
    again_bytes: int = 0  # of these, sent by this process before
    held_bytes: int = 0  # that were not sent: receivers had them already, or they are holes
    waits_for: str = ""  # empty while it sends


class Sender:
    """Sends `sources` once: call `run`."""

    def __init__(
        self, queue: SendQueue, feed: str, sources: Sequence[Source], *, receivers: int = 1,
        timeout_s: float | None = None, on_sent: Callable[[Sent], None] = lambda sent: None,
        on_progress: Callable[[SenderStatistics], None] = lambda statistics: None,
    ) -> None:  # fmt: skip
        """`receivers` is how many have to finish; 0: put everything and wait for nobody.

        `timeout_s` is how long to wait without any progress.
        """
        self._queue, self._feed, self._sources = queue, feed, deque(sources)
        self._receivers_min, self._timeout_s = receivers, timeout_s
        self._on_sent, self.on_progress = on_sent, on_progress
        self._config = queue.config
        self._open: dict[str, Sending] = {}
        self._receivers: dict[str, Receiver] = {}
        self._came: deque[receipts.Receipt] = deque()
        self._is_woken = threading.Event()
        self._listen_error: HeadraceError | None = None
        self._sequences, self._totals = [0], [0]  # of what was put: sequences, and bytes up to there
        self._reads = ThreadPoolExecutor(2, "headrace-fragment")
        self._fetching: dict[tuple[str, int], Future[memoryview]] = {}  # by transfer and number
        self._free: list[memoryview] = []  # buffers to use again
        self._session = os.urandom(8)
        self._moved_s = self._reminded_s = time.monotonic()
        self._reminders = 0
        self._closed_held_bytes = 0
        self.statistics = SenderStatistics(len(sources), sum(source.size for source in sources))

    def run(self) -> SenderStatistics:
        """Return when all files are finished. What failed was reported by `on_sent` and is counted.

        TransferIncompleteError after the timeout.
        """
        self._check_room()
        follower = self._queue.follow("oldest", receipts_feed(self._feed)) if self._receivers_min else None
        listener = threading.Thread(target=self._listen, args=(follower,), name="headrace-receipts", daemon=True)
        try:
            if follower is not None:
                listener.start()
            while self._step():
                self.on_progress(self._told())
        finally:
            for _ in range(100):  # a stop is missed by a thread that is just about to sleep
                if follower is not None and listener.is_alive():
                    follower.stop()
                    listener.join(0.05)
            self._reads.shutdown(cancel_futures=True)
            for sending in self._open.values():
                sending.source.close()
        return self._told()

    def _told(self) -> SenderStatistics:
        open_bytes = sum(sending.held_bytes for sending in self._open.values())
        self.statistics.held_bytes = self._closed_held_bytes + open_bytes
        return self.statistics

    def _check_room(self) -> None:
        needed = sum(kept_bytes(source.size, source.name) for source in self._sources)
        if not self._receivers_min and needed > self._config.size // 2:
            raise TransferError(
                f"{format_count(len(self._sources), 'file')} of {format_size(self.statistics.bytes)} need "
                f"{format_size(needed)} of the queue, and it keeps {format_size(self._config.size // 2)} for receivers "
                "that come later",
                "wait for a receiver (leave out --no-wait), or send less, or create a larger queue",
            )

    def _step(self) -> bool:
        """Do one thing; False at the end."""
        self._take_receipts()
        self._end_sendings()
        self._open_sources()
        batch = self._next_batch()
        if batch:
            self._put_fragments(batch)
        if not self._open and not self._sources:
            return False
        if not batch:
            self._wait()
        return True

    # --- receipts -----------------------------------------------------------------------------------

    def _listen(self, follower: Following) -> None:
        """A thread: receipts as they arrive."""
        try:
            for batch in follower:
                for product in batch:
                    try:
                        self._came.append(decode_receipt(product.payload))
                    except HeadraceError:  # not by a receiver of ours
                        continue
                self._is_woken.set()
        except HeadraceError as error:
            self._listen_error = error
            self._is_woken.set()

    def _take_receipts(self) -> None:
        self._is_woken.clear()
        while self._came:
            self._take_receipt(self._came.popleft())
        if self._listen_error is not None:
            raise self._listen_error

    def _take_receipt(self, receipt: receipts.Receipt) -> None:
        is_ours = receipt.origin == self._config.origin and len(self._sequences) > 1
        if is_ours and receipt.seen >= self._sequences[1]:
            receiver = self._receivers.setdefault(receipt.receiver, Receiver(receipt.where))
            receiver.seen = max(receiver.seen, receipt.seen)
            receiver.room, receiver.heard_s = receipt.room, time.monotonic()
        for state in receipt.transfers:
            sending = self._open.get(state.transfer)
            if sending is not None:
                self._take_state(sending, receipt, state)

    def _take_state(self, sending: Sending, receipt: receipts.Receipt, state: TransferState) -> None:
        is_fresh = receipt.origin == self._config.origin and 0 < sending.begun <= receipt.seen
        if state.state in ("done", "refused"):
            if is_fresh:
                sending.final[receipt.receiver] = state
                sending.has_answer = True
                self._note_progress()
            return
        if state.state == "unknown":
            if is_fresh:
                self._put_manifest(sending)
            return
        if state.exact_to > sending.manifest.count:
            return
        try:
            missing = numbers_of(state.missing, sending.manifest.count)
        except HeadraceError:
            return
        exact = np.arange(sending.manifest.count) < state.exact_to
        before, now = sending.held.get(receipt.receiver), exact & ~missing
        if before is None or now.sum() > before.sum():
            self._note_progress()
        sending.held[receipt.receiver] = now
        sending.answer_by = max(sending.answer_by, time.monotonic() + (0.0 if is_fresh else _KNOWN_ANSWER_S))
        if is_fresh:
            sending.has_answer, sending.problem = True, state.problem
            lost = exact & missing & (sending.sent <= receipt.seen)
            self._check_attempts(sending, lost, receipt.where)
            sending.to_send |= lost
        self._skip_held(sending)

    def _skip_held(self, sending: Sending) -> None:
        """Do not send what every receiver has that told about this transfer."""
        sending.to_send &= ~np.logical_and.reduce(list(sending.held.values()))

    def _check_attempts(self, sending: Sending, lost: Numbers, where: str) -> None:
        if (sending.attempts[lost] >= ATTEMPTS_MAX).any():
            raise TransferError(
                f"receiver {where} asked {ATTEMPTS_MAX} times for the same fragment of {sending.manifest.name}",
                "check its disk and its queue (headrace queue check)",
            )

    # --- files --------------------------------------------------------------------------------------

    def _open_sources(self) -> None:
        """Announce the next file when all fragments of those before are sent."""
        while self._sources and len(self._open) < OPEN_MAX and not any(s.to_send.any() for s in self._open.values()):
            source = self._sources.popleft()
            try:
                self._announce(source)
            except (OSError, SourceChangedError) as error:
                source.close()
                self._report(Sent(source.name, source.size, "withdrawn", (), str(error)))

    def _announce(self, source: Source) -> None:
        manifest = source.manifest(self._feed, self._config)
        count = manifest.count
        holes = numbers_of(manifest.holes, count)
        sending = Sending(
            source, manifest, ~holes, np.zeros(count, np.int64), np.zeros(count, np.uint8),
            np.zeros((count, HASH_BYTES), np.uint8), np.zeros(count, np.bool_),
        )  # fmt: skip
        self._open[manifest.transfer] = sending
        if count > 1:
            sending.manifest = msgspec.structs.replace(manifest, asks=True)
            answer_s = _KNOWN_ANSWER_S if self._active() else _ANSWER_S if self._receivers_min else 0.0
            sending.answer_by = time.monotonic() + answer_s
        else:
            self._hash_rest(sending)
            sending.manifest = msgspec.structs.replace(manifest, hashes=sending.hashes.tobytes(), asks=True)
            sending.has_end = True
        sending.begun = self._put_manifest(sending)

    def _end_sendings(self) -> None:
        """Put the hashes of files whose fragments are all sent; close those that receivers have."""
        for sending in list(self._open.values()):
            if sending.final and self._is_final(sending):
                sending.to_send[:] = False
                self._close(sending)
            elif not sending.has_end and not sending.to_send.any() and not self._waits_for_answer(sending):
                self._put_end(sending)
            if not self._receivers_min and sending.is_sent:
                self._close(sending)

    def _put_end(self, sending: Sending) -> None:
        try:
            self._hash_rest(sending)
            sending.source.check_unchanged()
        except (OSError, SourceChangedError) as error:
            self._withdraw(sending, str(error))
            return
        sending.manifest = msgspec.structs.replace(sending.manifest, hashes=sending.hashes.tobytes(), asks=True)
        sending.has_end = True
        self._put_manifest(sending)

    def _is_final(self, sending: Sending) -> bool:
        """Whether enough receivers have it, and no other one that is active still receives it."""
        if len(sending.final) < self._receivers_min:
            return False
        active = self._active()
        return not any(receiver in active for receiver in sending.held.keys() - sending.final.keys())

    def _close(self, sending: Sending) -> None:
        sending.source.close()
        self._closed_held_bytes += sending.held_bytes
        del self._open[sending.manifest.transfer]
        states: set[str] = {state.state for state in sending.final.values()} or {"put"}
        problem = next((state.problem for state in sending.final.values() if state.state == "refused"), "")
        wheres = tuple(self._receivers[each].where for each in sending.final)
        state = "refused" if "refused" in states else states.pop()
        self._report(Sent(sending.manifest.name, sending.manifest.size, state, wheres, problem))

    def _withdraw(self, sending: Sending, why: str) -> None:
        sending.source.close()
        del self._open[sending.manifest.transfer]
        sending.manifest = msgspec.structs.replace(sending.manifest, withdrawn=why[:500], asks=False, hashes=b"")
        self._put_manifest(sending)
        self._report(Sent(sending.manifest.name, sending.manifest.size, "withdrawn", (), why))

    def _report(self, sent: Sent) -> None:
        if sent.state in ("done", "put"):
            self.statistics.finished += 1
        else:
            self.statistics.failed += 1
        self._note_progress()
        self._on_sent(sent)

    # --- fragments ------------------------------------------------------------------------------------

    def _next_batch(self) -> list[tuple[Sending, int]]:
        """The next fragments that the window has room for."""
        batch: list[tuple[Sending, int]] = []
        room, size = self._room(), 0
        for sending in self._open.values():
            if self._waits_for_answer(sending):
                continue
            for number in np.flatnonzero(sending.to_send)[:_BATCH_FRAGMENTS].tolist():
                length = sending.manifest.length_of(number)
                if batch and (size + length > _BATCH_BYTES or len(batch) == _BATCH_FRAGMENTS):
                    return batch
                if size + length > room:
                    return batch
                batch.append((sending, number))
                size += length
        return batch

    def _waits_for_answer(self, sending: Sending) -> bool:
        return not sending.has_answer and time.monotonic() < sending.answer_by and not sending.sent.any()

    def _room(self) -> int:
        """How many bytes may be put now."""
        active = self._active()
        limiting = [self._receivers[each] for each in active] or list(self._receivers.values())
        rooms = [room_in(self._config, sending.manifest.fragment_bytes) for sending in self._open.values()]
        window = min([*rooms, *(max(each.room, 1 << 17) for each in limiting)], default=0)
        seen = min((each.seen for each in limiting), default=0)
        if not self._receivers_min:
            return window
        return window - (self._totals[-1] - self._totals[bisect_right(self._sequences, seen) - 1])

    def _active(self) -> set[str]:
        now = time.monotonic()
        return {name for name, each in self._receivers.items() if now - each.heard_s < _ACTIVE_S}

    def _put_fragments(self, batch: list[tuple[Sending, int]]) -> None:
        """Put a batch, while the threads read and hash the fragments behind it."""
        good = self._fetched(batch)
        if not good:
            return
        self._fetch_ahead(*batch[-1], len(batch))
        receipt = self._queue.put_many(
            [view for _, _, view in good], feed=self._feed, ident=[ident_of(s.manifest, n) for s, n, _ in good],
            signature=[self._signature(s, n) for s, n, _ in good],
            **facts_of([Mark(s.manifest.transfer, n, s.manifest.count) for s, n, _ in good]),
        )  # fmt: skip
        for (sending, number, view), sequence in zip(good, receipt.sequences.tolist(), strict=True):
            self.statistics.again_bytes += view.nbytes if sending.attempts[number] else 0
            self.statistics.sent_bytes += view.nbytes
            sending.sent[number], sending.to_send[number] = sequence, False
            sending.attempts[number] += 1
            self._count(sequence, view.nbytes)
            self._free.append(view)
        self._note_progress()

    def _fetch(self, sending: Sending, number: int) -> "Future[memoryview]":
        """Begin to read a fragment, unless that was begun before."""
        key = (sending.manifest.transfer, number)
        if key not in self._fetching:
            length = sending.manifest.length_of(number)
            buffer = self._free.pop() if self._free else memoryview(bytearray())
            if len(buffer) != length:
                buffer = memoryview(bytearray(length))
            self._fetching[key] = self._reads.submit(self._read, sending, number, buffer)
        return self._fetching[key]

    def _fetch_ahead(self, sending: Sending, number: int, count: int) -> None:
        """Begin to read the fragments behind this one; forget those that are not needed any more."""
        behind = number + 1 + np.flatnonzero(sending.to_send[number + 1 :])[:count]
        ahead = {(sending.manifest.transfer, each) for each in behind.tolist()}
        self._fetching = {key: read for key, read in self._fetching.items() if key in ahead}
        for each in behind.tolist():
            self._fetch(sending, each)

    def _fetched(self, batch: list[tuple[Sending, int]]) -> list[tuple[Sending, int, memoryview]]:
        """What was read; a file that cannot be read is withdrawn."""
        good: list[tuple[Sending, int, memoryview]] = []
        reads = [self._fetch(*each) for each in batch]
        for (sending, number), read in zip(batch, reads, strict=True):
            try:
                good.append((sending, number, read.result()))
            except (OSError, SourceChangedError) as error:
                if sending.manifest.transfer in self._open:
                    self._withdraw(sending, str(error))
        return [each for each in good if each[0].manifest.transfer in self._open]

    def _read(self, sending: Sending, number: int, buffer: memoryview) -> memoryview:
        """In a thread: read one fragment, and hash it."""
        sending.source.read(number * sending.manifest.fragment_bytes, buffer)
        digest = np.frombuffer(hash_of(buffer), np.uint8)
        if sending.hashed[number] and (sending.hashes[number] != digest).any():
            raise SourceChangedError(f"{sending.source.path} changed while it was sent", "send it again")
        sending.hashes[number] = digest
        sending.hashed[number] = True
        return buffer

    def _hash_rest(self, sending: Sending) -> None:
        """Hash the fragments that were not sent: those that receivers have, and holes."""
        holes = numbers_of(sending.manifest.holes, sending.manifest.count)
        for number in np.flatnonzero(holes & ~sending.hashed).tolist():
            digest = zeros_hash(sending.manifest.length_of(number))
            sending.hashes[number], sending.hashed[number] = np.frombuffer(digest, np.uint8), True
        for number in np.flatnonzero(~sending.hashed).tolist():
            self._read(sending, number, memoryview(bytearray(sending.manifest.length_of(number))))

    def _signature(self, sending: Sending, number: int) -> bytes:
        """The same for the first attempts of all processes; another one for each repetition."""
        attempt = int(sending.attempts[number])
        again = self._session + attempt.to_bytes(4) if attempt else b""
        mark = bytes.fromhex(sending.manifest.transfer) + number.to_bytes(4)
        return blake3(mark + again).digest(16)

    def _put_manifest(self, sending: Sending) -> int:
        manifest = sending.manifest
        payload = encode_manifest(manifest)
        receipt = self._queue.put_many(
            [payload], feed=self._feed, ident=[manifest.name], signature=[os.urandom(16)],
            **facts_of([Mark(manifest.transfer, manifest.count, manifest.count)]),
        )  # fmt: skip
        sequence = int(receipt.sequences[0])
        self._count(sequence, len(payload))
        return sequence

    def _count(self, sequence: int, size: int) -> None:
        """Note what was put. A duplicate of what is in the queue already has an earlier sequence, and no room."""
        if sequence > self._sequences[-1]:
            self._sequences.append(sequence)
            self._totals.append(self._totals[-1] + size)

    # --- waiting --------------------------------------------------------------------------------------

    def _note_progress(self) -> None:
        self._moved_s = time.monotonic()
        self._reminders = 0
        self.statistics.waits_for = ""

    def _wait(self) -> None:
        """Nothing can be done until a receipt arrives. Now and then, ask again."""
        now = time.monotonic()
        if self._timeout_s is not None and now - self._moved_s > self._timeout_s:
            raise TransferIncompleteError(
                f"nothing moved for {self._timeout_s:g} s: {self._waits_for()}",
                "run the command again; what the receivers have is not sent again",
            )
        if now - self._moved_s > 1.0:
            self.statistics.waits_for = self._waits_for()
        pause_s = _REMIND_S[min(self._reminders, len(_REMIND_S) - 1)]
        if now - max(self._moved_s, self._reminded_s) > pause_s:
            self._remind()
        self._is_woken.wait(_SLEEP_S)

    def _remind(self) -> None:
        """Receipts may have been lost: ask receivers again what they have."""
        self._reminded_s = time.monotonic()
        self._reminders += 1
        for sending in list(self._open.values())[:16]:
            self._put_manifest(sending)

    def _waits_for(self) -> str:
        problems = [sending.problem for sending in self._open.values() if sending.problem]
        if problems:
            return f"a receiver waits: {problems[0]}"
        if not self._receivers:
            return f"no receiver of feed {self._feed} has answered (headrace receive DIR --from QUEUE)"
        silent = sorted(each.where for name, each in self._receivers.items() if name not in self._active())
        if silent:
            return f"receiver {', '.join(silent)} is silent"
        missing = self._receivers_min - len(self._receivers)
        if missing > 0:
            return f"{missing} of {self._receivers_min} receivers have not answered"
        return f"receiver {', '.join(sorted(each.where for each in self._receivers.values()))} has not finished"


def ident_of(manifest: Manifest, number: int) -> str:
    """For people: the name, and which fragment it is."""
    return f"{manifest.name} {number + 1}/{manifest.count}"
