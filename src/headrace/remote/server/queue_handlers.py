"""QueueHandlers: answers calls about the queue itself: put, read, cursors and what it tells.

The arguments of a call go to the Queue as they are, which checks them as it checks those of any program. Nothing here
waits for long: a put that a blocking station holds up goes on in a thread of its own (blocked.py), and a read that
finds nothing waits in the lobby.
"""

import itertools
import time
from typing import Any, NamedTuple, cast

import numpy as np

from headrace.errors import CursorNameError, FabricError, FabricMessageError
from headrace.log import append
from headrace.log.append import Duplicate, Receipt, distinct
from headrace.log.columns import unpacked
from headrace.log.records import Names, read_batch, rows_of
from headrace.product.batch import Batch, Lost
from headrace.product.put import checked
from headrace.queue import Cursor, Queue
from headrace.queue.queue import log_of
from headrace.relay.messages.page import queue_id
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.calls import CALL_BYTES_MAX
from headrace.remote.protocol.products import products_of
from headrace.remote.protocol.replies import Done, Number, Received, Reply
from headrace.remote.server.clients import Reading
from headrace.remote.server.pending_call import PendingCall
from headrace.remote.server.puts import BlockedPuts
from headrace.remote.server.reads import RecentReads, WaitingReads
from headrace.selection import Selection

CURSORS_MAX = 1024  # whose places are remembered
_SMALL_BYTES = 4096  # payloads up to this size are copied sooner than looked at


class _Commit(NamedTuple):
    """What `Cursor.commit` looks at in a batch."""

    next: int
    lost: Lost | None


