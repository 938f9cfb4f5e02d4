"""Connection: one client of one site. It makes calls and repeats each until its reply arrives.

Zenoh reconnects a broken link for as long as the session lives. Calls without a reply are abandoned at that moment and
repeated with the same number, so that the site does not execute again what it has executed already. A call is repeated
for as long as the caller's patience; calls that wait for products wait for the site as well. Each call exists twice: it
blocks its thread (`ask`), or takes a Wait (`ask_by`), which may be that of a task (waiting.py).

The site knows by a token that a client is connected. The token has a digest of the client's id, so that a client which
sees the token cannot make calls in another's name. A Connection may be used by several threads, and by one process.

A program that ends without `close`, also by an exception, keeps its exit code: the connection is closed at exit, so
that the site frees its leases at once. For that no callback has a thread of Zenoh's (`indirect=False`), because the
interpreter would wait for such a thread before it runs what is registered to run at exit.
"""

import atexit
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import zenoh

from headrace.errors import FabricError, FabricMessageError, HeadraceError, QueueClosedError
from headrace.guard import OnceThread, guarded
from headrace.link.access import principal_key
from headrace.link.keys import call_key, client_key
from headrace.log.records import Names
from headrace.payload.compression.link import ENCODING, asking, shrunk
from headrace.remote.client.call_numbers import CallNumbers
from headrace.remote.client.dictionaries import RemoteDictionaries
from headrace.remote.client.page_size import FIRST_PART_BYTES, PageSize
from headrace.remote.client.pending import PendingReply, RawReply, SlowReply
from headrace.remote.client.silence import LARGE_BYTES, OnLoss, Silence
from headrace.remote.client.site_clock import SiteClock
from headrace.remote.client.waiting import BLOCKING, Sender, Wait, finish
from headrace.remote.protocol.calls import Call, Get, Identify, Leave, ReadPart, ReadProducts
from headrace.remote.protocol.envelope import Envelope, client_digest, encode
from headrace.remote.protocol.fields import PAGE_BYTES_MAX
from headrace.remote.protocol.hello import COMPRESSION_VERSION, HELLO, OLDEST_VERSION, PARTS_VERSION, VERSION, Hello
from headrace.remote.protocol.replies import (
    Done,
    Failure,
    Identity,
    NotAttached,
    Part,
    PartsGone,
    Products,
    Reply,
    StillBlocked,
    Welcome,
    decode_reply,
    error_of,
)

_REPLY_S = 60.0  # beyond the time that a call waits on purpose; a dead link is noticed much sooner
_PRODUCTS_S = 600.0  # the same for replies with products: one may be large, and the link slow
_SLOWEST_LINK = 20_000  # bytes per second
_LEAVE_S = 1.0  # patience of `close`, and
_LEFT_S = 5.0  # how long it waits for one reply: a site that hangs must not hold up the end of a program
_GREETING_S_MIN = 0.5  # for a site that was found at the last moment
_LIMIT_S_MIN = 0.05  # for a reply, however late it is
GRACE_S = 0.5  # beyond a timeout, for the reply of a site that has waited until then
_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5)
_BLOCK = zenoh.CongestionControl.BLOCK

Message = Call | Hello
Kind = TypeVar("Kind", bound=Reply)
Pending = TypeVar("Pending", bound=PendingReply)

log = logging.getLogger("headrace.remote")


class Detached(Exception):  # noqa: N818
    """The site has ended the attachment of this consumer."""


class PartsLost(Exception):  # noqa: N818
    """The site no longer has the parts of a call or a reply: begin again."""


class Fetch:
    """A reply with products that comes in parts, and those that have come. Most have one."""

    __slots__ = ("parts", "reply", "size")

    def __init__(self, reply: Products, records: bytes) -> None:
        self.reply, self.parts, self.size = reply, [records], len(records)


class NotYet(Exception):  # noqa: N818
    """A put waits for a blocking station; nothing was stored yet."""

    def __init__(self, waits_for: str) -> None:
        super().__init__(waits_for)
        self.waits_for = waits_for


def _left_s(until: float) -> float:
    return max(until - time.monotonic(), _GREETING_S_MIN)


def within_s(until: float | None) -> float | None:
    """For each of the calls that have to end by then, together: how long it may take."""
    return None if until is None else max(0.0, until + GRACE_S - time.monotonic())


