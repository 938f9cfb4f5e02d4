"""Scouting: which sites are near, by multicast on the local network.

    a program ──"who is there?"──► 224.0.0.224, UDP port 7450 ──► every site that answers
              ◄── id of the session, endpoints ───────────────────┘

The group is Headrace's own: in Zenoh's group (port 7446) every Zenoh program with default settings would link to our
sites. A site whose endpoints are all on loopback answers on loopback only. An answer has no name and proves nothing:
the name is read over a connection, whose credentials apply (`remote/client/search.py`). Where there is no multicast,
nobody asks and nobody answers, and that is no error.

HEADRACE_SCOUTING is another group, such as 224.0.0.224:7451, for a fabric of its own in the same network, or `off`.
"""

import ipaddress
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

from headrace.errors import OptionError
from headrace.guard import guarded
from headrace.link.endpoint import SECURE, check_endpoint, is_loopback

Scouting = Literal["off", "answer", "link"]
GROUP = "224.0.0.224:7450"
VARIABLE = "HEADRACE_SCOUTING"
OFF = "off"
_LOOPBACK, _ALL = "lo", "auto"  # interfaces, as Zenoh names them; `auto` leaves loopback out
_ENDPOINTS_MAX = 16  # of one answer


class Nearby(NamedTuple):
    """An answer: the id of a session, and the endpoints at which it says that it listens."""

    zid: str
    endpoints: tuple[str, ...]


def scouting_group(environment: Mapping[str, str] = os.environ) -> str | None:
    """The multicast group, or None if scouting is off. OptionError: the variable is neither."""
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return GROUP
    if text == OFF:
        return None
    host, _, port = text.rpartition(":")
    try:
        is_group = ipaddress.IPv4Address(host).is_multicast and port.isdecimal() and 0 < int(port) < 1 << 16
    except ValueError:
        is_group = False
    if not is_group:
        raise OptionError(
            f"{VARIABLE} {text!r} is not a multicast group", f"use an IPv4 group and a port, such as {GROUP}, or {OFF}"
        )
    return text


def scouting_settings(scouting: Scouting, listen: Sequence[str]) -> dict[str, Any]:
    """Zenoh's settings. Of two sites that find each other, the one with the greater id connects."""
    links, answers = scouting == "link", scouting == "answer" and bool(listen)
    group = scouting_group() if links or answers else None
    near_only = answers and all(is_loopback(endpoint) for endpoint in listen)
    return {
        "enabled": group is not None,
        "address": group or GROUP,
        "interface": _LOOPBACK if near_only else _ALL,
        "listen": True,
        "autoconnect": {
            "router": ["router"] if links else [], "peer": ["router", "peer"] if links else [], "client": ["router"],
        },
        "autoconnect_strategy": {"router": {"to_router": "greater-zid", "to_peer": "greater-zid"}},
    }  # fmt: skip


@contextmanager
def scouted(seen: Callable[[Nearby], None]) -> Iterator[str | None]:
    """Ask until the block ends, and call `seen` for each answer: every second again, on a thread of Zenoh's.

    The value is the group, None if scouting is off.
    """
    group = scouting_group()
    if group is None:
        yield None
        return
    import zenoh

    def hear(hello: zenoh.Hello) -> None:
        seen(Nearby(str(hello.zid), tuple(map(str, hello.locators[:_ENDPOINTS_MAX]))))

    handler: Any = zenoh.handlers.Callback(guarded(hear), indirect=False)  # the stub of `scout` lacks it
    with ExitStack() as asking:
        for interface in (_ALL, _LOOPBACK):
            scout = zenoh.scout(handler, what="router|peer", config=_config(group, interface))
            asking.callback(scout.stop)
        yield group


def _config(group: str, interface: str) -> Any:
    import json

    import zenoh

    config = zenoh.Config()
    for key, value in {"enabled": True, "address": group, "interface": interface}.items():
        config.insert_json5(f"scouting/multicast/{key}", json.dumps(value))
    return config


def usable(endpoints: Sequence[str], has_tls: bool) -> tuple[str, ...]:
    """The endpoints of an answer to connect to: with certificates only those that show one, without them the others.

    Anybody in the network can answer. Who has certificates talks only to sites that prove who they are.
    """
    found = []
    for text in endpoints:
        try:
            endpoint = check_endpoint(text)
        except OptionError:
            continue  # an interface of its own, or a protocol that this version does not know
        if (endpoint.partition("/")[0] in SECURE) == has_tls:
            found.append(endpoint)
    return tuple(dict.fromkeys(found))
