"""The filter that keeps addresses from connecting to our listening sockets: a classic BPF program in the kernel.

    SYN of a locked address ──► dropped, as if nobody were there; connections that exist go on
    SYN of any other        ──► accepted

A socket's owner may attach a filter without any privilege. Zenoh owns the sockets, in this process: they are found
among the open files and duplicated. A connection inherits the filter that the listening socket has when it is made, and
keeps it: that costs some instructions for each packet, and nothing while nobody is locked out.
"""

import ctypes
import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Iterable

from headrace.link.connections import Address

NETWORKS_MAX = 512  # of one filter
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
LOOPBACKS = (LOOPBACK, ipaddress.ip_network("::/64"))

_ATTACH, _DETACH = 26, 27  # SO_ATTACH_FILTER, SO_DETACH_FILTER
_NET = 0xFFF00000  # SKF_NET_OFF: offsets from the IP header
_LOAD_BYTE, _LOAD_WORD, _SHIFT, _AND, _JUMP, _IF_EQUAL, _RETURN = 0x30, 0x20, 0x74, 0x54, 0x05, 0x15, 0x06
_ACCEPT, _DROP = 0xFFFFFFFF, 0
_OPERATION = struct.Struct("=HBBI")
_IPV4_SOURCE, _IPV6_SOURCE = 12, 8
Operation = tuple[int, int, int, int]


def network_of(address: Address) -> Network:
    """What is locked together: all of loopback, one IPv4 address, or the /64 that one IPv6 user commonly has."""
    if address.version == 4:
        return LOOPBACK if address.is_loopback else ipaddress.IPv4Network((address, 32))
    return ipaddress.IPv6Network((address, 64), strict=False)


def text_of(network: Network) -> str:
    return str(network.network_address if network.num_addresses == 1 else network)


def listening_sockets(ports: Collection[int]) -> list[socket.socket]:
    """Duplicates of the sockets of this process that listen on these TCP ports."""
    found: dict[int, socket.socket] = {}  # by inode: a number may be open again as one of our duplicates
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            each = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue  # closed meanwhile
        inode = os.fstat(each.fileno()).st_ino
        if inode not in found and _listens(each) and each.getsockname()[1] in ports:
            found[inode] = each
        else:
            each.close()
    return list(found.values())


def apply_filter(sockets: Iterable[socket.socket], locked: Collection[Network]) -> None:
    """Drop what comes from these networks, and nothing else. OSError: the kernel refuses."""
    operations = _program(list(locked)[:NETWORKS_MAX])
    code = ctypes.create_string_buffer(b"".join(_OPERATION.pack(*each) for each in operations))
    program = struct.pack("HP", len(operations), ctypes.addressof(code))
    for each in sockets:
        if locked:
            each.setsockopt(socket.SOL_SOCKET, _ATTACH, program)
        else:
            try:
                each.setsockopt(socket.SOL_SOCKET, _DETACH, b"\0\0\0\0")
            except FileNotFoundError:  # it has none
                continue


def _program(locked: Collection[Network]) -> list[Operation]:
    v4 = [operation for network in locked if network.version == 4 for operation in _ipv4(network)]
    v6 = [operation for network in locked if network.version == 6 for operation in _ipv6(network)]
    return [
        (_LOAD_BYTE, 0, 0, _NET), (_SHIFT, 0, 0, 4),
        (_IF_EQUAL, 0, 1, 6), (_JUMP, 0, 0, len(v4) + 1),
        *v4, (_RETURN, 0, 0, _ACCEPT),
        *v6, (_RETURN, 0, 0, _ACCEPT),
    ]  # fmt: skip


def _ipv4(network: Network) -> list[Operation]:
    return [
        (_LOAD_WORD, 0, 0, _NET + _IPV4_SOURCE), (_AND, 0, 0, int(network.netmask)),
        (_IF_EQUAL, 0, 1, int(network.network_address)), (_RETURN, 0, 0, _DROP),
    ]  # fmt: skip


def _ipv6(network: Network) -> list[Operation]:
    """The first 64 bits."""
    high, low = struct.unpack("!II", network.network_address.packed[:8])
    return [
        (_LOAD_WORD, 0, 0, _NET + _IPV6_SOURCE), (_IF_EQUAL, 0, 3, high),
        (_LOAD_WORD, 0, 0, _NET + _IPV6_SOURCE + 4), (_IF_EQUAL, 0, 1, low), (_RETURN, 0, 0, _DROP),
    ]  # fmt: skip


def _listens(each: socket.socket) -> bool:
    try:
        return (
            each.family in (socket.AF_INET, socket.AF_INET6)
            and each.type == socket.SOCK_STREAM
            and bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        )
    except OSError:
        return False
