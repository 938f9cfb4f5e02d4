"""Answer: whether anything answers at an endpoint, asked with a plain socket before Zenoh connects.

    connect ──► the first message of Zenoh's handshake ──► any bytes, or the end of the connection: an answer

A site replies to that message, or refuses it, and keeps nothing of it. A port for TLS refuses it as invalid, which is
an answer as well; a port for WebSocket is asked to upgrade the connection. A host that is down and a process that is
suspended do not answer: Zenoh would wait for them, and cannot be interrupted. Waiting here can be.

Datagram endpoints (udp, quic) cannot be asked: they count as if they might answer.
"""

import errno
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from headrace.guard import OnceThread
from headrace.link.endpoint import DATAGRAMS, UNIX, Endpoint, parse_endpoint

_INIT, _VERSION, _CLIENT = 1, 9, 2
_ID = b"headrace-asking!"  # of a session, 16 bytes
_MESSAGE = bytes((_INIT, _VERSION, (len(_ID) - 1) << 4 | _CLIENT)) + _ID
_QUESTION = len(_MESSAGE).to_bytes(2, "little") + _MESSAGE
_WEB_QUESTION = (
    b"GET / HTTP/1.1\r\nHost: site\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: aGVhZHJhY2UtYXNraW5nIQ==\r\n\r\n"
)
_WAKE_S = 0.05
_BEGUN = (0, errno.EINPROGRESS)
_Address = tuple[int, Any]  # family and address of a socket
_NOBODY = (errno.ECONNREFUSED, errno.ENOENT)


class Answer(NamedTuple):
    """The endpoint that answered first, None if none did; and whether nothing listens at any of them."""

    endpoint: str | None
    is_refused: bool = False


def question(endpoint: Endpoint) -> bytes:
    """What to send for an answer."""
    return _WEB_QUESTION if endpoint.protocol == "ws" else _QUESTION


def first_answer(endpoints: Sequence[str], within_s: float, is_over: Callable[[], bool]) -> Answer:
    """Ask all endpoints at the same time. Ends early if none can answer any more, or `is_over`."""
    until = time.monotonic() + within_s
    datagrams = [text for text in endpoints if parse_endpoint(text).protocol in DATAGRAMS]
    with _Asking() as asking:
        for text in endpoints:
            if text not in datagrams:
                endpoint = parse_endpoint(text)
                asking.begin(text, _addresses(endpoint, lambda: is_over() or time.monotonic() >= until))
        while asking.is_waiting and time.monotonic() < until and not is_over():
            if found := asking.look():
                return Answer(found)
        is_refused = bool(endpoints) and not datagrams and not asking.is_waiting and asking.is_refused
    return Answer(datagrams[0] if datagrams else None, is_refused)


class _Asking(ExitStack):
    """Connections to all addresses of some endpoints; closed with the block."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = self.enter_context(selectors.DefaultSelector())
        self.is_refused = True  # whether nobody listens at any address that has failed so far

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting.get_map())

    def begin(self, text: str, addresses: list[_Address]) -> None:
        self.is_refused = self.is_refused and bool(addresses)
        for family, address in addresses:
            try:
                link = self.enter_context(socket.socket(family))
            except OSError:  # a family that this machine lacks
                continue
            link.setblocking(False)
            result = link.connect_ex(address)
            if result in _BEGUN:
                self._waiting.register(link, selectors.EVENT_WRITE, text)
            else:
                self._fail(result)

    def look(self) -> str | None:
        """Wait for a moment; the endpoint that has answered, if one has."""
        for key, _ in self._waiting.select(_WAKE_S):
            assert isinstance(key.fileobj, socket.socket)
            if key.events == selectors.EVENT_READ:
                return str(key.data)
            self._ask(key.fileobj, key.data)
        return None

    def _ask(self, link: socket.socket, text: str) -> None:
        self._waiting.unregister(link)
        if result := link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._fail(result)
            return
        with suppress(OSError):  # it has closed the connection already, which is an answer
            link.send(question(parse_endpoint(text)))
        self._waiting.register(link, selectors.EVENT_READ, text)

    def _fail(self, result: int) -> None:
        self.is_refused = self.is_refused and result in _NOBODY


def _addresses(endpoint: Endpoint, is_over: Callable[[], bool]) -> list[_Address]:
    """The families and addresses of an endpoint; none: its host is unknown.

    A name server that does not answer can hold up the lookup of a name for long, so a daemon thread waits for it.
    """
    if endpoint.protocol == UNIX:
        return [(socket.AF_UNIX, endpoint.host)]
    if found := _looked_up(endpoint, socket.AI_NUMERICHOST):
        return found
    lookup = OnceThread(lambda: found.extend(_looked_up(endpoint)), "headrace-lookup")
    lookup.start()
    while lookup.is_alive() and not is_over():
        lookup.join(_WAKE_S)
    return list(found)


def _looked_up(endpoint: Endpoint, flags: int = 0) -> list[_Address]:
    with suppress(OSError):
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=flags)
        return [(family, address) for family, _, _, _, address in found]
    return []
