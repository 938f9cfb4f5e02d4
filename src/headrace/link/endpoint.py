"""Endpoint: where a site listens, or where a site or program connects to.

    tcp/192.0.2.7:7447      tls/denver.example.org:7447      quic/[2001:db8::7]:7447
    udp/127.0.0.1:7447      ws/localhost:8080                unixsock-stream//run/headrace.sock

A protocol, a slash and an address. Endpoints are checked here before they reach Zenoh, whose messages about invalid
ones do not help. The result is canonical: equal endpoints are equal texts. Zenoh's options behind `?` and `#` are
refused: what they set is set for a whole session (`headrace.link.session`).

`local` stands for the Unix socket in the directory of a queue, where a setting allows it (`headrace.link.local`).
"""

import ipaddress
import re
from dataclasses import dataclass

from headrace.errors import OptionError

PROTOCOLS = ("tcp", "tls", "quic", "udp", "ws", "unixsock-stream")
SECURE = ("tls", "quic")  # those with certificates
UNIX = "unixsock-stream"
LOCAL = "local"
DATAGRAMS = ("udp", "quic")
PATH_BYTES_MAX = 100  # the kernel takes 108, and Zenoh appends a suffix for its lock file
_EXAMPLE = "use a protocol and an address, such as tcp/192.0.2.7:7447, tls/host.example.org:7447 or tcp/[::1]:7447"
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):[0-9]{1,5}")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The parts of a checked endpoint; `host` has no brackets, and is the path of a Unix socket."""

    protocol: str
    host: str
    port: int = 0

    def __str__(self) -> str:
        if self.protocol == UNIX:
            return f"{UNIX}/{self.host}"
        return f"{self.protocol}/{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def check_endpoint(text: str, *, listen: bool = False) -> str:
    """The endpoint in canonical form; OptionError if it is invalid. Port 0, any free port, is for listening only."""
    return str(parse_endpoint(text, listen=listen))


def is_address(text: str) -> bool:
    """Whether it looks like an endpoint without its protocol: 127.0.0.1:7447."""
    return _ADDRESS.fullmatch(text) is not None


def parse_endpoint(text: str, *, listen: bool = False) -> Endpoint:
    """The parts of an endpoint; OptionError as `check_endpoint`."""
    if isinstance(text, str) and is_address(text):
        raise OptionError(f"endpoint {text!r} has no protocol", f"write tcp/{text}, or another protocol and a slash")
    if not isinstance(text, str) or "/" not in text:
        raise OptionError(f"invalid endpoint {text!r}", _EXAMPLE)
    protocol, _, address = text.partition("/")
    protocol = protocol.lower()
    if protocol.endswith(":"):
        raise OptionError(f"endpoint {text!r} is written as a URL", f"write {_without_colon(text)}")
    if protocol not in PROTOCOLS:
        raise OptionError(f"endpoint {text!r} has the unknown protocol {protocol!r}", f"use {', '.join(PROTOCOLS)}")
    if "?" in address or "#" in address or not address.isprintable():
        raise OptionError(f"endpoint {text!r} has more than an address", "leave out the part that begins with ? or #")
    if protocol == UNIX:
        return Endpoint(protocol, _path(text, address))
    host, port = _parted(text, address)
    return Endpoint(protocol, _host(text, host), _port(text, port, listen))


def is_loopback(endpoint: str) -> bool:
    """Whether only programs on this machine can reach it. Names other than localhost count as no, without lookup."""
    if endpoint == LOCAL:
        return True
    parts = parse_endpoint(endpoint, listen=True)
    if parts.protocol == UNIX or parts.host == "localhost" or parts.host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(parts.host)
    except ValueError:
        return False
    inner = getattr(address, "ipv4_mapped", None)
    return bool(address.is_loopback or (inner is not None and inner.is_loopback))


def _without_colon(text: str) -> str:
    protocol, _, address = text.partition(":")
    return f"{protocol}/{address.lstrip('/')}"


def _path(text: str, path: str) -> str:
    if not path.startswith("/"):
        raise OptionError(f"endpoint {text!r} has a relative path", f"write it with two slashes: {UNIX}//{path}")
    if len(path.encode()) > PATH_BYTES_MAX or path.endswith("/"):
        raise OptionError(f"endpoint {text!r} is not the path of a socket", f"use at most {PATH_BYTES_MAX} bytes")
    return path


def _parted(text: str, address: str) -> tuple[str, str]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        raise OptionError(f"endpoint {text!r} has no port", f"add one, such as {text.rstrip(':')}:7447")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise OptionError(f"endpoint {text!r} has an IPv6 address without brackets", "write tcp/[::1]:7447")
    return host, port


def _host(text: str, host: str) -> str:
    if host.startswith("["):
        return _ipv6(text, host[1:-1])
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError as error:
            raise OptionError(f"endpoint {text!r} has an invalid IPv4 address: {error}", _EXAMPLE) from None
    name = host.lower().removesuffix(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise OptionError(f"endpoint {text!r} has the invalid host {host!r}", _EXAMPLE)
    return name


def _ipv6(text: str, host: str) -> str:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError as error:
        raise OptionError(f"endpoint {text!r} has an invalid IPv6 address: {error}", _EXAMPLE) from None
    if address.scope_id is not None:
        raise OptionError(f"endpoint {text!r} names an interface", "use an address that is not link-local")
    return str(address)


def _port(text: str, port: str, listen: bool) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise OptionError(f"endpoint {text!r} has the invalid port {port!r}", "use a number from 1 to 65535")
    if int(port) == 0 and not listen:
        raise OptionError(f"endpoint {text!r} has port 0", "port 0 is for listening; give the port to connect to")
    return int(port)
