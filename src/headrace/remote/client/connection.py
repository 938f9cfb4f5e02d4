"""Connection: one client of one site. It makes calls and sees to it that each gets its answer.

A link that breaks is set up again by Zenoh, for as long as the session lives. Calls that were under way are given up
at that moment, and asked again with the number they had: what the site did already, it does not do again. How long is
a matter of patience, which is the caller's; calls that wait for products anyway wait for the site as well.

The site knows that a client is there by its token. The token has a digest of the client's id, so that nobody who sees
it can make calls in the client's name. A Connection may be used by several threads, and by one process.
"""

import hashlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import Any, TypeVar

import zenoh

from headrace.errors import FabricError, FabricMessageError, HeadraceError, QueueClosedError, SiteUnreachableError
from headrace.link.access import principal_key
from headrace.link.keys import call_key, client_key
from headrace.log.records import Names
from headrace.remote.protocol.calls import VERSION, Call, Envelope, Get, Leave, Next, Who, encode
from headrace.remote.protocol.replies import Again, Done, Failure, Here, Reply, Unattached, decode_reply, error_of

BUSY = b"busy"
_ANSWER_S = 60.0  # beyond what a call waits by intention; that a link is dead shows much sooner
_PRODUCTS_S = 600.0  # the same for answers with products, of which one may be large and the link slow
_SLOWEST = 20_000  # bytes in a second that a link takes at least
_LEAVE_S = 1.0
_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5)
_NONE = zenoh.ConsolidationMode.NONE
_BLOCK = zenoh.CongestionControl.BLOCK

Kind = TypeVar("Kind", bound=Reply)
RawReply = tuple[bytes, bytes]  # head and payload of an answer

log = logging.getLogger("headrace.remote")


class Detached(Exception):  # noqa: N818
    """The site does not know our attachment any more."""


class NotYet(Exception):  # noqa: N818
    """A put has to wait for a station; nothing was stored."""


class PendingReply:
    """A query under way; its answer is taken once."""

    __slots__ = ("__weakref__", "_replies", "_token")

    def __init__(self, session: zenoh.Session, key: str, head: bytes, payload: Any, timeout_s: float) -> None:
        self._token = zenoh.CancellationToken()
        self._replies = session.get(
            key, zenoh.handlers.FifoChannel(2), payload=payload, attachment=head, timeout=timeout_s, express=True,
            consolidation=_NONE, congestion_control=_BLOCK, cancellation_token=self._token,
        )  # fmt: skip

    def take(self) -> RawReply | None:
        """Wait for the answer; None if there is none, FabricMessageError if the call could not be read there."""
        return _came(next(self._replies, None))

    def cancel(self) -> None:
        """Nobody wants the answer any more; who waits for it goes on at once."""
        self._token.cancel()  # type: ignore[no-untyped-call]


def _came(reply: zenoh.Reply | None) -> RawReply | None:
    if reply is None:
        return None
    if reply.ok is None:
        told = reply.err.payload.to_bytes() if reply.err is not None else BUSY
        if told == BUSY or told == b"Timeout":
            return None
        raise FabricMessageError(f"the site refused the call: {told.decode(errors='replace')}", "run the same version")
    head = reply.ok.attachment
    return head.to_bytes() if head is not None else b"", reply.ok.payload.to_bytes()


