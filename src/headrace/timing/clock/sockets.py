"""Sockets: requests to NTP servers and their replies, by UDP.

Each server has a connected socket, so the system drops datagrams from other addresses, and says if nobody listens. A
request is timed before it is sent; a reply is timed by the system when it arrives, so a busy interpreter does not look
like a slow network. Names are resolved when a server is asked for the first time, and again when it is unreachable.
"""

import secrets
import selectors
import socket
import struct
from contextlib import suppress

from headrace.timing.clock.association import Association
from headrace.timing.clock.machine import Machine
from headrace.timing.clock.samples import Rate
from headrace.timing.clock.terms import parse_server

_SO_TIMESTAMPNS = 35  # of 64-bit Linux
_TIMESPEC = struct.Struct("qq")
_DATAGRAM_MAX = 1024
_BATCH = 16  # datagrams of one server in one go


class Sockets:
    """The sockets of several servers; used by one thread."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[str, socket.socket] = {}
        self.addresses: dict[str, str] = {}
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)

    def ask(self, server: Association) -> None:
        """Send the request that is due."""
        try:
            sock = self._socket(server)
            nonce = secrets.token_bytes(8)
            sock.send(server.request(self._machine.moment().boot_ns, nonce))
        except OSError as error:
            if server.name not in self._sockets:
                server.request(self._machine.moment().boot_ns, secrets.token_bytes(8))  # it counts as unanswered
            self._fail(server, error)

    def _socket(self, server: Association) -> socket.socket:
        found = self._sockets.get(server.name)
        if found is not None:
            return found
        host, port = parse_server(server.name)
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            sock.connect(address)
        except OSError:
            sock.close()
            raise
        self._sockets[server.name], self.addresses[server.name] = sock, str(address[0])
        self._selector.register(sock, selectors.EVENT_READ, server)
        return sock

    def _fail(self, server: Association, error: OSError) -> None:
        """Close the socket: the name may have another address next time."""
        server.failed(error.strerror or str(error))
        sock = self._sockets.pop(server.name, None)
        if sock is not None:
            self._selector.unregister(sock)
            sock.close()

    def wait(self, timeout_s: float, rate: Rate) -> list[Association]:
        """Wait for replies, and give them to their servers; those that have a new sample."""
        fresh = []
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            server: Association | None = key.data
            if server is None:
                with suppress(BlockingIOError):
                    self._woken.recv(_DATAGRAM_MAX)
            elif self._receive(server, rate):
                fresh.append(server)
        return fresh

    def _receive(self, server: Association, rate: Rate) -> bool:
        fresh = False
        for _ in range(_BATCH):
            try:
                datagram, extra, _, _ = self._sockets[server.name].recvmsg(_DATAGRAM_MAX, 64)
            except BlockingIOError:
                break
            except OSError as error:
                self._fail(server, error)
                break
            fresh |= server.receive(datagram, self._arrival(extra), rate) is not None
        return fresh

    def _arrival(self, extra: list[tuple[int, int, bytes]]) -> int:
        """When the datagram arrived, in boot time."""
        now = self._machine.moment()
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
                seconds, part_ns = map(int, _TIMESPEC.unpack_from(data))
                ago_ns = now.system_ns - (seconds * 1_000_000_000 + part_ns)
                if 0 <= ago_ns < 1_000_000_000:  # otherwise somebody has set the clock in between
                    return now.boot_ns - ago_ns
        return now.boot_ns

    def wake(self) -> None:
        """End a wait; from any thread."""
        with suppress(OSError):
            self._waker.send(b"w")

    def close(self) -> None:
        for sock in (*self._sockets.values(), self._woken, self._waker):
            sock.close()
        self._selector.close()
