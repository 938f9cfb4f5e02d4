"""ClockTerms: where the time of a site comes from, as it is configured.

    auto      the system's clock if a daemon disciplines it, otherwise the servers, if there are any
    system    the system's clock; without a daemon that disciplines it, the bound is unknown
    ntp       our own client, and the servers that are named

A server is a name or an address, with a port unless it is 123: `ntp1.example.org`, `192.0.2.7:1123`, `[2001:db8::7]`.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from headrace.errors import OptionError
from headrace.timing.clock.packet import PORT

Source = Literal["auto", "system", "ntp"]
SOURCES: tuple[Source, ...] = get_args(Source)
POLL_S = 64.0
POLL_S_MIN, POLL_S_MAX = 1.0, 4096.0
SERVERS_MAX = 16
_SERVER = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]{1,253}))(?::([0-9]{1,5}))?")
_EXAMPLE = "give a name or an address, such as ntp1.example.org, 192.0.2.7:1123 or [2001:db8::7]"


@dataclass(frozen=True, slots=True)
class ClockTerms:
    """Valid by construction: OptionError otherwise."""

    source: Source = "auto"
    servers: tuple[str, ...] = ()
    poll_s: float = POLL_S

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise OptionError(f"invalid source {self.source!r} of the clock", f"choose one of {', '.join(SOURCES)}")
        if self.source == "ntp" and not self.servers:
            raise OptionError("the clock has no servers", "name three or more: a liar among two cannot be told")
        if self.source == "system" and self.servers:
            raise OptionError("source system uses no servers", "leave them out, or choose source ntp or auto")
        if len(self.servers) > SERVERS_MAX:
            raise OptionError(f"{len(self.servers)} servers are too many", f"name at most {SERVERS_MAX}")
        if not POLL_S_MIN <= self.poll_s <= POLL_S_MAX:
            raise OptionError(f"poll {self.poll_s} s is invalid", f"choose {POLL_S_MIN:g}s to {POLL_S_MAX:g}s")
        canonical = [check_server(server) for server in self.servers]
        for server in canonical:
            if canonical.count(server) > 1:
                raise OptionError(f"server {server} is named twice", "leave one out: it would have two votes")


def parse_server(text: str) -> tuple[str, int]:
    """Host and port; OptionError if it is invalid."""
    found = _SERVER.fullmatch(text)
    if found is None or not 1 <= int(found[3] or PORT) <= 65535:
        raise OptionError(f"invalid server {text!r}", _EXAMPLE)
    return found[1] or found[2], int(found[3] or PORT)


def check_server(text: str) -> str:
    """The server in canonical form: equal servers are equal texts."""
    host, port = parse_server(text)
    name = f"[{host}]" if ":" in host else host.lower().rstrip(".")
    return name if port == PORT else f"{name}:{port}"
