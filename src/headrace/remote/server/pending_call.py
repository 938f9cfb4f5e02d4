"""PendingCall: a call that a site has accepted, until its reply is sent.

A reply may be lost with the connection. The client then sends the call again, with the same number. If the call is
finished, its reply is sent again; if not, the newest query gets the reply once it is. The call itself is executed once.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import zenoh

from headrace.guard import FAILURES
from headrace.payload.compression.link import ENCODING, LinkCounts, is_asked, shrunk, unfolded
from headrace.remote.protocol.envelope import CALL_BYTES_MAX, Envelope, encode
from headrace.remote.protocol.replies import Reply, failure_of

if TYPE_CHECKING:
    from headrace.remote.server.clients import Client

MakeReply = Callable[[], tuple[Reply, bytes]]  # a reply and its records

log = logging.getLogger("headrace.remote.server")


class PendingCall:
    """`finish` is called by the thread that executes the call, `repeat` by any thread."""

    __slots__ = (
        "_came_ns", "_held", "_is_compressed", "_lock", "_make", "_payload", "_query", "call", "client", "deadline",
        "number", "position", "queue", "reserved_s",
    )  # fmt: skip

    def __init__(
        self, client: "Client", envelope: Envelope, query: zenoh.Query, held: int = 0, reserved_s: float = 0.0
    ) -> None:
        """`held` bytes of its payload count towards what the principal may have waiting, until the call is finished;
        `reserved_s` is the processor time that its principal has paid for it.
        """
        self.client, self._held, self.reserved_s = client, held, reserved_s
        self._payload: bytes | memoryview = b""  # a view if it came in parts
        self._is_compressed = False
        self.number, self.call, self.queue = envelope.number, envelope.call, envelope.queue
        self.deadline = 0.0  # of a read that waits for products
        self.position = 0  # up to where that read has examined the queue
        self._lock = threading.Lock()
        self._came_ns = time.monotonic_ns()
        self._query: zenoh.Query | None = query
        self._make: MakeReply | None = None

    def take(self, payload: bytes, *, is_compressed: bool) -> None:
        """Keep what came with the call."""
        self._payload, self._is_compressed = payload, is_compressed

    def release(self) -> None:
        """The payload is not needed any more."""
        held, self._held = self._held, 0
        if held:
            self.client.principal.release(held)
        self.payload = b""

    @property
    def payload(self) -> bytes | memoryview:
        """What came with the call. A compressed one expands only now: its rights have been checked before."""
        if self._is_compressed:
            sent = bytes(self._payload)
            self._payload = unfolded(sent, CALL_BYTES_MAX, "the payload of a call")
            self._is_compressed = False
            self.client.link.add(len(sent), len(self._payload))
        return self._payload

    @payload.setter
    def payload(self, payload: bytes | memoryview) -> None:
        self._payload, self._is_compressed = payload, False

    @property
    def waited_ns(self) -> int:
        """How long the query that gets the reply has been at the site."""
        return time.monotonic_ns() - self._came_ns

    @property
    def is_finished(self) -> bool:
        return self._make is not None

    def finish(self, reply: Reply, records: bytes = b"") -> None:
        """Send the reply, and keep it for as long as the call may be repeated."""
        self.finish_with(lambda: (reply, records))

    def finish_with(self, make: MakeReply) -> None:
        """As `finish`, for a reply that is too large to keep: it is made again if it has to be sent again."""
        with self._lock:
            self._make = make
            self.release()
            query, self._query = self._query, None
        if query is not None:
            self.client.outbox.send(lambda: _send(query, make, self.client.link))

    def repeat(self, query: zenoh.Query) -> None:
        """The same call came again: reply to this query, now or when the call is finished."""
        with self._lock:
            before, make = self._query, self._make
            self._came_ns = time.monotonic_ns()
            if make is None:
                self._query = query
        if before is not None:
            before.drop()  # type: ignore[no-untyped-call]
        if make is not None:
            self.client.outbox.send(lambda: _send(query, make, self.client.link))


def _send(query: zenoh.Query, make: MakeReply, link: LinkCounts) -> None:
    """Send a reply; an error in making it becomes the reply, so that the calling thread goes on."""
    try:
        reply, records = make()
        head = encode(reply)
    except Exception as error:  # noqa: BLE001 it becomes the reply
        FAILURES.note("headrace-reply", error)
        head, records = encode(failure_of(error)), b""
    small = shrunk(records) if records and is_asked(query.parameters) else None
    with suppress(zenoh.ZError), query:  # the client may have disconnected
        if small is None:
            query.reply(query.key_expr, records, attachment=head)
        else:
            link.add(len(small), len(records))
            query.reply(query.key_expr, small, attachment=head, encoding=ENCODING)
