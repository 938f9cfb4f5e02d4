"""Helpers for tests of remote clients: a site in this process, and faults.

`Served` can be stopped and started again, `Wire` is a connection to it that can be cut, and `Stranger` sends it arbitrary bytes.
"""

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zenoh

import headrace
from headrace import Batch, Queue
from headrace.link.keys import call_key
from headrace.link.quotas import Quotas, QuotaTable
from headrace.link.rights import Rule
from headrace.link.session import SessionTerms, open_session
from headrace.queue import AnyQueue, AnyStation
from headrace.remote.client.queue import RemoteQueue
from headrace.remote.protocol import calls, replies
from headrace.remote.protocol.envelope import Envelope, encode
from headrace.remote.protocol.hello import VERSION
from headrace.site.site import Site
from support.damage import flip_bit
from support.fleet import free_port
from support.waiting import until

Router = tuple[zenoh.Session, str]  # a session that listens, and its endpoint

_numbers = itertools.count(1)


def put(queue: AnyQueue, *idents: str, feed: str = "a", **facts: Any) -> None:
    """Put a product for each ident, which is its payload as well."""
    for ident in idents:
        queue.put(ident.encode(), feed=feed, ident=ident, **facts)


def when(condition: Callable[[], bool], *acts: Callable[[], object]) -> None:
    """Act in another thread as soon as the condition holds, while the caller waits for the consequence."""

    def run() -> None:
        until(condition, "the moment to act")
        for act in acts:
            act()

    threading.Thread(target=run, daemon=True).start()


def idents(batch: Batch) -> list[str]:
    return [product.ident for product in batch]


def work(station: AnyStation, n: int = 1000) -> list[str]:
    """Attach a consumer, acknowledge the products that it gets now, and return their idents."""
    with station.attach() as consumer:
        batch = consumer.get_nowait(n)
        consumer.ack(batch)
        return idents(batch)


class Served:
    """A queue with a site. Sites that are never stopped may share a `session`."""

    def __init__(self, folder: Path, session: Router | None = None, **terms: Any) -> None:
        self.name = terms.pop("origin", f"there{next(_numbers)}")
        self._rules: tuple[Rule, ...] = terms.pop("rules", ())
        self._quotas = QuotaTable(terms.pop("quotas", Quotas()))
        settings = {"size": "4MiB", "durability": "memory", "origin": self.name, **terms}
        self.queue = Queue.create(folder / self.name, **settings)
        self._session, self.endpoint = session or (None, f"tcp/127.0.0.1:{free_port()}")
        self._is_alone = session is None
        self._is_spoilt = False
        self.site: Site | None = None
        self._users: list[RemoteQueue] = []
        self.start()

    def start(self) -> None:
        if self._is_alone:
            self._session = open_session(SessionTerms("router", listen=(self.endpoint,)))
        assert self._session is not None
        self.site = Site(self._session, self.queue, [], rules=self._rules, quotas=self._quotas)

    def stop(self) -> None:
        if self.site is not None:
            self.site.close()
            self.site = None
        if self._is_alone and self._session is not None:
            self._session.close()
            self._session = None

    @property
    def calls(self) -> int:
        """How many calls the site has accepted."""
        assert self.site is not None
        return self.site.statistics().remote.taken

    @property
    def misses_a_client(self) -> bool:
        """Whether the site has noticed that a client has disconnected."""
        assert self.site is not None
        return any(client.gone_since is not None for client in self.site._remote._clients._clients.values())

    def connect(self, endpoint: str | None = None, **options: Any) -> RemoteQueue:
        """Connect to the site; the remote queue is closed with it."""
        options.setdefault("patience", 10)
        user = headrace.connect(f"{endpoint or self.endpoint}?site={self.name}", **options)
        assert isinstance(user, RemoteQueue)
        self._users.append(user)
        return user

    def close_users(self) -> None:
        for user in self._users:
            user.close()

    def spoil(self, payload: bytes) -> None:
        """Damage a stored payload; the queue need not check clean in the end."""
        self._is_spoilt = True
        flip_bit(self.queue.path, payload)

    def close(self) -> None:
        self.close_users()
        self.stop()
        assert self._is_spoilt or self.queue.check() == []
        self.queue.close()


class Wire:
    """A TCP proxy in front of an endpoint; the connection can be cut, frozen and slow, and restored."""

    rate: float | None = None  # bytes per second of each link and direction; None: as fast as it can

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp/").rpartition(":")
        self._target = (host, int(port))
        self._links: list[socket.socket] = []
        self._is_cut = False
        self._is_thawed = threading.Event()
        self._is_thawed.set()
        self._may_reply = threading.Event()
        self._may_reply.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp/127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self._server.accept()
                if self._is_cut:
                    link.close()
                    continue
                try:
                    other = socket.create_connection(self._target)
                except OSError:
                    link.close()
                    continue
                self._links += [link, other]
                for ends in ((link, other, self._is_thawed), (other, link, self._may_reply)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        links, self._links = self._links, []
        for link in links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def restore(self) -> None:
        self._is_cut = False

    def freeze(self) -> None:
        """Carry nothing, without closing anything."""
        self._is_thawed.clear()

    def thaw(self) -> None:
        self._is_thawed.set()

    def mute(self) -> None:
        """Carry no replies from now on, and lose those at the next cut."""
        self._may_reply.clear()

    def unmute(self) -> None:
        self._may_reply.set()

    def close(self) -> None:
        self.cut()
        self.thaw()
        self.unmute()
        self._server.close()

    def _carry(self, source: socket.socket, target: socket.socket, may_go: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65536 if self.rate is None else 1024):
                self._is_thawed.wait()
                may_go.wait()
                target.sendall(data)
                if self.rate is not None:
                    time.sleep(len(data) / self.rate)
        for link in (source, target):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)


class Stranger:
    """A client that sends arbitrary bytes as calls to a site; under a name, if it has one."""

    def __init__(self, session: zenoh.Session, served: Served, name: str = "") -> None:
        self._session, self._key, self._name = session, call_key(served.name), name
        self.client = os.urandom(16)
        self._numbers = 0

    def send(self, head: bytes | None, payload: bytes = b"", name: str = "") -> replies.Reply | str:
        """The reply, or the text of the refusal."""
        key = f"{self._key}/{name or self._name}" if name or self._name else self._key
        for reply in self._session.get(key, payload=payload, attachment=head, timeout=240):
            if reply.ok is not None:
                assert reply.ok.attachment is not None
                return replies.decode_reply(reply.ok.attachment.to_bytes())
            assert reply.err is not None
            return reply.err.payload.to_bytes().decode()
        return "silence"

    def call(
        self, call: calls.Call, payload: bytes = b"", number: int | None = None, oldest: int = 0
    ) -> replies.Reply | str:
        """Make a call; a call that requires a number gets the next one."""
        if number is None:
            number = self._numbers + 1 if isinstance(call, calls.Numbered) else 0
        self._numbers = max(self._numbers, number)
        return self.send(encode(Envelope(VERSION, self.client, None, number, oldest, call)), payload)
