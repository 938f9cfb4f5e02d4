"""Clients: what a site knows about each remote client, and which of them are connected.

A client is known by the id in its calls and by its token, which exists while it is connected, and which nobody else can
declare if it has a name. When the token goes, the
consumers and suppliers of the client are kept for the time that each was promised; if the token returns in time,
nothing has changed. A client without a token is kept as long as its calls arrive. Replies are remembered until the
client states that it will not repeat the call.
"""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import zenoh

from headrace.channel.supplier import Supplier
from headrace.errors import FabricError, FabricMessageError
from headrace.guard import GuardedThread, counted, guarded
from headrace.link.declarations import Declarations
from headrace.link.fair import Busy
from headrace.link.keys import client_in, client_key, name_at_socket
from headrace.link.quotas import QuotaTable
from headrace.link.rights import Rule
from headrace.payload.compression.link import LinkCounts
from headrace.remote.protocol.calls import Get
from headrace.remote.protocol.envelope import client_digest
from headrace.remote.server.access import ClientAccess
from headrace.remote.server.consumer import ServedConsumer
from headrace.remote.server.gets import WaitingGets
from headrace.remote.server.outbox import Outbox
from headrace.remote.server.pending_call import PendingCall
from headrace.remote.server.principal import Principal, Principals
from headrace.remote.server.reads import ClientRead
from headrace.station import Consumer
from headrace.station.served import place_of

CLIENTS_MAX = 4096
TOKENS_MAX = 4 * CLIENTS_MAX
CONSUMERS_MAX = 4096  # at a site; each has a descriptor
SUPPLIERS_MAX = 4096  # at a site; each has a descriptor
CALLS_MAX = 1024  # of one client: not replied to yet, or not forgotten yet
READS_MAX = 64  # of one client, whose count for `every` is remembered
_FORGET_S = 900.0
_SWEEP_S = 0.2
_SETTLE_S = 1.0  # a client whose token is away for less is still a member

ReadKey = tuple[int, str, int, bool]  # follower, selection, bytes_limit, expired
Held = TypeVar("Held", ServedConsumer, "ServedSupplier")


@dataclass(frozen=True, slots=True)
class ServedSupplier:
    """A slot of a channel that the site holds for a client, and for how long if the client is away."""

    supplier: Supplier
    keep_s: float


class Client:
    """One remote client. `gone_since` is None while its token exists."""

    def __init__(
        self, access: ClientAccess, gone_since: float | None, name: str = "", link: LinkCounts | None = None,
        principal: Principal | None = None,
    ) -> None:  # fmt: skip
        self.access, self.gone_since, self.name = access, gone_since, name
        self.principal = principal or Principal(None, None)  # without limits
        self.turn = self if not self.principal.has_limits else self.principal  # those who are served in turn
        self.link = link or LinkCounts()  # of all clients
        self.has_left = False  # it said so
        self.has_named_token = False  # it has shown that its tokens have its name: no other token counts
        self.is_forgotten = False
        self.consumers: dict[int, ServedConsumer] = {}  # by the number of the attachment
        self.suppliers: dict[int, ServedSupplier] = {}  # by a number of the same kind
        self.waiting = 0  # its calls in WaitingReads
        self.outbox = Outbox()
        self._reads: OrderedDict[ReadKey, ClientRead] = OrderedDict()
        self._calls: dict[int, PendingCall] = {}
        self._oldest = 0
        self._lock = threading.Lock()

    def accept(self, pending: PendingCall, oldest: int) -> PendingCall | None:
        """Accept a call; if it is a repetition, return the call that was accepted before. Busy at the limit."""
        if not pending.number:
            return None
        with self._lock:
            self._forget_below(oldest)
            if isinstance(pending.call, Get):
                consumer = self.consumers.get(pending.call.attachment)
                return None if consumer is None else consumer.accept(pending)
            known = self._calls.get(pending.number)
            if known is not None:
                return known
            if pending.number < self._oldest:
                raise FabricMessageError("a call that had ended was repeated", "number calls upwards")
            if len(self._calls) >= CALLS_MAX:
                raise Busy
            self._calls[pending.number] = pending
            return None

    def _forget_below(self, oldest: int) -> None:
        """Forget calls that will not be repeated. Those that are not finished stay, and count towards CALLS_MAX."""
        if oldest > self._oldest or len(self._calls) >= CALLS_MAX:
            self._oldest = max(oldest, self._oldest)
            ended = [number for number, call in self._calls.items() if number < self._oldest and call.is_finished]
            for number in ended:
                del self._calls[number]

    def is_idle_since(self, moment: float) -> bool:
        """Whether the client has been away since then, and holds nothing."""
        is_away = self.gone_since is not None and self.gone_since <= moment
        return is_away and not self.consumers and not self.suppliers

    def find_read(self, key: ReadKey) -> ClientRead | None:
        with self._lock:
            found = self._reads.get(key)
            if found is not None:
                self._reads.move_to_end(key)
            return found

    def keep_read(self, key: ReadKey, read: ClientRead) -> None:
        """Keep a read for the next call; the one that was not used for longest goes at the limit."""
        with self._lock:
            self._reads[key] = read
            if len(self._reads) > READS_MAX:
                self._reads.popitem(last=False)