class QueueHandlers:
    """One for a site. Each method takes an errand and finishes it, now or later."""

    def __init__(
        self, queue: Queue, site: str, lobby: WaitingReads, blocked: BlockedPuts, readers: RecentReads
    ) -> None:
        self._queue, self._site, self._lobby, self._blocked = queue, site, lobby, blocked
        self._readers = readers
        self._cursors: dict[str, Cursor] = {}

    # --- put --------------------------------------------------------------------------------------

    def put(self, errand: PendingCall, call: calls.Put) -> None:
        facts = checked(call.facts)
        errand.client.rights.check_publish([call.feed])
        errand.client.rights.check_origins([] if facts.origin is None else [facts.origin])
        payload = errand.payload

        def store(timeout_s: float) -> Reply:
            outcome = append.put(log_of(self._queue), payload, call.feed, call.ident, facts, timeout_s)
            return Number(-outcome.of if isinstance(outcome, Duplicate) else outcome)

        self._blocked.store(errand, store, call.timeout_s)

    def put_many(self, errand: PendingCall, call: calls.PutMany) -> None:
        said = calls.decode_columns(call.columns)
        errand.client.rights.check_publish(distinct(said.feed))
        payloads = _parted(errand.payload, call.lengths)
        columns = unpacked(len(payloads), said.feed, said.ident, said.facts)
        errand.client.rights.check_origins(distinct(columns.facts.get("origin", ())))

        def store(timeout_s: float) -> Reply:
            return _received(append.put_columns(log_of(self._queue), payloads, columns, timeout_s))

        self._blocked.store(errand, store, call.timeout_s)

    def put_batch(self, errand: PendingCall, call: calls.PutBatch) -> None:
        batch = read_batch(errand.payload, Names())
        errand.client.rights.check_publish(set(batch.feeds))
        errand.client.rights.check_origins(set(batch.origins))
        keep = None if call.keep is None else np.frombuffer(call.keep, np.uint8)

        def store(timeout_s: float) -> Reply:
            return _received(self._queue.put_batch(batch, keep, timeout=timeout_s))

        self._blocked.store(errand, store, call.timeout_s)

    # --- read -------------------------------------------------------------------------------------

    def next(self, errand: PendingCall, call: calls.Next) -> None:
        """What lies at the position; if there is nothing and there is time, wait in the lobby."""
        errand.client.rights.check_receive()
        if not errand.position:
            errand.position = self._queue.resolve(call.position)
            errand.deadline = time.monotonic() + call.wait_s
            self._readers.note(call.selection)
        batch = self._reading(errand, call).read(errand.position, call.stop or None)
        if (size := rows_of(batch).bytes) > CALL_BYTES_MAX:
            raise FabricError(
                f"products from {errand.position} on have {size} bytes, more than go over the network as one piece",
                "read them where the queue is",
            )
        errand.position = batch.next
        if len(batch) or batch.lost or errand.deadline <= time.monotonic():
            end = self._queue.next
            errand.finish(*products_of(batch, min(end, call.stop) if call.stop else end))
        else:
            self._lobby.add(errand)

    def _reading(self, errand: PendingCall, call: calls.Next) -> Reading:
        key = (call.follower, call.selection, call.limit, call.bytes_limit)
        reading = errand.client.reading(key)
        if reading is None:
            selection, allowed = Selection.parse(call.selection), errand.client.rights.allowed
            reading = Reading(log_of(self._queue).reader(selection, call.limit, call.bytes_limit, allowed))
            errand.client.remember(key, reading)
        return reading

    def where(self, errand: PendingCall, call: calls.Where) -> None:
        errand.finish(Number(self._queue.resolve(call.start)))

    def weigh(self, errand: PendingCall, call: calls.Weigh) -> None:
        errand.client.rights.check_receive()
        selection, allowed = Selection.parse(call.selection), errand.client.rights.allowed
        weights = log_of(self._queue).weigh(call.start, call.stop, selection, allowed=allowed)
        errand.finish(replies.Weighed(weights))

    def ends(self, errand: PendingCall, call: calls.Ends) -> None:
        errand.finish(replies.Bounds(self._queue.oldest, self._queue.next))

    # --- tell -------------------------------------------------------------------------------------

    def who(self, errand: PendingCall, call: calls.Who) -> None:
        errand.finish(replies.Here(self._site, queue_id(self._queue), self._queue.config))

    def tell(self, errand: PendingCall, call: calls.Tell) -> None:
        errand.finish(replies.Told(statistics=errand.client.rights.visible_statistics(self._queue.statistics())))

    def list(self, errand: PendingCall, call: calls.ListNames) -> None:
        names = self._queue.cursors() if call.what == "cursors" else self._queue.origins
        errand.finish(replies.Listed(names))

    def wanted_by(self, errand: PendingCall, call: calls.WantedBy) -> None:
        errand.client.rights.check_feed(call.feed)
        errand.finish(replies.Listed(self._queue.wanted_by(call.feed)))

    def flush(self, errand: PendingCall, call: calls.Flush) -> None:
        self._queue.flush()
        errand.finish(Done())

    # --- cursors ----------------------------------------------------------------------------------

    def open_cursor(self, errand: PendingCall, call: calls.OpenCursor) -> None:
        errand.client.rights.check_receive()
        if len(self._cursors) > CURSORS_MAX:
            self._cursors.clear()
        self._cursors[call.name] = self._queue.cursor(call.name, call.start)
        errand.finish(Done())

    def load_cursor(self, errand: PendingCall, call: calls.LoadCursor) -> None:
        errand.client.rights.check_receive()
        state = self._cursor(call.name).state
        first, last = (state.lost.first, state.lost.last) if state.lost else (0, 0)
        errand.finish(
            replies.CursorTold(state.position, state.saved_ns, state.lost_products, first, last, state.generation)
        )

    def save_cursor(self, errand: PendingCall, call: calls.SaveCursor) -> None:
        errand.client.rights.check_receive()
        lost = Lost(call.lost_first, call.lost_last) if call.lost_last else None
        self._cursor(call.name).commit(cast(Batch, _Commit(call.position, lost)))
        errand.finish(Done())

    def remove_cursor(self, errand: PendingCall, call: calls.RemoveCursor) -> None:
        errand.client.rights.check_receive()
        self._cursor(call.name).remove()
        self._cursors.pop(call.name, None)
        errand.finish(Done())

    def _cursor(self, name: str) -> Cursor:
        """One that is there: what was removed is not made again by a look at it."""
        cursor = self._cursors.get(name)
        if cursor is None:
            if name not in self._queue.cursors():
                raise CursorNameError(f"cursor {name!r} was removed", "ask the queue for it anew: queue.cursor(name)")
            cursor = self._cursors[name] = self._queue.cursor(name)
        return cursor


def _parted(payload: bytes, lengths: bytes) -> list[bytes | memoryview]:
    """Payloads by their lengths."""
    if len(lengths) % 4:
        raise FabricMessageError("the lengths of a put_many are cut short", "nothing was stored")
    ends = np.cumsum(np.frombuffer(lengths, np.uint32), dtype=np.uint64)
    if (int(ends[-1]) if len(ends) else 0) != len(payload):
        raise FabricMessageError(f"the payloads of a put_many do not have {len(payload)} bytes", "nothing was stored")
    places = [0, *ends.tolist()]
    whole: Any = payload if len(payload) <= _SMALL_BYTES * len(ends) else memoryview(payload)
    return [whole[a:b] for a, b in itertools.pairwise(places)]


def _received(receipt: Receipt) -> Received:
    outcomes = None
    if receipt.stored != receipt.products:
        sequences = receipt.sequences.astype(np.int64)
        outcomes = np.where(receipt.duplicates, -sequences, sequences).tobytes()
    return Received(receipt.products, receipt.stored, receipt.first, outcomes)
