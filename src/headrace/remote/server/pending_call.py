"""PendingCall: a call that a site has taken, until whoever made it has the answer.

An answer may get lost with the connection. Then the call comes again, with the same number: an errand that is done
answers once more, one that is not done yet answers the newest query. The call itself is done once.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import zenoh

from headrace.remote.protocol.calls import Envelope, encode
from headrace.remote.protocol.replies import Reply, failure_of

if TYPE_CHECKING:
    from headrace.remote.server.clients import Client

Say = Callable[[], tuple[Reply, bytes]]  # an answer and its records

log = logging.getLogger("headrace.attending")


class Busy(Exception):  # noqa: N818
    """Too much at once; the call may come again."""


class PendingCall:
    """`finish` by the thread that does it, `repeat` by any."""

    __slots__ = ("_lock", "_query", "_say", "call", "client", "deadline", "number", "payload", "position", "queue")

    def __init__(self, client: "Client", envelope: Envelope, payload: bytes, query: zenoh.Query) -> None:
        self.client, self.payload = client, payload
        self.number, self.call, self.queue = envelope.number, envelope.call, envelope.queue
        self.deadline = 0.0  # for one that waits, with
        self.position = 0  # how far it has looked
        self._lock = threading.Lock()
        self._query: zenoh.Query | None = query
        self._say: Say | None = None

    @property
    def is_done(self) -> bool:
        return self._say is not None

    def finish(self, answer: Reply, records: bytes = b"") -> None:
        """The answer, which is kept for as long as the call may come again."""
        self.finish_with(lambda: (answer, records))

    def finish_with(self, say: Say) -> None:
        """As `finish`, for what is too large to be kept: it is made again if it has to be sent again."""
        with self._lock:
            self._say, self.payload = say, b""
            query, self._query = self._query, None
        if query is not None:
            _send(query, say)

    def repeat(self, query: zenoh.Query) -> None:
        """The same call once more: answer this query, now or when it is done."""
        with self._lock:
            before, say = self._query, self._say
            if say is None:
                self._query = query
        if before is not None:
            before.drop()  # type: ignore[no-untyped-call]
        if say is not None:
            _send(query, say)


def _send(query: zenoh.Query, say: Say) -> None:
    """Whatever is wrong with the answer, whoever sends it goes on."""
    try:
        answer, records = say()
        head = encode(answer)
    except Exception as error:
        log.exception("an answer could not be given")
        head, records = encode(failure_of(error)), b""
    with suppress(zenoh.ZError), query:  # whoever asked may have gone
        query.reply(query.key_expr, records, attachment=head)
