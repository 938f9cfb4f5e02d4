"""Connections: the TCP connections of one of our ports, as the kernel knows them, also those that have just ended.

Read through the socket diagnosis of Linux (sock_diag, netlink), as `ss` does; no privilege is needed. Only sockets of
the port are copied to us. The side that closes a connection first keeps it for a minute, in the state TIME_WAIT.
"""

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_SOCK_DIAG, _BY_FAMILY, _DUMP = 4, 20, 0x301  # protocol and type of a message; flags REQUEST and DUMP
_ERROR, _DONE = 2, 3
_HEAD = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48x")
_PORT_IS = struct.Struct("=HHBBHBBH")  # an attribute with two operations: the local port, or else reject
_ANSWER = struct.Struct("=BBxx2s2s16s16s")
_PORT = struct.Struct("!H")
_SOURCE_EQUAL = 11
_BUFFER_BYTES = 1 << 17
_WAIT_S = 1.0
_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _TIME_WAIT, _CLOSE_WAIT, _LAST_ACK, _CLOSING = 1, 4, 5, 6, 8, 9, 11
_CLOSED_HERE = {_FIN_WAIT1, _FIN_WAIT2, _TIME_WAIT, _CLOSING}
_STATES = sum(1 << state for state in (_ESTABLISHED, _CLOSE_WAIT, _LAST_ACK, *_CLOSED_HERE))


class Remote(NamedTuple):
    """The other end of a connection."""

    address: Address
    port: int


def connections(port: int) -> dict[Remote, bool]:
    """The connections to one of our ports: whether we have closed it, by remote end. OSError: the kernel refuses."""
    found: dict[Remote, bool] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as link:
        link.settimeout(_WAIT_S)
        for family in (socket.AF_INET, socket.AF_INET6):
            filtered = _PORT_IS.pack(_PORT_IS.size, 1, _SOURCE_EQUAL, 8, 12, 0, 0, port)
            request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _STATES) + filtered
            link.send(_HEAD.pack(_HEAD.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request)
            for state, remote in _answers(link):
                found[remote] = state in _CLOSED_HERE
    return found


def _answers(link: socket.socket) -> Iterator[tuple[int, Remote]]:
    while True:
        data, offset = link.recv(_BUFFER_BYTES), 0
        while offset + _HEAD.size <= len(data):
            size, kind, *_ = _HEAD.unpack_from(data, offset)
            if kind == _DONE:
                return
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", data, offset + _HEAD.size)
                raise OSError(-code, os.strerror(-code))
            family, state, _, port, _, source = _ANSWER.unpack_from(data, offset + _HEAD.size)
            packed = source[:4] if family == socket.AF_INET else source
            yield state, Remote(plain_address(packed), _PORT.unpack(port)[0])
            offset += (size + 3) & ~3


@lru_cache(maxsize=4096)
def plain_address(given: bytes | str) -> Address:
    """An address; an IPv4 address that is written as one of IPv6 becomes what it is."""
    address = ipaddress.ip_address(given)
    return getattr(address, "ipv4_mapped", None) or address


def remote_of(endpoint: str) -> Remote | None:
    """The remote end in an endpoint as Zenoh writes it; None for those without an address."""
    host, _, port = endpoint.partition("/")[2].partition("?")[0].partition("#")[0].rpartition(":")
    try:
        return Remote(plain_address(host.strip("[]").partition("%")[0]), int(port))
    except ValueError:
        return None
