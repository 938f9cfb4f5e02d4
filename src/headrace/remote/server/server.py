"""RemoteServer: serves the remote clients of a site's queue, on `headrace/call/<site>`.

Calls arrive on Zenoh's threads, which must not wait. There they are decoded, and handed to the threads that execute
them:

    Get, Settle, Revise    threads for all consumers; a Get that finds nothing waits apart (consumer.py, gets.py)
    reads                  threads of their own, because searching a large queue takes time
    reads by a function    others, because a function of a user may be slow
    groups of nodes        others, because a stopped process on this machine may hold the lock of a group
    every other call       threads; no call there waits for long

All of them serve principals in turn (fair.py), within the quotas of each (principal.py). Of a call that its principal
may not make, no payload is kept. A call that cannot be decoded is refused and counted. A call that finds too many
others of its principal waiting is refused as busy, and the client retries. A repeated call is not executed a second
time (pending_call.py). Everything that clients can make grow has a limit.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import msgspec
import zenoh

from headrace.errors import AccessDeniedError, FabricError, FabricMessageError, HeadraceError, QueueError
from headrace.guard import FAILURES, guarded
from headrace.link.access import principal_in
from headrace.link.audit import Audit
from headrace.link.declarations import Declarations
from headrace.link.fair import Busy, FairThreads
from headrace.link.keys import AT_SOCKET, call_key
from headrace.link.quotas import QuotaTable
from headrace.link.rights import Rule
from headrace.payload.compression.link import ENCODING
from headrace.queue import Queue
from headrace.relay.messages.page import queue_id
from headrace.relay.signing.verify import Verifier
from headrace.remote.protocol import calls, channel_calls, member_calls, replies, share_calls
from headrace.remote.protocol.envelope import BUSY, CALL_BYTES_MAX, Envelope, decode_head, encode
from headrace.remote.protocol.hello import Hello, agree
from headrace.remote.protocol.replies import failure_of
from headrace.remote.server.audited import AuditedCalls
from headrace.remote.server.channel_handlers import ChannelHandlers
from headrace.remote.server.clients import Client, Clients
from headrace.remote.server.gets import WaitingGets
from headrace.remote.server.membership import Membership
from headrace.remote.server.owners import Owners
from headrace.remote.server.pending_call import PendingCall
from headrace.remote.server.principal import Principals, Refusals
from headrace.remote.server.puts import BlockedPuts
from headrace.remote.server.queue_handlers import QueueHandlers
from headrace.remote.server.reads import RecentReads, WaitingReads
from headrace.remote.server.seat_waits import WaitingSeats
from headrace.remote.server.share_handlers import ShareHandlers
from headrace.remote.server.signed_puts import SignedPuts
from headrace.remote.server.station_handlers import StationHandlers

_THREADS = 4  # of each executor
_FUNCTION_THREADS = 2
_SHARE_THREADS = 8  # on a disk, one flush serves the calls of all of them
_READS = calls.ReadProducts | calls.Weigh
_COUNTING = _READS | calls.GetStatistics  # held against `selection_s`

log = logging.getLogger("headrace.remote.server")


class RemoteServerStatistics(msgspec.Struct, frozen=True):
    """Counts since the start; clients, attachments and waiting are current."""

    clients: int
    attachments: int
    waiting: int
    taken: int
    repeated: int
    refused: int
    watching: int = 0  # calls that wait for a change of members
    nodes: int = 0  # calls of processing nodes that wait for a change of what they hold
    wire_bytes: int = 0  # of messages that were compressed for the link
    plain_bytes: int = 0  # of the same ones without that
    over_quota: int = 0  # calls that were refused or slowed down by the quota of a principal


class RemoteServer:
    """Serves from the moment it is made until `close`."""

    def __init__(
        self, session: zenoh.Session, declarations: Declarations, queue: Queue, site: str, rules: Sequence[Rule] = (),
        principal: str | None = None, quotas: QuotaTable | None = None, audit: Audit | None = None,
        verifier: Verifier | None = None,
    ) -> None:  # fmt: skip
        """`principal` is the name by which other sites know this one. `quotas` hold where there are rules.

        `verifier` holds products of other origins against their signatures.
        """
        self._queue_id = queue_id(queue)
        self._site, self._rules = site, rules
        self._audited = AuditedCalls(audit or Audit(None))
        self.taken = self.repeated = self.refused = 0
        self._call_threads = FairThreads(_THREADS, "headrace-call")
        self._read_threads = FairThreads(_THREADS, "headrace-read")
        self._function_threads = FairThreads(_FUNCTION_THREADS, "headrace-function")
        self._share_threads = FairThreads(_SHARE_THREADS, "headrace-share")
        self.recent_reads = RecentReads()
        owners, quotas = Owners(queue.path), quotas or QuotaTable()
        self._principals = Principals(rules, quotas, self._audited.exceeded)
        with ExitStack() as parts:
            self._gets = WaitingGets(queue)
            parts.callback(self._gets.close)
            self._clients = Clients(
                session, declarations, site, rules, self._gets, self._audited.join, self._principals
            )
            parts.callback(self._clients.close)
            self._waiting = WaitingReads(queue, self._resume)
            parts.callback(self._waiting.close)
            self._membership = Membership(session, declarations, queue, site, self._clients, principal, self._hand_over)
            parts.callback(self._membership.close)
            self._seats = WaitingSeats(queue.path, self._hand_over)
            parts.callback(self._seats.close)
            handlers = self._queue_handlers = QueueHandlers(
                queue, site, self._waiting, BlockedPuts(), self.recent_reads, self._gets.downloads, owners,
                SignedPuts(site, verifier),
            )  # fmt: skip
            stations = StationHandlers(queue, self._clients, owners)
            self._handlers = _table(
                handlers, stations, ChannelHandlers(queue, self._clients, stations), self._membership,
                ShareHandlers(queue, self._seats),
            )  # fmt: skip
            self._queryables = [
                declarations.add(
                    lambda key=key: session.declare_queryable(key, guarded(self._receive), complete=True)  # type: ignore[misc]
                )
                for key in (f"{call_key(site)}/**", f"{call_key(site)}/{AT_SOCKET}/*")
            ]
            parts.pop_all()  # it runs; from now on `close` ends it

    def statistics(self) -> RemoteServerStatistics:
        clients, consumers = self._clients.counts()
        return RemoteServerStatistics(
            clients, consumers, len(self._waiting), self.taken, self.repeated, self.refused, len(self._membership),
            len(self._seats), self._clients.link.wire_bytes, self._clients.link.plain_bytes,
            sum(each.count for each in self.refusals()),
        )  # fmt: skip

    def refusals(self) -> list[Refusals]:
        """What principals were refused by their quotas."""
        return self._principals.refusals()

    # --- on Zenoh's threads -----------------------------------------------------------------------

    def _receive(self, query: zenoh.Query) -> None:
        try:
            name = principal_in(str(query.key_expr), self._rules)
            if not self._principals.of(name).takes("calls_per_s"):
                raise Busy
            head = query.attachment
            envelope = decode_head(head.to_bytes() if head is not None else b"")
            if isinstance(envelope, Hello):
                self._welcome(query, envelope)
                return
            pending, is_known = self._accept(query, envelope, name)
            if is_known:
                self.repeated += 1
                self._call_threads.submit(pending.client.turn, pending.repeat, query)
            else:
                self._dispatch(pending)
                self.taken += 1
        except Busy:
            self._refuse(query, BUSY)
        except FabricError as error:
            log.warning("a call was refused: %s", error)
            self._refuse(query, str(error).encode())

    def _welcome(self, query: zenoh.Query, hello: Hello) -> None:
        head = encode(agree(hello))
        with suppress(zenoh.ZError), query:  # the client may have disconnected
            query.reply(query.key_expr, b"", attachment=head)

    def _accept(self, query: zenoh.Query, envelope: Envelope, name: str | None) -> tuple[PendingCall, bool]:
        """The call of a query, and whether it is a repetition of one that was accepted before.

        Busy before the call is noted, because its repetition must find it executed.
        """
        payload = query.payload
        if payload is not None and len(payload) > CALL_BYTES_MAX:
            raise FabricMessageError(f"the call has {len(payload)} bytes", f"the limit is {CALL_BYTES_MAX} bytes")
        if payload is not None and len(payload) and not isinstance(envelope.call, calls.Bulky):
            kind = type(envelope.call).__name__
            raise FabricMessageError(f"a call {kind} must not have a payload", "see docs/protocol.md")
        client = self._clients.of(envelope.client, name)
        self._threads_for(envelope.call).check_room(client.turn)
        reserved_s = self._reserve(client, envelope.call)
        held = self._hold(client, envelope.call, 0 if payload is None else len(payload))
        pending = PendingCall(client, envelope, query, held, reserved_s)
        try:
            known = client.accept(pending, envelope.oldest)
        except Exception:
            self._give_back(pending)
            raise
        if known is not None:
            self._give_back(pending)
        elif held and payload is not None:
            pending.take(payload.to_bytes(), is_compressed=str(query.encoding) == ENCODING)
        return known or pending, known is not None

    def _reserve(self, client: Client, call: calls.Call) -> float:
        """Processor time for a call that is held against `selection_s`. Busy if nothing is left of it."""
        if isinstance(call, calls.Get) and not client.principal.may_spend("selection_s"):
            raise Busy
        reserved = client.principal.reserve("selection_s") if isinstance(call, _COUNTING) else 0.0
        if reserved is None:
            raise Busy
        return reserved

    def _give_back(self, pending: PendingCall) -> None:
        """What was taken for a call that is not executed."""
        pending.release()
        pending.client.principal.spend("selection_s", -pending.reserved_s)

    def _hold(self, client: Client, call: calls.Call, size: int) -> int:
        """How much of a payload is kept: nothing of what the client may not send. Busy if its quotas are used up."""
        if not size or not client.access.may_send(call):
            return 0
        if not client.principal.takes("bytes_per_s", size) or not client.principal.hold(size):
            raise Busy
        return size

    def _dispatch(self, pending: PendingCall) -> None:
        """Hand a new call to the thread or executor that executes it."""
        call = pending.call
        consumer = None
        if isinstance(call, calls.Get | calls.Settle | calls.Revise) and self._is_meant(pending):
            consumer = pending.client.consumers.get(call.attachment)
        if consumer is not None:
            consumer.submit(pending)
        else:
            self._threads_for(call).submit(pending.client.turn, self._execute, pending)

    def _threads_for(self, call: calls.Call) -> FairThreads:
        """The threads that execute a call. A text that only looks as if it named a function does no harm."""
        if isinstance(call, share_calls.ShareStruct):
            return self._share_threads
        if isinstance(call, _READS):
            return self._function_threads if "function" in call.selection else self._read_threads
        return self._call_threads

    def _is_meant(self, pending: PendingCall) -> bool:
        return pending.queue is None or pending.queue == self._queue_id

    def _refuse(self, query: zenoh.Query, why: bytes) -> None:
        self.refused += 1
        try:
            with query:
                query.reply_err(why)
        except zenoh.ZError as error:
            log.warning("a refusal could not be sent: %s", error)

    # --- in the executors -------------------------------------------------------------------------

    def _execute(self, pending: PendingCall) -> None:
        begun_s = time.thread_time()
        try:
            self._execute_call(pending)
        finally:
            if isinstance(pending.call, _COUNTING):
                taken_s = time.thread_time() - begun_s
                pending.client.principal.settle("selection_s", pending.reserved_s, taken_s)

    def _execute_call(self, pending: PendingCall) -> None:
        try:
            self._check(pending)
            self._handlers[type(pending.call)](pending, pending.call)
            self._audited.done(pending)
        except Busy:
            pending.finish(replies.Failure("FabricError", "too many calls wait at the site", "retry later"))
        except (HeadraceError, OSError) as error:
            self._audited.failed(pending, error)
            pending.finish(failure_of(error))
        except Exception as error:  # noqa: BLE001 the client gets the error; the thread goes on
            FAILURES.note("headrace-call", error)
            pending.finish(failure_of(error))

    def _resume(self, read: PendingCall) -> None:
        """Continue a read that waited. It was accepted, so it is not refused now; closed threads are bypassed."""
        try:
            self._threads_for(read.call).submit(read.client.turn, self._execute, read)
        except Busy:
            self._execute(read)

    def _hand_over(self, act: Callable[[PendingCall], None], pending: PendingCall) -> None:
        """Reply to a call that waited, in one of the threads as long as there are some."""
        try:
            self._read_threads.submit(pending.client.turn, act, pending)
        except Busy:
            act(pending)

    def _check(self, pending: PendingCall) -> None:
        if pending.client.access.is_empty:
            raise AccessDeniedError(f"site {self._site} has no access rule for you", "ask its operator for one")
        pending.client.access.check_call(type(pending.call))
        if not self._is_meant(pending):
            raise QueueError(f"site {self._site} has another queue than before", "connect again")

    def leave(self) -> None:
        """Announce that the site is about to stop, to other sites and to clients that watch members."""
        self._membership.leave()

    def close(self) -> None:
        """Answer the calls that wait, and detach consumers; the products they hold go back."""
        for each in self._queryables:
            each.undeclare()
        self._waiting.close()
        self._membership.close()
        self._share_threads.shutdown(cancel=True)  # the lock of a group may be held; the nodes call again
        self._seats.close()
        self._read_threads.shutdown()
        self._function_threads.shutdown()
        self._call_threads.shutdown()
        self._queue_handlers.close()
        self._clients.close()  # no thread is left that attaches a consumer
        self._gets.close()  # no consumer is left


def _table(
    queue: QueueHandlers,
    stations: StationHandlers,
    channels: ChannelHandlers,
    membership: Membership,
    shares: ShareHandlers,
) -> dict[type, Callable[[PendingCall, Any], None]]:
    """The handler of each call."""
    return {
        calls.GetDictionary: queue.get_dictionary, calls.AddDictionary: queue.add_dictionary,
        calls.Identify: queue.identify, calls.PutOne: queue.put, calls.PutMany: queue.put_many,
        calls.PutBatch: queue.put_batch, calls.PutPart: queue.put_part, calls.ReadPart: queue.read_part,
        calls.ReadProducts: queue.read, calls.Resolve: queue.resolve,
        calls.Weigh: queue.weigh,
        calls.GetBounds: queue.bounds, calls.GetStatistics: queue.statistics, calls.ListNames: queue.list,
        calls.WantedBy: queue.wanted_by, calls.Flush: queue.flush, calls.OpenCursor: queue.open_cursor,
        calls.LoadCursor: queue.load_cursor, calls.SaveCursor: queue.save_cursor,
        calls.RemoveCursor: queue.remove_cursor, calls.ListStations: stations.list, calls.OpenStation: stations.open,
        calls.DescribeStation: stations.describe, calls.ChangeStation: stations.change,
        calls.PauseStation: stations.pause, calls.SeekStation: stations.seek, calls.RemoveStation: stations.remove,
        calls.Unpark: stations.unpark, calls.Attach: stations.attach, calls.Detach: stations.detach,
        calls.Leave: stations.leave, calls.Interrupt: stations.interrupt,
        calls.DescribeConsumer: stations.describe_consumer, calls.Get: stations.miss, calls.Settle: stations.miss,
        calls.Revise: stations.miss, channel_calls.ListChannels: channels.list,
        channel_calls.OpenChannel: channels.open, channel_calls.DescribeChannel: channels.describe,
        channel_calls.ChangeChannel: channels.change, channel_calls.RemoveChannel: channels.remove,
        channel_calls.OpenMember: channels.open_station, channel_calls.ChangeMember: channels.change_station,
        channel_calls.OpenSupplier: channels.open_supplier, channel_calls.CloseSupplier: channels.close_supplier,
        member_calls.WatchMembers: membership.watch, share_calls.ListShares: shares.list,
        share_calls.OpenShare: shares.open, share_calls.DescribeShare: shares.describe,
        share_calls.RemoveShare: shares.remove, share_calls.UnparkProducts: shares.unpark,
        share_calls.JoinShare: shares.join, share_calls.Exchange: shares.exchange, share_calls.WatchSeat: shares.watch,
        share_calls.BeginProduct: shares.begin_product, share_calls.FailProduct: shares.fail_product,
        share_calls.ParkProduct: shares.park_product, share_calls.LeaveSeat: shares.leave,
        share_calls.LeadShare: shares.lead, share_calls.MoveSlices: shares.move,
        share_calls.CancelMoves: shares.cancel, share_calls.GiveSlices: shares.give,
        share_calls.SeizeSeat: shares.seize, share_calls.DrainSeat: shares.drain,
    }  # fmt: skip