class Connection:
    """Open until `close`. `name` is that of the client's certificate or user, if it has one."""

    def __init__(
        self, session: zenoh.Session, endpoint: str, site: str, name: str | None, patience_s: float,
        on_loss: OnLoss = "raise", until: float | None = None, compress: str = "",
    ) -> None:  # fmt: skip
        """Greet the site; SiteUnreachableError if it does not answer until then, in monotonic seconds.

        `compress`: compress what is sent, and ask for compressed replies.
        """
        until = time.monotonic() + patience_s if until is None else until
        self.endpoint, self.site = endpoint, site
        self.numbers, self.silence = CallNumbers(), Silence(site, endpoint, patience_s, on_loss)
        self.names, self.clock, self.page = Names(), SiteClock(), PageSize()
        self.part = PageSize(FIRST_PART_BYTES)  # of what is sent
        self._session, self._key = session, asking(principal_key(call_key(site), name), compress)
        self._compress = bool(compress)
        self._version = 0  # not agreed yet
        self.names.dictionaries = self.dictionaries = RemoteDictionaries(self)
        self._client = os.urandom(16)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._followers = 0
        self._closed = threading.Event()
        self._pending: weakref.WeakSet[PendingReply] = weakref.WeakSet()
        self._breaks = 0  # of links
        self.sender = Sender()  # of calls that tasks of an event loop make
        self._links: Any = session.info.declare_transport_events_listener(_directly(self._see))
        self._queue: bytes | None = None
        names = [None] if name is None else [name, None]  # older sites look for the second
        digest = client_digest(self._client)
        self._tokens = [session.liveliness().declare_token(client_key(site, digest, each)) for each in names]
        hello = Hello(HELLO, OLDEST_VERSION, VERSION)
        self._version = self.ask(hello, Welcome, patience_s=_left_s(until))[0].version
        if self._version < VERSION:
            log.warning("site %s speaks version %d of the protocol, this program version %d; it refuses newer calls",
                        site, self._version, VERSION)  # fmt: skip
        here, _ = self.ask(Identify(), Identity, patience_s=_left_s(until))
        self._queue, self.config, self.dedup = here.queue, here.config, here.config.dedup
        self.known_next = here.next  # the queue's next sequence has been at least this
        atexit.register(self._close_at_exit)

    @property
    def has_dictionaries(self) -> bool:
        """Whether the site gives and takes dictionaries."""
        return self._version >= COMPRESSION_VERSION

    @property
    def has_parts(self) -> bool:
        """Whether the site takes and sends payloads in parts."""
        return self._version >= PARTS_VERSION

    def note_next(self, sequence: int) -> None:
        """The queue's next sequence has been at least this."""
        with self._lock:
            self.known_next = max(self.known_next, sequence)

    def new_follower(self) -> int:
        with self._lock:
            self._followers += 1
            return self._followers

    def _head(self, call: Message, number: int) -> bytes:
        if isinstance(call, Hello):
            return encode(call)
        return encode(Envelope(self._version, self._client, self._queue, number, self.numbers.oldest(), call))

    # --- calls ------------------------------------------------------------------------------------

    def start(
        self, call: Message, payload: Any = b"", *, number: int = 0, wait_s: float = 0.0, limit_s: float | None = None
    ) -> PendingReply:
        """Send a call whose reply is taken later. `limit_s` is how long to wait for it at most."""
        return self._send(PendingReply, call, payload, number, wait_s, limit_s)

    async def start_by(
        self, wait: Wait, call: Message, payload: Any = b"", *, number: int = 0, wait_s: float = 0.0,
        limit_s: float | None = None, slow: bool = False,
    ) -> PendingReply | None:  # fmt: skip
        """As `start`, waiting as `wait` does while the link is full; None if it was full for `limit_s`.

        A `slow` reply may be waited for repeatedly.
        """
        self.check_open()  # a forked child has no sender
        kind = SlowReply if slow or wait.is_async else PendingReply

        def send() -> PendingReply:
            return self._send(kind, call, payload, number, wait_s, limit_s)

        if wait.is_async or len(payload) > LARGE_BYTES or (limit_s is not None and self.sender.is_busy):
            return await wait.sent(self.sender.submit(send), None if limit_s is None else max(limit_s, _LIMIT_S_MIN))
        return send()

    def start_slow(self, call: Get, number: int, wait_s: float) -> SlowReply:
        """Send a call whose reply may be waited for again and again."""
        return self._send(SlowReply, call, b"", number, wait_s, None)

    def _send(
        self, kind: type[Pending], call: Message, payload: Any, number: int, wait_s: float, limit_s: float | None
    ) -> Pending:
        self.check_open()
        reply_s = (
            _PRODUCTS_S if isinstance(call, ReadProducts | Get) else _LEFT_S if isinstance(call, Leave) else _REPLY_S
        )
        timeout_s = wait_s + reply_s + len(payload) / _SLOWEST_LINK
        timeout_s = timeout_s if limit_s is None else min(timeout_s, max(limit_s, _LIMIT_S_MIN))
        breaks = self._breaks
        try:
            head, encoding = self._head(call, number), None
            if self._compress and len(payload) and self._version >= COMPRESSION_VERSION:
                small = shrunk(bytes(payload))
                payload, encoding = (payload, None) if small is None else (small, ENCODING)
            pending = kind(self._session, self._key, head, payload, timeout_s, encoding)
        except zenoh.ZError as error:
            self.check_open()
            raise FabricError(f"the call to site {self.site} could not be sent: {error}", "connect again") from None
        pending.due_s = time.monotonic() + wait_s
        with self._lock:
            self._pending.add(pending)
        if self._breaks != breaks:  # the link broke meanwhile, and `_abandon` may not have seen this call
            pending.cancel()
        return pending

    def read(
        self, came: RawReply | None, kind: type[Kind], pending: PendingReply | None = None
    ) -> tuple[Kind, bytes] | None:
        """Decode a reply; None if none arrived. Raises the error of the site."""
        if came is None:
            self.check_open()
            self.silence.note_missing(None if pending is None else pending.due_s)
            return None
        self.silence.note_reply()
        reply = decode_reply(came[0])
        if isinstance(reply, Failure):
            raise error_of(reply)
        if isinstance(reply, NotAttached):
            raise Detached
        if isinstance(reply, PartsGone):
            raise PartsLost
        if isinstance(reply, StillBlocked):
            raise NotYet(reply.waits_for)
        if not isinstance(reply, kind):
            raise FabricMessageError(
                f"site {self.site} replied {type(reply).__name__} instead of {kind.__name__}",
                "run the same version at both ends",
            )
        return reply, came[1]

    def attempt(
        self, call: Message, kind: type[Kind], payload: Any = b"", *, number: int = 0, limit_s: float | None = None
    ) -> tuple[Kind, bytes] | None:
        """Call once; None if no reply arrived."""
        return finish(self.attempt_by(BLOCKING, call, kind, payload, number=number, limit_s=limit_s))

    async def attempt_by(
        self, wait: Wait, call: Message, kind: type[Kind], payload: Any = b"", *, number: int = 0,
        limit_s: float | None = None,
    ) -> tuple[Kind, bytes] | None:  # fmt: skip
        """As `attempt`, waiting as `wait` does."""
        pending = await self.start_by(wait, call, payload, number=number, limit_s=limit_s)
        if pending is None:
            return self.read(None, kind)
        try:
            return self.read(await wait.take(pending), kind, pending)
        except BaseException:  # also if the task was cancelled
            pending.cancel()
            raise

    def ask(
        self, call: Message, kind: type[Kind], payload: Any = b"", *, number: int = 0, patience_s: float | None = None,
        within_s: float | None = None, repeated: Callable[[Any], Call] | None = None,
    ) -> tuple[Kind, bytes]:  # fmt: skip
        """Repeat a call until its reply arrives; SiteUnreachableError when patience, or `within_s`, has run out.

        `repeated` makes the call that is sent from the second time on.
        """
        return finish(
            self.ask_by(
                BLOCKING, call, kind, payload, number=number, patience_s=patience_s, within_s=within_s,
                repeated=repeated,
            )
        )  # fmt: skip

    async def ask_by(
        self, wait: Wait, call: Message, kind: type[Kind], payload: Any = b"", *, number: int = 0,
        patience_s: float | None = None, within_s: float | None = None,
        repeated: Callable[[Any], Call] | None = None,
    ) -> tuple[Kind, bytes]:  # fmt: skip
        """As `ask`, waiting as `wait` does."""
        begun = time.monotonic()
        patience_s = self.silence.lasting_patience_s if patience_s is None else patience_s
        until = begun + min(patience_s, math.inf if within_s is None else within_s)
        turn = 0
        while True:
            left_s = until - time.monotonic()
            limit_s = left_s if within_s is not None else max(left_s, len(payload) / _SLOWEST_LINK)
            unlimited = within_s is None and isinstance(call, ReadProducts)  # its reply may be large
            limit = None if unlimited or limit_s == math.inf else limit_s
            came = await self.attempt_by(wait, call, kind, payload, number=number, limit_s=limit)
            if came is not None:
                return came
            if time.monotonic() >= until:
                raise self.silence.error(begun, len(payload))
            if repeated is not None and turn == 0:
                call = repeated(call)
            await self.pause_by(wait, turn, until)
            turn += 1

    def once(
        self, call: Call, kind: type[Kind], payload: Any = b"", *, within_s: float | None = None,
        repeated: Callable[[Any], Call] | None = None,
    ) -> tuple[Kind, bytes]:  # fmt: skip
        """As `ask`, for a call that must not be executed twice."""
        return finish(self.once_by(BLOCKING, call, kind, payload, within_s=within_s, repeated=repeated))

    async def once_by(
        self, wait: Wait, call: Call, kind: type[Kind], payload: Any = b"", *, within_s: float | None = None,
        repeated: Callable[[Any], Call] | None = None,
    ) -> tuple[Kind, bytes]:  # fmt: skip
        """As `once`, waiting as `wait` does."""
        number = self.numbers.begin()
        try:
            return await self.ask_by(wait, call, kind, payload, number=number, within_s=within_s, repeated=repeated)
        finally:
            self.numbers.end(number)

    @property
    def part_bytes(self) -> int:
        """How large a reply with products may be that comes in one piece; 0: the site knows no parts."""
        return min(2 * self.page.bytes, PAGE_BYTES_MAX) if self.has_parts else 0

    async def whole_by(self, wait: Wait, fetch: Fetch, within_s: float | None = None) -> tuple[Products, bytes]:
        """A reply with products, and all of its records: the rest of a large one is fetched in parts.

        PartsLost if the site no longer has them: read again. SiteUnreachableError: go on with the same Fetch later.
        """
        until = None if within_s is None else time.monotonic() + within_s
        while fetch.size < fetch.reply.total_bytes:
            begun = time.monotonic()
            left_s = None if until is None else max(0.0, until - begun)
            call = ReadPart(fetch.reply.download, fetch.size, self.page.bytes)
            _, part = await self.ask_by(wait, call, Part, within_s=left_s)
            if not part:
                raise PartsLost
            self.page.note(len(part), time.monotonic() - begun)
            fetch.parts.append(part)
            fetch.size += len(part)
        return fetch.reply, fetch.parts[0] if len(fetch.parts) == 1 else b"".join(fetch.parts)

    def send(self, call: Call) -> None:
        """Make a call and ignore its reply. Takes no lock: the garbage collector may call this."""
        if self._closed.is_set() or self._pid != os.getpid():
            return
        head = encode(Envelope(self._version, self._client, self._queue, 0, 0, call))
        with suppress(zenoh.ZError):  # the session is closed
            self._session.get(
                self._key, _directly(_ignore), attachment=head, timeout=_REPLY_S, congestion_control=_BLOCK
            )

    # --- broken links -----------------------------------------------------------------------------

    def _see(self, event: zenoh.TransportEvent) -> None:
        """A link was made or broke. Runs on Zenoh's thread, which must not wait."""
        if event.kind == zenoh.SampleKind.DELETE and not self._closed.is_set():
            self._breaks += 1
            OnceThread(self._abandon, "headrace-broken").start()

    def _abandon(self) -> None:
        """Cancel all calls: those sent over a broken link may never get a reply, and Zenoh does not always notice."""
        with self._lock:
            pending = list(self._pending)
        for call in pending:
            call.cancel()

    def pause(self, turn: int, until: float | None = None) -> None:
        """Wait between two attempts, longer each time, and not beyond the end of the call."""
        finish(self.pause_by(BLOCKING, turn, until))

    async def pause_for(self, wait: Wait, seconds: float) -> None:
        """Sleep, waiting as `wait` does; `close` ends it."""
        await wait.pause(self._closed, seconds)

    async def pause_by(self, wait: Wait, turn: int, until: float | None = None) -> None:
        """As `pause`, waiting as `wait` does."""
        pause_s = _PAUSES_S[min(turn, len(_PAUSES_S) - 1)]
        await wait.pause(self._closed, pause_s if until is None else max(0.0, min(pause_s, until - time.monotonic())))

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

    def _close_at_exit(self) -> None:
        """The program ends with this connection open: its consumers count as dead, as those of any process do."""
        self.close(died=True)

    def close(self, *, politely: bool = True, died: bool = False, failed: bool = False) -> None:
        """Disconnect. Products that consumers hold go back, at once if the site is asked to (`politely`).

        If the client `failed`, that counts as a delivery; if it `died`, the stations' terms decide.
        """
        if self._closed.is_set() or self._pid != os.getpid():
            return
        try:
            with suppress(HeadraceError):  # an unreachable site notices by itself
                if politely and not self.silence.is_silent:
                    self.ask(Leave(died, failed), Done, patience_s=_LEAVE_S)
        finally:  # also after a second Ctrl-C: an open session would abort the process at its end
            self._end()

    def _end(self) -> None:
        self._closed.set()
        self.sender.close()
        atexit.unregister(self._close_at_exit)
        undeclare = [token.undeclare for token in self._tokens]
        for end in (self._links.undeclare, *undeclare, self._session.close):
            try:
                end()
            except zenoh.ZError as error:
                log.warning("closing the connection to %s: %s", self.endpoint, error)


def _directly(callback: Callable[[Any], None]) -> "zenoh.handlers.Callback[Any]":
    """A callback on Zenoh's own thread, rather than on one that the interpreter waits for at its end."""
    return zenoh.handlers.Callback(guarded(callback), indirect=False)


def _ignore(reply: zenoh.Reply) -> None:
    pass
