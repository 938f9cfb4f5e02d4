"""RemoteServer: answers the remote users of a site's queue, on `headrace/call/<site>`.

Calls come on threads of Zenoh's, which must not wait. There they are read, and given to whoever does them:

    get, settle, revise   the thread of the attachment, which may wait for products
    a read                a few threads in common: to search a large queue takes its time
    any other             a few threads in common, none of which waits for long

What cannot be read is refused and counted; what finds too many before it is told to come again. A call that comes a
second time is not done a second time (`attending/errand.py`). Everything that clients can make grow has a limit.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import zenoh

from headrace.errors import AccessDeniedError, FabricError, FabricMessageError, HeadraceError, QueueError
from headrace.link.access import Rule, principal_in
from headrace.link.declarations import Declarations
from headrace.link.keys import call_key
from headrace.queue import Queue
from headrace.relay.messages.page import queue_id
from headrace.remote.client.connection import BUSY
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.replies import failure_of
from headrace.remote.server.clients import Clients
from headrace.remote.server.crew import Crew
from headrace.remote.server.pending_call import Busy, PendingCall
from headrace.remote.server.puts import BlockedPuts
from headrace.remote.server.queue_handlers import QueueHandlers
from headrace.remote.server.reads import RecentReads, WaitingReads
from headrace.remote.server.station_handlers import StationHandlers

log = logging.getLogger("headrace.attending")


class RemoteServerStatistics(msgspec.Struct, frozen=True):
    """Counts since the start; clients, attachments and waiting are those of now."""

    clients: int
    attachments: int
    waiting: int
    taken: int
    repeated: int
    refused: int


class RemoteServer:
    """Answers from the moment it is made until `close`."""

    def __init__(
        self, session: zenoh.Session, declarations: Declarations, queue: Queue, site: str, rules: Sequence[Rule] = ()
    ) -> None:
        self._queue_id = queue_id(queue)
        self._site, self._has_rules = site, bool(rules)
        self.taken = self.repeated = self.refused = 0
        self._call_crew, self._read_crew = Crew("call"), Crew("read")
        self._clients = Clients(session, declarations, site, rules)
        self._lobby = WaitingReads(queue, lambda errand: self._read_crew.give(partial(self._do, errand)))
        self.readers = RecentReads()
        desk = QueueHandlers(queue, site, self._lobby, BlockedPuts(), self.readers)
        self._desks = _table(desk, StationHandlers(queue, self._clients))
        key = f"{call_key(site)}/**"
        self._queryable = declarations.add(lambda: session.declare_queryable(key, self._take, complete=True))

    def statistics(self) -> RemoteServerStatistics:
        clients, attachments = self._clients.counts()
        return RemoteServerStatistics(clients, attachments, len(self._lobby), self.taken, self.repeated, self.refused)

    # --- on Zenoh's threads -----------------------------------------------------------------------

    def _take(self, query: zenoh.Query) -> None:
        try:
            if self._call_crew.is_busy:
                raise Busy
            errand, is_known = self._errand(query)
            if is_known:
                self.repeated += 1
                self._call_crew.give(partial(errand.repeat, query))
            else:
                self._give(errand)
                self.taken += 1
        except Busy:
            self._refuse(query, BUSY)
        except FabricError as error:
            log.warning("a call was refused: %s", error)
            self._refuse(query, str(error).encode())

    def _errand(self, query: zenoh.Query) -> tuple[PendingCall, bool]:
        """The errand that a query is about, and whether it is one that we have already."""
        head, payload = query.attachment, query.payload
        envelope = calls.decode_envelope(head.to_bytes() if head is not None else b"")
        if payload is not None and len(payload) > calls.CALL_BYTES_MAX:
            raise FabricMessageError(f"a call with {len(payload)} bytes", f"no call has over {calls.CALL_BYTES_MAX}")
        if payload is not None and len(payload) and not isinstance(envelope.call, calls.Bulky):
            kind = type(envelope.call).__name__
            raise FabricMessageError(f"a call {kind} has no payload", "call by a Headrace of this version")
        client = self._clients.of(envelope.client, principal_in(str(query.key_expr)) if self._has_rules else None)
        errand = PendingCall(client, envelope, payload.to_bytes() if payload is not None else b"", query)
        known = client.take(errand, envelope.oldest)
        return known or errand, known is not None

    def _give(self, errand: PendingCall) -> None:
        call = errand.call
        attachment = None
        if isinstance(call, calls.Get | calls.Settle | calls.Revise) and self._is_meant(errand):
            attachment = errand.client.attachments.get(call.attachment)
        if attachment is not None:
            attachment.give(errand)
        elif not isinstance(call, calls.Next | calls.Weigh):
            self._call_crew.give(partial(self._do, errand))
        elif self._read_crew.is_busy:
            raise Busy
        else:
            self._read_crew.give(partial(self._do, errand))

    def _is_meant(self, errand: PendingCall) -> bool:
        return errand.queue is None or errand.queue == self._queue_id

    def _refuse(self, query: zenoh.Query, why: bytes) -> None:
        self.refused += 1
        try:
            with query:
                query.reply_err(why)
        except zenoh.ZError as error:
            log.warning("a refusal could not be sent: %s", error)

    # --- on ours ----------------------------------------------------------------------------------

    def _do(self, errand: PendingCall) -> None:
        try:
            self._check(errand)
            self._desks[type(errand.call)](errand, errand.call)
        except Busy:
            errand.finish(replies.Failure("FabricError", "too many wait at the site", "ask again later"))
        except (HeadraceError, OSError) as error:
            errand.finish(failure_of(error))
        except Exception as error:  # the caller is told; the thread goes on
            log.exception("a call failed")
            errand.finish(failure_of(error))

    def _check(self, errand: PendingCall) -> None:
        if errand.client.rights.are_none:
            raise AccessDeniedError(f"site {self._site} has no rule for you", "ask whoever runs it for one")
        if not self._is_meant(errand):
            raise QueueError(f"site {self._site} has another queue than before", "connect again")

    def close(self) -> None:
        """Who waits is answered; consumers are detached, and what they hold goes back."""
        self._queryable.undeclare()
        self._lobby.close()
        self._read_crew.close()
        self._call_crew.close()
        self._clients.close()  # last: nobody is left who attaches anything


def _table(desk: QueueHandlers, stations: StationHandlers) -> dict[type, Callable[[PendingCall, Any], None]]:
    """Who does which call."""
    return {
        calls.Who: desk.who, calls.Put: desk.put, calls.PutMany: desk.put_many, calls.PutBatch: desk.put_batch,
        calls.Next: desk.next, calls.Where: desk.where, calls.Weigh: desk.weigh, calls.Ends: desk.ends,
        calls.Tell: desk.tell,
        calls.ListNames: desk.list, calls.WantedBy: desk.wanted_by, calls.Flush: desk.flush,
        calls.OpenCursor: desk.open_cursor, calls.LoadCursor: desk.load_cursor, calls.SaveCursor: desk.save_cursor,
        calls.RemoveCursor: desk.remove_cursor, calls.ListStations: stations.list, calls.OpenStation: stations.open,
        calls.TellStation: stations.tell, calls.ChangeStation: stations.change, calls.PauseStation: stations.pause,
        calls.SeekStation: stations.seek, calls.RemoveStation: stations.remove, calls.Unpark: stations.unpark,
        calls.Attach: stations.attach, calls.Detach: stations.detach, calls.Leave: stations.leave,
        calls.Interrupt: stations.interrupt, calls.TellConsumer: stations.tell_consumer, calls.Get: stations.miss,
        calls.Settle: stations.miss, calls.Revise: stations.miss,
    }  # fmt: skip
