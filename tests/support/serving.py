"""A site in this process for remote users: it can be stopped and started again, and the line to it can be cut."""

import itertools
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import zenoh

import headrace
from headrace import Queue
from headrace.link.access import Rule
from headrace.link.session import SessionTerms, open_session
from headrace.remote.client.queue import RemoteQueue
from headrace.site.site import Site
from support.fleet import free_port

_numbers = itertools.count(1)


class Served:
    """A queue with a site. `session`: one that others use as well, for sites that never stop."""

    def __init__(self, folder: Path, session: tuple[zenoh.Session, str] | None = None, **terms: Any) -> None:
        self.name = terms.pop("origin", f"there{next(_numbers)}")
        self._rules: tuple[Rule, ...] = terms.pop("rules", ())
        settings = {"size": "4MiB", "durability": "memory", "origin": self.name, **terms}
        self.queue = Queue.create(folder / self.name, **settings)
        self._session, self.endpoint = session or (None, f"tcp/127.0.0.1:{free_port()}")
        self._is_alone = session is None
        self._is_spoilt = False
        self.site: Site | None = None
        self._users: list[Queue] = []
        self.start()

    def start(self) -> None:
        if self._is_alone:
            self._session = open_session(SessionTerms("router", listen=(self.endpoint,)))
        assert self._session is not None
        self.site = Site(self._session, self.queue, [], rules=self._rules)

    def stop(self) -> None:
        if self.site is not None:
            self.site.close()
            self.site = None
        if self._is_alone and self._session is not None:
            self._session.close()
            self._session = None

    def connect(self, endpoint: str | None = None, **options: Any) -> RemoteQueue:
        """A remote user, who is closed in the end."""
        options.setdefault("patience", 10)
        user = headrace.connect(f"{endpoint or self.endpoint}?site={self.name}", **options)
        assert isinstance(user, RemoteQueue)
        self._users.append(user)
        return user

    def close_users(self) -> None:
        for user in self._users:
            user.close()

    def spoil(self, payload: bytes) -> None:
        """Alter one byte of a stored payload, in the file."""
        self._is_spoilt = True
        for segment in (self.queue.path / "segments").iterdir():
            place = segment.read_bytes().find(payload)
            if place >= 0:
                with segment.open("r+b") as file:
                    file.seek(place)
                    file.write(bytes([payload[0] ^ 0xFF]))
                return
        raise AssertionError(f"{payload!r} is in no segment")

    def close(self) -> None:
        self.close_users()
        self.stop()
        assert self._is_spoilt or self.queue.check() == []
        self.queue.close()


class Wire:
    """A TCP line to an endpoint, which can be cut and mended."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp/").rpartition(":")
        self._target = (host, int(port))
        self._links: list[socket.socket] = []
        self._is_cut = False
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
                with suppress(OSError):
                    other = socket.create_connection(self._target)
                    self._links += [link, other]
                    for ends in ((link, other), (other, link)):
                        threading.Thread(target=_carry, args=ends, daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        links, self._links = self._links, []
        for link in links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._server.close()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for link in (source, target):
        with suppress(OSError):
            link.shutdown(socket.SHUT_RDWR)
