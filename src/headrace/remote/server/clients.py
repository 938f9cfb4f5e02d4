"""Client: what a site knows of one remote user, and of all of them.

A client is known by the id in its calls, and by its token, which is there while it is connected. When the token goes,
its attachments are kept for the time that each was promised; when it comes back in time, nothing has happened. Calls
alone keep a client, too, for as long as they come. What was answered is remembered until the client says that it will
not ask again.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import zenoh

from headrace.errors import FabricError, FabricMessageError
from headrace.link.access import Rule
from headrace.link.declarations import Declarations
from headrace.link.keys import client_key
from headrace.log.read import Read
from headrace.product.batch import Batch
from headrace.remote.client.connection import client_digest
from headrace.remote.protocol.calls import Get
from headrace.remote.server.access import ClientAccess
from headrace.remote.server.consumer import ServedConsumer
from headrace.remote.server.pending_call import Busy, PendingCall
from headrace.station import Consumer

CLIENTS_MAX = 4096
TOKENS_MAX = 4 * CLIENTS_MAX
ATTACHMENTS_MAX = 1000  # at a site; each has a thread
ERRANDS_MAX = 1024  # of one client, not yet answered or not yet forgotten
FOLLOWERS_MAX = 64  # of one client, whose place in counting is remembered
_FORGET_S = 900.0
_SWEEP_S = 0.2


class Reading:
    """A read on behalf of a client that goes on; one thread at a time."""

    __slots__ = ("_lock", "_read")

    def __init__(self, read: Read) -> None:
        self._read, self._lock = read, threading.Lock()

    def read(self, position: int, stop: int | None) -> Batch:
        with self._lock:
            return self._read(position, stop)


class Client:
    """One remote user. `gone_since` is None while its token is there."""

    def __init__(self, rights: ClientAccess, gone_since: float | None) -> None:
        self.rights, self.gone_since = rights, gone_since
        self.attachments: dict[int, ServedConsumer] = {}
        self.waiting = 0  # errands in the lobby
        self._readings: OrderedDict[tuple[int, str, int, int], Reading] = OrderedDict()
        self._errands: dict[int, PendingCall] = {}
        self._oldest = 0
        self._lock = threading.Lock()

    def take(self, errand: PendingCall, oldest: int) -> PendingCall | None:
        """Take up an errand; if it has come before, the one that we have already."""
        if not errand.number:
            return None
        with self._lock:
            self._forget_below(oldest)
            if isinstance(errand.call, Get):
                attachment = self.attachments.get(errand.call.attachment)
                return None if attachment is None else attachment.take(errand)
            known = self._errands.get(errand.number)
            if known is not None:
                return known
            if errand.number < self._oldest:
                raise FabricMessageError("a call that was over has come again", "number calls upwards")
            if len(self._errands) >= ERRANDS_MAX:
                raise Busy
            self._errands[errand.number] = errand
            return None

    def is_idle_since(self, moment: float) -> bool:
        """Away since then, and holding nothing."""
        return self.gone_since is not None and self.gone_since <= moment and not self.attachments

    def _forget_below(self, oldest: int) -> None:
        if oldest > self._oldest:
            self._oldest = oldest
            for number in [number for number in self._errands if number < oldest]:
                del self._errands[number]

    def reading(self, key: tuple[int, str, int, int]) -> Reading | None:
        with self._lock:
            found = self._readings.get(key)
            if found is not None:
                self._readings.move_to_end(key)
            return found

    def remember(self, key: tuple[int, str, int, int], reading: Reading) -> None:
        with self._lock:
            self._readings[key] = reading
            if len(self._readings) > FOLLOWERS_MAX:
                self._readings.popitem(last=False)


class Clients:
    """All of them. Tokens come on Zenoh's threads, and a thread of ours sees to those who stay away."""

    def __init__(self, session: zenoh.Session, declarations: Declarations, site: str, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._clients: dict[tuple[bytes, str | None], Client] = {}
        self._by_digest: dict[str, list[Client]] = {}
        self._present: set[str] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._sweeper = threading.Thread(target=self._sweep, name="headrace-clients")
        self._sweeper.start()
        self._tokens = declarations.add(lambda: self._listen(session, client_key(site, "*")))

    def _listen(self, session: zenoh.Session, key: str) -> Any:
        """Who was there before this is there only if he is seen again."""
        with self._lock:
            self._present.clear()
            for client in self._clients.values():
                client.gone_since = client.gone_since or time.monotonic()
        return session.liveliness().declare_subscriber(key, self._see, history=True)

    def of(self, client: bytes, name: str | None) -> Client:
        """Who calls; somebody new is taken up. Busy if there is no room."""
        with self._lock:
            found = self._clients.get((client, name))
            if found is None:
                found = self._take_up(client, name)
            elif found.gone_since is not None:
                found.gone_since = time.monotonic()
            return found

    def _take_up(self, client: bytes, name: str | None) -> Client:
        if len(self._clients) >= CLIENTS_MAX and not self._forget(0.0):
            raise Busy
        digest = client_digest(client)
        made = Client(ClientAccess(self._rules, name), None if digest in self._present else time.monotonic())
        self._clients[client, name] = made
        self._by_digest.setdefault(digest, []).append(made)
        return made

    def attach(self, client: Client, consumer: Consumer, keep_s: float) -> int:
        """A number for the attachment, which nobody has had or will have."""
        number = secrets.randbits(62) | 1
        with self._lock:
            client.attachments[number] = ServedConsumer(consumer, keep_s)
        return number

    def check_room(self) -> None:
        with self._lock:
            if sum(len(client.attachments) for client in self._clients.values()) >= ATTACHMENTS_MAX:
                raise FabricError(
                    f"the site has {ATTACHMENTS_MAX} remote consumers already", "detach some, or get more at a time"
                )

    def detach(self, client: Client, number: int) -> ServedConsumer | None:
        """Take an attachment away; the caller ends it."""
        with self._lock:
            return client.attachments.pop(number, None)

    def detach_all(self, client: Client) -> list[ServedConsumer]:
        with self._lock:
            left, client.attachments = list(client.attachments.values()), {}
            return left

    def counts(self) -> tuple[int, int]:
        """Clients and attachments."""
        with self._lock:
            return len(self._clients), sum(len(client.attachments) for client in self._clients.values())

    def _see(self, sample: zenoh.Sample) -> None:
        digest = str(sample.key_expr).rsplit("/", 1)[1]
        is_there = sample.kind == zenoh.SampleKind.PUT
        with self._lock:
            if is_there and len(self._present) < TOKENS_MAX:
                self._present.add(digest)
            elif not is_there:
                self._present.discard(digest)
            for client in self._by_digest.get(digest, ()):
                client.gone_since = None if is_there else time.monotonic()

    def _sweep(self) -> None:
        while not self._stopped.wait(_SWEEP_S):
            with self._lock:
                overdue = [attachment for client in self._clients.values() for attachment in _overdue(client)]
                self._forget(_FORGET_S)
            for attachment in overdue:
                attachment.end(died=True)

    def _forget(self, after_s: float) -> bool:
        """Forget who has been away for so long and holds nothing; False if there is nobody like that."""
        before = time.monotonic() - after_s
        gone = [key for key, client in self._clients.items() if client.is_idle_since(before)]
        for key in gone:
            client, digest = self._clients.pop(key), client_digest(key[0])
            self._by_digest[digest].remove(client)
            if not self._by_digest[digest]:
                del self._by_digest[digest]
        return bool(gone)

    def close(self) -> None:
        """Detach everybody; what they hold goes back."""
        self._stopped.set()
        self._tokens.undeclare()
        self._sweeper.join()
        with self._lock:
            left = [attachment for client in self._clients.values() for attachment in client.attachments.values()]
            for client in self._clients.values():
                client.attachments.clear()
        for attachment in left:
            attachment.end()
        for attachment in left:
            attachment.join()


def _overdue(client: Client) -> list[ServedConsumer]:
    """Attachments that a client who is away no longer has; they are taken from it."""
    if client.gone_since is None:
        return []
    away_s = time.monotonic() - client.gone_since
    numbers = [number for number, attachment in client.attachments.items() if away_s > attachment.keep_s]
    return [client.attachments.pop(number) for number in numbers]
