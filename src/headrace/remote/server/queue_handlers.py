"""QueueHandlers: execute calls about the queue itself: put, read, cursors, statistics.

The arguments of a call go to the queue unchanged, and the queue checks them as it checks those of any program. No
handler waits for long: a put that waits for a blocking station continues in a thread of its own (puts.py), and a read
that finds nothing waits in WaitingReads (reads.py). What a client may read and put is decided by `client.access`
(access.py), before anything is read or stored.
"""

import time
from collections.abc import Iterable
from typing import NamedTuple, cast

import numpy as np

from headrace.errors import CursorMissingError, FabricError
from headrace.log import append
from headrace.log.append import Duplicate, distinct
from headrace.log.columns import Columns
from headrace.log.dictionaries import decode_dictionary, encode_dictionary
from headrace.log.records import Names, mask_of, read_batch, rows_of
from headrace.product.batch import Batch, Lost
from headrace.product.put import checked
from headrace.queue import Cursor, Queue
from headrace.queue.queue import log_of
from headrace.relay.messages.page import queue_id
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.envelope import CALL_BYTES_MAX
from headrace.remote.protocol.fields import PAGE_PRODUCTS_MAX
from headrace.remote.protocol.products import products_of
from headrace.remote.protocol.replies import Done, NotAttached, Number, PartsGone, Reply
from headrace.remote.server.access import ClientAccess
from headrace.remote.server.downloads import Downloads
from headrace.remote.server.owners import Owners
from headrace.remote.server.pending_call import PendingCall
from headrace.remote.server.puts import BlockedPuts, decode_put_many, outcome_of
from headrace.remote.server.reads import ClientRead, RecentReads, WaitingReads
from headrace.remote.server.repeated import earlier_put, earlier_put_batch, earlier_put_many
from headrace.remote.server.signed_puts import SignedPuts
from headrace.remote.server.uploads import Uploads
from headrace.selection import Selection

CURSORS_MAX = 1024  # kept open


class _Commit(NamedTuple):
    """What `Cursor.commit` needs of a batch."""

    next: int
    lost: Lost | None


