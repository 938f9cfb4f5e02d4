"""Sender: puts files into a queue as fragments, and sends again what receivers miss.

    file ──read, hash──► fragments ──put_many──► queue ──► receivers
         (reading.py)        ▲      (putting.py)             │
                             └──────── receipts ◄────────────┘
                                  (listening.py, flow.py, sending.py)

A file of any size passes through a queue of any size while somebody receives. Without a receiver the sender fills its
window (flow.py) and waits, and says so.

**What is sent again** is what a receiver misses although it has read beyond it (receipt.py). A repeated fragment has a
signature of its own, so that no queue takes it for the one that is lost.

**Resume.** The id of a transfer follows from the file, and the first manifest asks receivers what they have. So a
sender keeps no state. Receipts that are still in the queue count, too.

One thread decides and puts; others read and hash ahead of it, and one follows the receipts.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

import msgspec
import numpy as np

from headrace.errors import SourceChangedError, TransferError, TransferIncompleteError
from headrace.payload.fragments.cutting import kept_bytes
from headrace.payload.fragments.flow import Flow
from headrace.payload.fragments.listening import Listener
from headrace.payload.fragments.putting import Putting, SendQueue
from headrace.payload.fragments.reading import Piece, ReadAhead
from headrace.payload.fragments.receipt import Receipt, receipts_feed
from headrace.payload.fragments.sending import SenderStatistics, Sending, Sent
from headrace.payload.fragments.source import Source
from headrace.units import format_count, format_size

__all__ = ["Sender", "SenderStatistics", "Sent"]

OPEN_MAX = 256  # transfers that are not finished
_BATCH_BYTES = 16 << 20
_BATCH_FRAGMENTS = 64
_ANSWER_S = 1.0  # that receivers have to tell what they hold, if none is known
_KNOWN_ANSWER_S = 10.0  # if one is
_REMIND_S = (2.0, 4.0, 8.0, 15.0, 30.0)
_SLEEP_S = 0.25


class Sender:
    """Sends `sources` once: call `run`."""

    def __init__(
        self, queue: SendQueue, feed: str, sources: Sequence[Source], *, receivers: int = 1,
        timeout_s: float | None = None, on_sent: Callable[[Sent], None] = lambda sent: None,
        on_progress: Callable[[SenderStatistics], None] = lambda statistics: None, puts_at_once: int = 1,
        receivers_at: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`receivers` is how many have to finish; 0: put everything and wait for nobody.

        `timeout_s` is how long to wait without any progress. `puts_at_once`: 2 for a queue at a site (putting.py).
        `receivers_at` are the sites whose receipts count: nobody else can say that a file has arrived. Without any, the
        receipts of all count who may put products of their feed.
        """
        self._queue, self._feed, self._sources = queue, feed, deque(sources)
        self._receivers_min, self._timeout_s = receivers, timeout_s
        self._on_sent, self.on_progress = on_sent, on_progress
        self._config, self._run = queue.config, os.urandom(8).hex()
        self._open: dict[str, Sending] = {}
        self._flow, self._reads = Flow(self._config, is_followed=receivers > 0), ReadAhead()
        self._putting = Putting(queue, feed, self._flow, self._reads, puts_at_once)
        self._listener = Listener(receivers_at)
        self._moved_s = self._reminded_s = time.monotonic()
        self._reminders = 0
        self._closed_held_bytes = self._closed_hole_bytes = 0
        self.statistics = SenderStatistics(len(sources), sum(source.size for source in sources))

    def run(self) -> SenderStatistics:
        """Return when all files are finished. What failed was reported by `on_sent` and is counted.

        TransferIncompleteError after the timeout.
        """
        self._check_room()
        follower = self._queue.follow("oldest", receipts_feed(self._feed)) if self._receivers_min else None
        try:
            if follower is not None:
                self._listener.start(follower)
            while self._step():
                self.on_progress(self._told())
        finally:
            self._listener.stop()
            self._reads.close()
            self._told()
            for sending in self._open.values():
                sending.source.close()
        return self.statistics

    def _told(self) -> SenderStatistics:
        told, opened = self.statistics, self._open.values()
        told.held_bytes = self._closed_held_bytes + sum(sending.held_bytes for sending in opened)
        told.hole_bytes = self._closed_hole_bytes + sum(sending.hole_bytes for sending in opened)
        told.ignored_receipts = self._listener.ignored
        told.sent_bytes, told.again_bytes = self._putting.sent_bytes, self._putting.again_bytes
        return told

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
        for receipt in self._listener.take():
            self._take_receipt(receipt)
        self._end_sendings()
        self._open_sources()
        batch = self._next_batch()
        if batch:
            self._put_fragments(batch)
        if not self._open and not self._sources:
            self._putting.drain()
            return False
        if not batch and self._putting.is_pending:
            self._putting.take()
            self._note_progress()
        elif not batch:
            self._wait()
        return True

    # --- receipts -----------------------------------------------------------------------------------

    def _take_receipt(self, receipt: Receipt) -> None:
        self._flow.hear(receipt)
        for state in receipt.transfers:
            sending = self._open.get(state.transfer)
            if sending is None:
                continue
            is_fresh = receipt.origin == self._config.origin and 0 < sending.begun <= receipt.seen
            if state.state == "unknown" and is_fresh:
                self._putting.put_manifests([sending.manifest])
            elif sending.take_state(receipt, state, is_fresh):
                self._note_progress()

    # --- files --------------------------------------------------------------------------------------

    def _open_sources(self) -> None:
        """Announce the next file when all fragments of those before are sent; small files, many at once."""
        while self._sources and len(self._open) < OPEN_MAX and not any(s.to_send.any() for s in self._open.values()):
            opened: list[Sending] = []
            size = 0
            while self._sources and len(self._open) + len(opened) < OPEN_MAX and len(opened) < _BATCH_FRAGMENTS:
                sending = self._opened(self._sources.popleft())
                if sending is not None:
                    opened.append(sending)
                    size += sending.manifest.size
                    if sending.manifest.count > 1 or size > _BATCH_BYTES // 2:
                        break
            self._announce(opened)

    def _opened(self, source: Source) -> Sending | None:
        try:
            manifest = source.manifest(self._feed, self._config)
            return Sending.of(source, msgspec.structs.replace(manifest, run=self._run))
        except (OSError, SourceChangedError) as error:
            source.close()
            self._report(Sent(source.name, source.size, "withdrawn", (), str(error)))
            return None

    def _announce(self, opened: list[Sending]) -> None:
        if not opened:
            return
        answer_s = _KNOWN_ANSWER_S if self._flow.active() else _ANSWER_S if self._receivers_min else 0.0
        for sending in opened:
            self._open[sending.manifest.transfer] = sending
            if sending.manifest.count > 1:
                sending.answer_by = time.monotonic() + answer_s
        sequences = self._putting.put_manifests([each.manifest for each in opened])
        for sending, sequence in zip(opened, sequences, strict=True):
            sending.begun = sequence

    def _end_sendings(self) -> None:
        """Put the hashes of files whose fragments are all sent; close those that receivers have."""
        for sending in list(self._open.values()):
            if sending.final and self._is_final(sending):
                sending.to_send[:] = False
                self._close(sending)
            elif not sending.has_end and not sending.to_send.any() and not sending.waits_for_answer:
                self._put_end(sending)
            if not self._receivers_min and sending.is_sent:
                self._close(sending)

    def _put_end(self, sending: Sending) -> None:
        try:
            sending.end()
        except (OSError, SourceChangedError) as error:
            self._withdraw(sending, str(error))
            return
        self._putting.put_manifests([sending.manifest])

    def _is_final(self, sending: Sending) -> bool:
        """Whether enough receivers have it, and no other one that is active still receives it."""
        if len(sending.final) < self._receivers_min:
            return False
        active = self._flow.active()
        return not any(receiver in active for receiver in sending.held.keys() - sending.final.keys())

    def _close(self, sending: Sending) -> None:
        sending.source.close()
        self._closed_held_bytes += sending.held_bytes
        self._closed_hole_bytes += sending.hole_bytes
        del self._open[sending.manifest.transfer]
        states: set[str] = {state.state for state in sending.final.values()} or {"put"}
        problem = next((state.problem for state in sending.final.values() if state.state == "refused"), "")
        wheres = tuple(self._flow.receivers[each].where for each in sending.final)
        state = "refused" if "refused" in states else states.pop()
        self._report(Sent(sending.manifest.name, sending.manifest.size, state, wheres, problem))

    def _withdraw(self, sending: Sending, why: str) -> None:
        sending.source.close()
        del self._open[sending.manifest.transfer]
        sending.manifest = msgspec.structs.replace(sending.manifest, withdrawn=why[:500], asks=False, hashes=b"")
        self._putting.put_manifests([sending.manifest])
        self._report(Sent(sending.manifest.name, sending.manifest.size, "withdrawn", (), why))

    def _report(self, sent: Sent) -> None:
        if sent.state in ("done", "put"):
            self.statistics.finished += 1
        else:
            self.statistics.failed += 1
        self._note_progress()
        self._on_sent(sent)

    # --- fragments ------------------------------------------------------------------------------------

    def _next_batch(self) -> list[Piece]:
        """The next fragments that the window has room for."""
        batch: list[Piece] = []
        room, size = self._flow.room(sending.manifest.fragment_bytes for sending in self._open.values()), 0
        for sending in self._open.values():
            if sending.waits_for_answer:
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

    def _put_fragments(self, batch: list[Piece]) -> None:
        """Put a batch; a file that changed or cannot be read is withdrawn."""
        failed = _changed_in(batch)
        unchanged = [piece for piece in batch if piece[0].manifest.transfer not in failed]
        filled, unreadable = self._reads.take(unchanged) if unchanged else ([], {})
        failed |= unreadable
        for transfer, why in failed.items():
            self._withdraw(self._open[transfer], why)
        if filled:
            self._putting.put_fragments(filled)
            self._note_progress()

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
        self._listener.wait(_SLEEP_S)

    def _remind(self) -> None:
        """Receipts may have been lost: ask receivers again what they have."""
        self._reminded_s = time.monotonic()
        self._reminders += 1
        asked = [sending.manifest for sending in list(self._open.values())[:16]]
        for manifest in asked:  # each may have many hashes
            self._putting.put_manifests([manifest])

    def _waits_for(self) -> str:
        problems = [sending.problem for sending in self._open.values() if sending.problem]
        if problems:
            return f"a receiver waits: {problems[0]}"
        return self._flow.waits_for(self._feed, self._receivers_min)


def _changed_in(batch: Sequence[Piece]) -> dict[str, str]:
    """What is wrong with files of these fragments that are not as they were, by transfer."""
    changed: dict[str, str] = {}
    for transfer, sending in {sending.manifest.transfer: sending for sending, _ in batch}.items():
        try:
            sending.source.check_unchanged()
        except (OSError, SourceChangedError) as error:
            changed[transfer] = str(error)
    return changed