class Clients:
    """All clients of a site. Tokens arrive on Zenoh's threads; a thread of its own ends overdue consumers."""

    def __init__(
        self, session: zenoh.Session, declarations: Declarations, site: str, rules: Sequence[Rule], gets: WaitingGets,
        joined: Callable[[str, str | None], None] = lambda digest, name: None, principals: Principals | None = None,
    ) -> None:  # fmt: skip
        """`joined` is called for each new client; `principals` have their quotas."""
        self._principals = principals or Principals((), QuotaTable(), lambda name, error: None)
        self._rules, self._gets, self._joined, self.link = rules, gets, joined, LinkCounts()
        self._clients: dict[tuple[bytes, str | None], Client] = {}
        self._by_digest: dict[str, list[Client]] = {}
        self._present: dict[str | None, set[str]] = {}  # digests of tokens, by the name in them
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._tokens = declarations.add(lambda: self._listen(session, client_key(site, "**")))
        at_socket = client_key(site, "*", name_at_socket(site, "*"))  # which the first does not match
        self._tokens_at_socket = declarations.add(
            lambda: session.liveliness().declare_subscriber(at_socket, guarded(self._see), history=True)
        )
        self._sweeper = GuardedThread(self._sweep, "headrace-clients", until=self._stopped.is_set)
        self._sweeper.start()

    # --- clients ----------------------------------------------------------------------------------

    def of(self, client: bytes, name: str | None) -> Client:
        """The client that calls; a new one is added. Busy if there is no room."""
        with self._lock:
            found = self._clients.get((client, name))
            if found is None:
                found = self._add(client, name)
            elif found.gone_since is not None:
                found.gone_since = time.monotonic()
            return found

    def _add(self, client: bytes, name: str | None) -> Client:
        if len(self._clients) >= CLIENTS_MAX and not self._forget(0.0):
            raise Busy
        digest = client_digest(client)
        principal = self._principals.of(name)
        if principal.quotas is not None and len(principal.clients) >= principal.quotas.sessions:
            self._forget(0.0, principal)
            principal.check("sessions", len(principal.clients))
        added = Client(ClientAccess(self._rules, name), time.monotonic(), name or "", self.link, principal)
        principal.clients.add(added)
        self._look(added, digest)
        self._clients[client, name] = added
        self._by_digest.setdefault(digest, []).append(added)
        self._joined(digest, name)
        return added

    def _forget(self, after_s: float, of: Principal | None = None) -> bool:
        """Forget clients that have been away for so long and hold nothing; False if there are none."""
        before = time.monotonic() - after_s
        gone = [
            key for key, client in self._clients.items()
            if (of is None or client.principal is of) and client.is_idle_since(before)
        ]  # fmt: skip
        for key in gone:
            client, digest = self._clients.pop(key), client_digest(key[0])
            client.is_forgotten = True
            client.principal.clients.discard(client)
            self._by_digest[digest].remove(client)
            if not self._by_digest[digest]:
                del self._by_digest[digest]
        return bool(gone)

    def counts(self) -> tuple[int, int]:
        """The numbers of clients that are present, and of the consumers of all clients."""
        present = len(self.present())
        with self._lock:
            return present, self._consumers()

    # --- members ----------------------------------------------------------------------------------

    def present(self) -> list[tuple[str, str]]:
        """The digest and the name of each client that is connected, or was a moment ago: its token may be renewed."""
        recently = time.monotonic() - _SETTLE_S
        with self._lock:
            return [
                (digest, client.name)
                for digest, clients in self._by_digest.items()
                for client in clients[:1]
                if (client.gone_since is None or client.gone_since > recently) and not client.has_left
            ]

    def has_left(self, digest: str) -> bool:
        """Whether a client said that it disconnects."""
        with self._lock:
            return any(client.has_left for client in self._by_digest.get(digest, ()))

    def users(self) -> dict[tuple[str, str, int], str]:
        """The names of the clients for which this site holds a place: by role, channel or station, and place."""
        with self._lock:
            named = [client for client in self._clients.values() if client.name]
            suppliers = [(client.name, each.supplier) for client in named for each in client.suppliers.values()]
            consumers = [(client.name, each.consumer) for client in named for each in client.consumers.values()]
        users = {("supplier", each.channel_name, each.place): name for name, each in suppliers}
        return users | {("consumer", each.station_name, place_of(each)): name for name, each in consumers}

    # --- consumers --------------------------------------------------------------------------------

    def _consumers(self) -> int:
        return sum(len(client.consumers) for client in self._clients.values())

    def check_room(self, client: Client) -> None:
        """FabricError if the site has no room for another consumer, QuotaError if the principal has too many."""
        with self._lock:
            client.principal.check("consumers", client.principal.consumers())
            if self._consumers() >= CONSUMERS_MAX:
                raise FabricError(
                    f"the site has {CONSUMERS_MAX} remote consumers already", "detach some, or get more at a time"
                )

    def attach(self, client: Client, consumer: Consumer, keep_s: float, check: Callable[[], None]) -> int:
        """Serve a consumer for a client; a number that no other attachment has had or will have.

        `check` raises AccessDeniedError if the client may not consume from the station, whose terms may change.
        FabricError, and the consumer is detached, if the client was forgotten meanwhile: nothing would ever end it.
        """
        number = secrets.randbits(62) | 1
        with self._lock:
            if not client.is_forgotten:
                client.consumers[number] = ServedConsumer(consumer, keep_s, self._gets, check, client.turn)
                return number
        consumer.detach()
        raise _forgotten()

    def detach(self, client: Client, number: int) -> ServedConsumer | None:
        """Take a consumer from its client; the caller ends it."""
        with self._lock:
            return client.consumers.pop(number, None)

    def detach_all(self, client: Client) -> list[ServedConsumer]:
        with self._lock:
            left, client.consumers = list(client.consumers.values()), {}
            return left

    # --- suppliers --------------------------------------------------------------------------------

    def supply(self, client: Client, supplier: Supplier, keep_s: float) -> int:
        """Hold a supplier for a client; FabricError, and it is closed, at the limit, and as for `attach`."""
        number = secrets.randbits(62) | 1
        with self._lock:
            count = sum(len(each.suppliers) for each in self._clients.values())
            if count < SUPPLIERS_MAX and not client.is_forgotten:
                client.suppliers[number] = ServedSupplier(supplier, keep_s)
                return number
        supplier.close()
        if count >= SUPPLIERS_MAX:
            raise FabricError(f"the site has {SUPPLIERS_MAX} remote suppliers already", "close some")
        raise _forgotten()

    def close_suppliers(self, client: Client, number: int | None = None, *, died: bool = False) -> None:
        """Free one slot of a client, or all of them; if it `died`, as those of a dead process."""
        with self._lock:
            numbers = list(client.suppliers) if number is None else [number]
            left = [client.suppliers.pop(each, None) for each in numbers]
        for served in left:
            if served is not None:
                (served.supplier.abandon if died else served.supplier.close)()

    # --- presence ---------------------------------------------------------------------------------

    def _listen(self, session: zenoh.Session, key: str) -> Any:
        """Reset presence and subscribe: a client counts as connected once its token is seen again."""
        with self._lock:
            self._present.clear()
            for client in self._clients.values():
                client.gone_since = client.gone_since or time.monotonic()
        return session.liveliness().declare_subscriber(key, guarded(self._see), history=True)

    def _see(self, sample: zenoh.Sample) -> None:
        found = client_in(str(sample.key_expr))
        if found is None:
            return
        digest, name = found
        with self._lock:
            tokens = self._present.setdefault(name, set())
            if sample.kind != zenoh.SampleKind.PUT:
                tokens.discard(digest)
            elif self._has_room(tokens):
                tokens.add(digest)
            if not tokens:
                del self._present[name]
            for client in self._by_digest.get(digest, ()):
                self._look(client, digest)

    def _has_room(self, tokens: set[str]) -> bool:
        """With rules, the tokens of one name leave room for those of all others; without, a name proves nothing."""
        if self._rules:
            return len(tokens) < TOKENS_MAX
        return sum(map(len, self._present.values())) < TOKENS_MAX

    def _look(self, client: Client, digest: str) -> None:
        """Whether a client is connected, by its tokens.

        Only its own principal can declare a token with its name. Once there was one, a token without a name does not
        count any more: whoever knows the digest can declare that. Before, it may be a client of version 13.
        """
        has_named = bool(client.name) and digest in self._present.get(client.name, ())
        client.has_named_token = client.has_named_token or has_named
        if has_named or (not client.has_named_token and digest in self._present.get(None, ())):
            client.gone_since = None
        else:
            client.gone_since = client.gone_since or time.monotonic()

    def _sweep(self) -> None:
        while not self._stopped.wait(_SWEEP_S):
            with self._lock:
                overdue = [
                    consumer for client in self._clients.values() for consumer in _overdue(client, client.consumers)
                ]
                unused = [served for client in self._clients.values() for served in _overdue(client, client.suppliers)]
                self._forget(_FORGET_S)
            for consumer in overdue:
                with counted("headrace-clients"):
                    consumer.end(died=True)
            for served in unused:
                with counted("headrace-clients"):
                    served.supplier.abandon()

    def close(self) -> None:
        """End all consumers. Their clients did not detach, and may be at work: it counts as the death of a consumer."""
        self._stopped.set()
        self._tokens.undeclare()
        self._tokens_at_socket.undeclare()
        self._sweeper.join()
        with self._lock:
            left = [consumer for client in self._clients.values() for consumer in client.consumers.values()]
            clients = list(self._clients.values())
            for client in clients:
                client.consumers.clear()
        end_all(left, died=True)
        for client in clients:
            self.close_suppliers(client, died=True)


def _forgotten() -> FabricError:
    return FabricError("the site has forgotten this client, to make room for others", "connect again")


def end_all(consumers: Sequence[ServedConsumer], died: bool = False, failed: bool = False) -> None:
    """Detach consumers; after return their leases are back."""
    for consumer in consumers:
        consumer.end(died, failed)


def _overdue(client: Client, held: dict[int, Held]) -> list[Held]:
    """Take from a client that is away what it held for longer than was promised."""
    if client.gone_since is None:
        return []
    away_s = time.monotonic() - client.gone_since
    return [held.pop(number) for number in [number for number, each in held.items() if away_s > each.keep_s]]