class QueueHandlers:
    """One for a site. Each method executes a call and finishes it, now or later."""

    def __init__(
        self,
        queue: Queue,
        site: str,
        waiting: WaitingReads,
        blocked: BlockedPuts,
        recent: RecentReads,
        downloads: Downloads,
        owners: Owners,
        signed: SignedPuts,
    ) -> None:
        self._queue, self._site, self._owners, self._signed = queue, site, owners, signed
        self._waiting, self._blocked, self._recent = waiting, blocked, recent
        self._cursors: dict[str, Cursor] = {}
        self._uploads, self._downloads = Uploads(queue), downloads

    def close(self) -> None:
        """Drop what clients have sent in parts."""
        self._uploads.close()

    # --- put --------------------------------------------------------------------------------------

    def put_part(self, pending: PendingCall, call: calls.PutPart) -> None:
        """Keep a part of a payload until its put comes."""
        pending.client.access.check_publish_any()
        pending.finish(Number(self._uploads.add(pending.client, call, pending.payload)))

    def _has_payload(self, pending: PendingCall, upload: bytes) -> bool:
        """Get the payload that came in parts; if it is not there any more, the client hears that."""
        if upload:
            whole = self._uploads.take(pending.client, upload)
            if whole is None:
                pending.finish(PartsGone())
                return False
            pending.payload = whole
        return True

    def put(self, pending: PendingCall, call: calls.PutOne) -> None:
        facts = checked(call.facts)
        pending.client.access.check_put([(call.feed, facts.origin)])
        self._signed.check([(call.feed, facts.origin)])
        self._check_names(pending, [(call.feed, facts.origin)])
        if not self._has_payload(pending, call.upload):
            return
        before = earlier_put(log_of(self._queue), call, pending.payload)
        if before is not None:
            pending.finish(before)
            return
        payload, served = pending.payload, pending.client.suppliers.get(call.supplier)
        if call.supplier and served is None:
            pending.finish(NotAttached())
            return

        def store(timeout_s: float) -> Reply:
            outcome = (
                append.put(log_of(self._queue), payload, call.feed, call.ident, facts, timeout_s)
                if served is None
                else served.supplier.store(payload, call.feed, call.ident, facts, timeout_s)
            )
            return Number(-outcome.of if isinstance(outcome, Duplicate) else outcome)

        self._blocked.store(pending, store, call.timeout_s, call.again)

    def put_many(self, pending: PendingCall, call: calls.PutMany) -> None:
        pending.client.access.check_publish_any()
        if not self._has_payload(pending, call.upload):
            return
        payloads, columns = decode_put_many(call, pending.payload)
        pending.client.access.check_put(_feeds_and_origins(columns))
        self._signed.check(_feeds_and_origins(columns))
        self._check_names(pending, _feeds_and_origins(columns))
        before = earlier_put_many(log_of(self._queue), columns, len(payloads), call.since)
        if before is not None:
            pending.finish(before)
            return
        served = pending.client.suppliers.get(call.supplier)
        if call.supplier and served is None:
            pending.finish(NotAttached())
            return

        def store(timeout_s: float) -> Reply:
            if served is not None:
                return outcome_of(served.supplier.store_many(payloads, columns, timeout_s))
            return outcome_of(append.put_columns(log_of(self._queue), payloads, columns, timeout_s))

        self._blocked.store(pending, store, call.timeout_s, call.again)

    def put_batch(self, pending: PendingCall, call: calls.PutBatch) -> None:
        pending.client.access.check_publish_any()
        if not self._has_payload(pending, call.upload):
            return
        batch = read_batch(bytes(pending.payload), Names())
        pending.client.access.check_put(zip(batch.feeds, batch.origins, strict=True))
        self._check_names(pending, zip(batch.feeds, batch.origins, strict=True))
        keep = mask_of(None if call.keep is None else np.frombuffer(call.keep, np.uint8), len(batch))
        self._signed.check_batch(batch, keep)
        before = earlier_put_batch(log_of(self._queue), batch, keep, call.since)
        if before is not None:
            pending.finish(before)
            return

        def store(timeout_s: float) -> Reply:
            receipt = self._queue.put_batch(batch, keep, timeout=timeout_s)
            self._signed.note(batch, keep)
            return outcome_of(receipt)

        self._blocked.store(pending, store, call.timeout_s, call.again)

    def _check_names(self, pending: PendingCall, products: Iterable[tuple[str, str | None]]) -> None:
        """A queue has room for so many names of feeds and origins: a principal may add so many of them."""
        principal = pending.client.principal
        if not principal.has_limits:
            return
        kernel = log_of(self._queue).kernel
        feeds, origins = set[str](), set[str]()
        for feed, origin in products:
            if feed not in kernel.feeds:
                feeds.add(feed)
            if origin is not None and origin not in kernel.origins:
                origins.add(origin)
        if feeds:
            principal.introduce("feeds", feeds)
        if origins:
            principal.introduce("origins", origins)

    # --- read -------------------------------------------------------------------------------------

    def read(self, pending: PendingCall, call: calls.ReadProducts) -> None:
        """Reply with the products at the position; if there are none and there is time, wait for them."""
        pending.client.access.check_receive()
        if not pending.position:
            pending.position = self._queue.resolve(call.position)
            pending.deadline = time.monotonic() + call.wait_s
            self._recent.note(call.selection)
        batch = self._client_read(pending, call).read(pending.position, call.stop or None, call.limit)
        if (size := rows_of(batch).bytes) > CALL_BYTES_MAX and not call.part_bytes:
            raise FabricError(
                f"products from {pending.position} on have {size} bytes, more than one message can carry",
                "read them on the machine of the queue",
            )
        pending.position = batch.next
        if len(batch) or batch.lost or pending.deadline <= time.monotonic():
            end = self._queue.next
            rewrite = pending.client.access.rewrite(self._queue)
            reply, records = products_of(batch, min(end, call.stop) if call.stop else end, rewrite=rewrite)
            pending.finish(*self._downloads.first_part(pending.client, reply, records, call.part_bytes))
        else:
            self._waiting.add(pending)

    def read_part(self, pending: PendingCall, call: calls.ReadPart) -> None:
        """Reply with the next part of products that were read before."""
        pending.client.access.check_receive()
        part = self._downloads.part(pending.client, call)
        if part is None:
            pending.finish(PartsGone())
        else:
            pending.finish(replies.Part(), part)

    def _client_read(self, pending: PendingCall, call: calls.ReadProducts) -> ClientRead:
        """The read that this call continues, or a new one."""
        key = (
            call.follower,
            call.selection,
            call.bytes_limit,
            call.expired,
        )  # the limit of a call may be what is left of one
        read = pending.client.find_read(key)
        if read is None:
            selection, allowed = Selection.parse(call.selection), pending.client.access.allowed
            read = ClientRead(
                log_of(self._queue).reader(
                    selection, PAGE_PRODUCTS_MAX, call.bytes_limit, allowed, brief=True, expired=call.expired
                )
            )
            pending.client.keep_read(key, read)
        return read

    def resolve(self, pending: PendingCall, call: calls.Resolve) -> None:
        pending.finish(Number(self._queue.resolve(call.start)))

    def weigh(self, pending: PendingCall, call: calls.Weigh) -> None:
        pending.client.access.check_receive()
        selection, allowed = Selection.parse(call.selection), pending.client.access.allowed
        weights = log_of(self._queue).weigh(call.start, call.stop, selection, call.limit or None, allowed=allowed)
        pending.finish(replies.Weighed(weights))

    def bounds(self, pending: PendingCall, call: calls.GetBounds) -> None:
        pending.finish(replies.Bounds(self._queue.oldest, self._queue.next))

    # --- inspect ----------------------------------------------------------------------------------

    def identify(self, pending: PendingCall, call: calls.Identify) -> None:
        pending.finish(replies.Identity(self._site, queue_id(self._queue), self._queue.config, self._queue.next))

    def statistics(self, pending: PendingCall, call: calls.GetStatistics) -> None:
        access = pending.client.access
        pending.finish(replies.Details(statistics=access.visible_statistics(self._queue, self._cursors_of(access))))

    def _cursors_of(self, access: ClientAccess) -> list[str]:
        """The cursors that a client may use."""
        return [name for name in self._queue.cursors() if access.has_cursor(self._owners.of_cursor(name))]

    def list(self, pending: PendingCall, call: calls.ListNames) -> None:
        """The cursors that the client may use. Only a client that may receive everything learns of all origins."""
        access = pending.client.access
        if call.what == "cursors":
            names = self._cursors_of(access)
        else:
            names = access.visible_origins(self._queue.origins, self._queue.config.origin)
        pending.finish(replies.NameList(names))

    def wanted_by(self, pending: PendingCall, call: calls.WantedBy) -> None:
        pending.client.access.check_feed(call.feed)
        wanted = self._queue.wanted_by(call.feed)
        pending.finish(replies.NameList(pending.client.access.visible_readers(wanted)))

    def get_dictionary(self, pending: PendingCall, call: calls.GetDictionary) -> None:
        """For a client that may receive all that it was trained with; others get products expanded."""
        found = log_of(self._queue).dictionaries.get(call.number)
        may = found is not None and pending.client.access.may_have(found)
        pending.finish(Done(), encode_dictionary(found) if found is not None and may else b"")

    def add_dictionary(self, pending: PendingCall, call: calls.AddDictionary) -> None:
        """From a client that may publish products like those that it was trained with."""
        pending.client.access.check_publish_any()
        dictionary = decode_dictionary(bytes(pending.payload), call.number)
        pending.client.access.check_publish_some(dictionary.feed)
        if log_of(self._queue).dictionaries.get(call.number) is None:
            pending.client.principal.introduce("dictionaries", [dictionary.name])
        log_of(self._queue).dictionaries.add(dictionary)
        pending.finish(Done())

    def flush(self, pending: PendingCall, call: calls.Flush) -> None:
        self._queue.flush()
        pending.finish(Done())

    # --- cursors ----------------------------------------------------------------------------------

    def open_cursor(self, pending: PendingCall, call: calls.OpenCursor) -> None:
        """Open a cursor; a new one belongs to the client."""
        access = pending.client.access
        with self._owners.changing:
            names = self._queue.cursors()
            self._owners.keep_cursors(names)
            is_new = call.name not in names
            if is_new and access.owner is not None:
                pending.client.principal.check("cursors", self._owners.cursors_of(access.owner))
            if not is_new:
                access.check_cursor(call.name, self._owners.of_cursor(call.name))
            if len(self._cursors) > CURSORS_MAX:
                self._cursors.clear()
            self._cursors[call.name] = self._queue.cursor(call.name, call.start)
            if is_new and access.owner is not None:
                self._owners.note_cursor(call.name, access.owner)
        pending.finish(Done())

    def load_cursor(self, pending: PendingCall, call: calls.LoadCursor) -> None:
        state = self._cursor(pending, call.name).state
        first, last = (state.lost.first, state.lost.last) if state.lost else (0, 0)
        pending.finish(
            replies.CursorPosition(state.position, state.saved_ns, state.lost_products, first, last, state.generation)
        )

    def save_cursor(self, pending: PendingCall, call: calls.SaveCursor) -> None:
        lost = Lost(call.lost_first, call.lost_last) if call.lost_last else None
        self._cursor(pending, call.name).commit(cast(Batch, _Commit(call.position, lost)))
        pending.finish(Done())

    def remove_cursor(self, pending: PendingCall, call: calls.RemoveCursor) -> None:
        with self._owners.changing:
            self._cursor(pending, call.name).remove()
            self._cursors.pop(call.name, None)
            self._owners.keep_cursors(self._queue.cursors())
        pending.finish(Done())

    def _cursor(self, pending: PendingCall, name: str) -> Cursor:
        """A cursor that exists and that the client may use; one that was removed is not created again by a look."""
        pending.client.access.check_cursor(name, self._owners.of_cursor(name))
        cursor = self._cursors.get(name)
        if cursor is None:
            if name not in self._queue.cursors():
                raise CursorMissingError(f"cursor {name!r} was removed", "create it again: queue.cursor(name)")
            cursor = self._cursors[name] = self._queue.cursor(name)
        return cursor


def _feeds_and_origins(columns: Columns) -> Iterable[tuple[str, str | None]]:
    """Of each product of a `put_many`; one value stands for all."""
    feeds, origins = columns.feed, columns.facts.get("origin")
    if isinstance(origins, str | None):
        return ((feed, origins) for feed in distinct(feeds))
    return zip([feeds] * len(origins) if isinstance(feeds, str) else feeds, origins, strict=True)