class Connection:
    """Lives until `close`. `name` is that of our certificate or user, if we have one."""

    def __init__(self, session: zenoh.Session, endpoint: str, site: str, name: str | None, patience_s: float) -> None:
        self.endpoint, self.site, self.patience_s = endpoint, site, patience_s
        self.names = Names()
        self._session, self._key = session, principal_key(call_key(site), name)
        self._client = os.urandom(16)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._numbers = 0
        self._open: dict[int, None] = {}  # calls that may be asked again, the oldest first
        self._ended: deque[int] = deque()  # those of them that will not be
        self._followers = 0
        self._silent_since: float | None = None
        self._closed = threading.Event()
        self._under_way: weakref.WeakSet[PendingReply] = weakref.WeakSet()
        self._breaks = 0  # of links
        self._links: Any = session.info.declare_transport_events_listener(self._see)
        self._queue: bytes | None = None
        self._token = session.liveliness().declare_token(client_key(site, client_digest(self._client)))
        here, _ = self.ask(Who(), Here)
        self._queue = here.queue

    # --- numbers ----------------------------------------------------------------------------------

    def begin(self) -> int:
        """A number for a call that must not be done twice; it is remembered until `end`."""
        with self._lock:
            self._numbers += 1
            self._open[self._numbers] = None
            return self._numbers

    def end(self, number: int) -> None:
        """The call was answered, or nobody will ask again. Takes no lock, as `send`."""
        self._ended.append(number)

    def get_number(self) -> int:
        """A number for a Get, which the site remembers until the next one."""
        with self._lock:
            self._numbers += 1
            return self._numbers

    def new_follower(self) -> int:
        with self._lock:
            self._followers += 1
            return self._followers

    def _head(self, call: Call, number: int) -> bytes:
        with self._lock:
            while self._ended:
                self._open.pop(self._ended.popleft(), None)
            oldest = next(iter(self._open), self._numbers + 1)
        return encode(Envelope(VERSION, self._client, self._queue, number, oldest, call))

    # --- calls ------------------------------------------------------------------------------------

    def stand(self, call: Call, payload: Any = b"", *, number: int = 0, wait_s: float = 0.0) -> PendingReply:
        """Make a call whose answer is taken later."""
        self.check_open()
        answer_s = _PRODUCTS_S if isinstance(call, Next | Get) else _ANSWER_S
        timeout_s = wait_s + answer_s + len(payload) / _SLOWEST
        breaks = self._breaks
        try:
            asked = PendingReply(self._session, self._key, self._head(call, number), payload, timeout_s)
        except zenoh.ZError as error:
            self.check_open()
            raise FabricError(f"site {self.site} cannot be asked: {error}", "connect anew") from None
        with self._lock:
            self._under_way.add(asked)
        if self._breaks != breaks:  # whoever gave up what was under way may not have seen it
            asked.cancel()
        return asked

    def read(self, came: RawReply | None, kind: type[Kind]) -> tuple[Kind, bytes] | None:
        """What came: the answer, None for silence, or the error of the site."""
        if came is None:
            self.check_open()
            self._note_silence()
            return None
        self._end_silence()
        answer = decode_reply(came[0])
        if isinstance(answer, Failure):
            raise error_of(answer)
        if isinstance(answer, Unattached):
            raise Detached
        if isinstance(answer, Again):
            raise NotYet
        if not isinstance(answer, kind):
            raise FabricMessageError(
                f"site {self.site} answered {type(answer).__name__} where {kind.__name__} was asked for",
                "run the same version at both ends",
            )
        return answer, came[1]

    def attempt(
        self, call: Call, kind: type[Kind], payload: Any = b"", *, number: int = 0, wait_s: float = 0.0
    ) -> tuple[Kind, bytes] | None:
        """Ask once; None if no answer came."""
        return self.read(self.stand(call, payload, number=number, wait_s=wait_s).take(), kind)

    def ask(
        self, call: Call, kind: type[Kind], payload: Any = b"", *, number: int = 0, patience_s: float | None = None
    ) -> tuple[Kind, bytes]:
        """Ask until the answer comes, or patience is over: SiteUnreachableError."""
        begun = time.monotonic()
        until = begun + (self.patience_s if patience_s is None else patience_s)
        turn = 0
        while (came := self.attempt(call, kind, payload, number=number)) is None:
            if time.monotonic() >= until:
                raise self.unreachable(begun)
            self.pause(turn)
            turn += 1
        return came

    def once(self, call: Call, kind: type[Kind], payload: Any = b"") -> tuple[Kind, bytes]:
        """As `ask`, for what must not be done twice."""
        number = self.begin()
        try:
            return self.ask(call, kind, payload, number=number)
        finally:
            self.end(number)

    def send(self, call: Call) -> None:
        """Make a call and do not care for the answer. Takes no lock: it may be called by the garbage collector."""
        if self._closed.is_set() or self._pid != os.getpid():
            return
        head = encode(Envelope(VERSION, self._client, self._queue, 0, 0, call))
        with suppress(zenoh.ZError):  # it is closed
            self._session.get(
                self._key, lambda reply: None, attachment=head, timeout=_ANSWER_S, congestion_control=_BLOCK
            )

    # --- broken links -----------------------------------------------------------------------------

    def _see(self, event: zenoh.TransportEvent) -> None:
        """On Zenoh's thread, which must not wait."""
        if event.kind == zenoh.SampleKind.DELETE and not self._closed.is_set():
            self._breaks += 1
            threading.Thread(target=self._give_up, name="headrace-broken", daemon=True).start()

    def _give_up(self) -> None:
        """What was sent into a link that broke may never be answered, and Zenoh does not always notice."""
        with self._lock:
            under_way = list(self._under_way)
        for asked in under_way:
            asked.cancel()

    # --- silence ----------------------------------------------------------------------------------

    def pause(self, turn: int) -> None:
        """Between two attempts, longer each time."""
        self._closed.wait(_PAUSES_S[min(turn, len(_PAUSES_S) - 1)])

    def _note_silence(self) -> None:
        if self._silent_since is None:
            self._silent_since = time.monotonic()
            log.warning("site %s at %s does not answer; asking again", self.site, self.endpoint)

    def _end_silence(self) -> None:
        since, self._silent_since = self._silent_since, None
        if since is not None:
            silent_s = time.monotonic() - since
            log.warning("site %s at %s answers again, after %.1f s", self.site, self.endpoint, silent_s)

    @property
    def is_silent(self) -> bool:
        """The last call got no answer."""
        return self._silent_since is not None

    @property
    def has_patience(self) -> bool:
        """Nothing is wrong, or it has not been for long."""
        since = self._silent_since
        return since is None or time.monotonic() - since < self.patience_s

    def unreachable(self, begun: float | None = None) -> SiteUnreachableError:
        """For a call that was `begun` then; silence shows only when an attempt has ended."""
        since = min(moment for moment in (begun, self._silent_since, time.monotonic()) if moment is not None)
        return SiteUnreachableError(
            f"site {self.site} at {self.endpoint} has not answered for {time.monotonic() - since:.1f} s",
            "check that it runs and can be reached from here; what was under way may have happened, or not",
        )

    # --- life -------------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self._closed.is_set():
            raise QueueClosedError(
                f"{self.endpoint} was closed in this process", "open it again: headrace.connect(where)"
            )
        if self._pid != os.getpid():
            raise FabricError(
                f"this connection to {self.endpoint} belongs to process {self._pid}",
                "connect again in the child: headrace.connect(where)",
            )

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def close(self, politely: bool = True) -> None:
        """Leave: what consumers of this connection hold goes back, at once if the site is told `politely`."""
        if self._closed.is_set() or self._pid != os.getpid():
            return
        with suppress(HeadraceError):  # a site that cannot be reached finds out by itself
            if politely and not self.is_silent:
                self.ask(Leave(), Done, patience_s=_LEAVE_S)
        self._closed.set()
        try:
            self._links.undeclare()
            self._token.undeclare()  # type: ignore[no-untyped-call]
            self._session.close()  # type: ignore[no-untyped-call]
        except zenoh.ZError as error:
            log.warning("closing the connection to %s: %s", self.endpoint, error)


def client_digest(client: bytes) -> str:
    """What a client's token shows of its id."""
    return hashlib.blake2b(client, digest_size=16).hexdigest()
