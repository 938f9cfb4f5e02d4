"""Session: the one connection of a program to the fabric, opened by checked terms.

    with open_session(SessionTerms("router", listen=("tcp/0.0.0.0:7447",))) as session: ...

A site is a `router` (it routes for others, also around dead links), or a `peer` or `client` of existing routers. A
program that uses a remote queue is a `client`. Routers and peers open at once and connect in the background, without
end. A client waits, and fails after its timeout. A session reconnects whatever it loses, and its subscriptions return
with it.

Access rules hold as long as the session does: Zenoh reads them, the users file and the certificates only when it opens.
Invalid terms are an OptionError when they are made; a problem of the environment is a FabricError when a session is
opened. Not here: what is sent over a session, and which sites are present in it (`headrace.link.presence`).
"""

import json
import logging
import os
import resource
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import zenoh

from headrace.errors import FabricError, OptionError
from headrace.guard import guarded
from headrace.link.credentials import TlsTerms, UserTerms, check_tls
from headrace.link.diagnosis import all_refuse, all_speak, explain_connecting, explain_listening
from headrace.link.endpoint import SECURE, Endpoint, check_endpoint, parse_endpoint
from headrace.link.rights import Rule
from headrace.link.scouting import Scouting
from headrace.link.settings import OPEN_S, SHARED_BYTES, plain_words, protocols, settings_of
from headrace.link.users import dictionary, in_clear, read_users
from headrace.units import format_age, format_count, format_size

Mode = Literal["router", "peer", "client"]
RECORD_BYTES_MAX = 1 << 30  # of the products in one message
HEAD_BYTES = 16 << 20  # of everything else in it
_PORT_ATTEMPTS = 5
_SHARED_MEMORY = "/dev/shm"
_SMALL_SEGMENTS_BYTES = 1 << 20  # which Zenoh locks besides its pool
_IPC_LOCK = 1 << 14  # the capability to lock any amount of memory
_NOTICE_S = 1.0  # before a client says for whom it waits, unless it does not wait
_PATIENT_S = 5.0
_PAUSE_S, _PAUSE_S_MAX = 0.05, 0.5  # between two attempts of a client to connect
_ATTEMPT_S_MIN = 0.5
_DENIALS = 4  # one after the other by something that replies: it refuses our credentials, and is not just starting
_SILENT = 0.9  # of the time of an attempt: it was not refused, but had no answer

log = logging.getLogger("headrace.link")


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """How to join the fabric. Endpoints become canonical; OptionError if the terms contradict each other."""

    mode: Mode
    listen: tuple[str, ...] = ()
    connect: tuple[str, ...] = ()
    scouting: Scouting = "off"  # multicast on the local network: answer who asks for sites, or also link to them
    gossip: bool = True  # introduce neighbours to each other
    mesh: bool = False  # routers that learn of each other by gossip connect, too
    compression: bool = False  # of links to sites that have it on, too
    shared_memory: bool = False  # for large messages to sessions on the same machine that have it on, too
    tls: TlsTerms | None = None
    user: UserTerms | None = None
    users_file: Path | None = None  # users that may connect, with their secrets
    rules: tuple[Rule, ...] = ()
    names: tuple[str, ...] = ()  # of the site whose rules these are: no other site speaks for it
    socket_key: str | None = field(default=None, repr=False)  # who has it and comes by a Unix socket may do everything
    timeout_s: float = 5.0  # for a client to connect
    refused_s: float | None = None  # a client gives up after this if all endpoints refuse; None: after timeout_s
    lease_s: float = 5.0  # a neighbour that is silent for this long is gone
    message_bytes_max: int = RECORD_BYTES_MAX + HEAD_BYTES  # larger ones are dropped on arrival, before they are whole

    def __post_init__(self) -> None:
        listen = tuple(check_endpoint(text, listen=True) for text in self.listen)
        object.__setattr__(self, "listen", tuple(dict.fromkeys(listen)))
        object.__setattr__(self, "connect", tuple(dict.fromkeys(check_endpoint(text) for text in self.connect)))
        _check_mode(self)
        _check_credentials(self)
        if not (0 < self.timeout_s <= 3600 and 0.5 <= self.lease_s <= 3600):
            hint = "use timeout_s up to 3600, and lease_s from 0.5 to 3600"
            raise OptionError("timeout_s or lease_s is out of range", hint)
        if not 1 << 16 <= self.message_bytes_max < 1 << 32:
            raise OptionError(f"message_bytes_max {self.message_bytes_max} is out of range", "use 64 KiB to 4 GiB")

    @property
    def record_bytes_max(self) -> int:
        """The largest record of a product that can come in."""
        return min(self.message_bytes_max - HEAD_BYTES, RECORD_BYTES_MAX)


def _check_mode(terms: SessionTerms) -> None:
    if terms.mode not in get_args(Mode):
        raise OptionError(f"mode {terms.mode!r} is unknown", f"choose one of {', '.join(get_args(Mode))}")
    if terms.scouting not in get_args(Scouting):
        raise OptionError(f"scouting {terms.scouting!r} is unknown", f"choose one of {', '.join(get_args(Scouting))}")
    if terms.mode == "client" and terms.listen:
        raise OptionError("a client does not listen", "use mode router or peer, or leave out listen")
    if terms.mode == "client" and not (terms.connect or terms.scouting == "link"):
        raise OptionError("a client requires an endpoint to connect to", "give one, such as tcp/host:7447")


def _check_credentials(terms: SessionTerms) -> None:
    if protocols((*terms.listen, *terms.connect)) & set(SECURE) and terms.tls is None:
        raise OptionError("tls and quic endpoints require certificates", "give the authority, a certificate and a key")
    if protocols(terms.listen) & set(SECURE) and terms.tls is not None and terms.tls.certificate is None:
        raise OptionError("listening on tls or quic requires a certificate", "give one and its key; see headrace certs")
    if terms.user is not None and terms.listen and terms.users_file is None:
        raise OptionError(
            "a session with a user name that listens requires a users file", "give the users that it admits"
        )


def open_session(terms: SessionTerms) -> zenoh.Session:
    """Open a session by these terms. FabricError names the endpoint or the file that is the problem, and the remedy."""
    if terms.tls is not None:
        check_tls(terms.tls)
    if terms.users_file is not None:
        _check_users(terms.users_file)
    if terms.shared_memory:
        _check_shared_memory()
    if terms.mode == "client":
        return _open_client(terms)
    if terms.mode == "router":
        _raise_limit(resource.RLIMIT_NOFILE)  # each link is an open file
    return _open_site(terms)


def _check_users(path: Path) -> None:
    if names := in_clear(read_users(path)):
        count = format_count(len(names), "user")
        log.warning("%s has the passwords of %s in clear; convert it with: headrace users import %s", path, count, path)


def _check_shared_memory() -> None:
    """FabricError if this process cannot use shared memory.

    Writing to memory that the system promised but does not have would kill the process. Zenoh locks its pool in memory,
    and uses the network silently if it may not.
    """
    status = os.statvfs(_SHARED_MEMORY)
    if (free := status.f_bavail * status.f_frsize) < SHARED_BYTES:
        raise FabricError(
            f"{_SHARED_MEMORY} has {format_size(free)} free, and shared_memory requires {format_size(SHARED_BYTES)}",
            f"enlarge {_SHARED_MEMORY}, or turn shared_memory off",
        )
    if (limit := _lockable_bytes()) < SHARED_BYTES + _SMALL_SEGMENTS_BYTES:
        raise FabricError(
            f"this process may lock {format_size(limit)} of memory, and shared_memory requires"
            f" {format_size(SHARED_BYTES + _SMALL_SEGMENTS_BYTES)}",
            "raise the limit (ulimit -l, or LimitMEMLOCK= of a systemd service), or turn shared_memory off",
        )


def may_share_memory() -> bool:
    """Whether a session with `shared_memory` would open, as far as that depends on this process."""
    try:
        _check_shared_memory()
    except FabricError:
        return False
    return True


def _lockable_bytes() -> int:
    """How much memory this process may lock, after its own limit is raised to what is allowed."""
    _raise_limit(resource.RLIMIT_MEMLOCK)
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    return sys.maxsize if limit == resource.RLIM_INFINITY or capabilities & _IPC_LOCK else limit


def _open_client(terms: SessionTerms) -> zenoh.Session:
    """Try all endpoints in turn until one accepts us; Zenoh alone would spend all the time on the first.

    If that takes longer than a second, a warning says who is waited for.
    """
    notice = threading.Timer(_NOTICE_S, guarded(_note_waiting), (terms,))
    notice.daemon = True
    if terms.timeout_s >= _PATIENT_S:
        notice.start()
    try:
        return _try_to_open(terms)
    finally:
        notice.cancel()


def _note_waiting(terms: SessionTerms) -> None:
    where = " or ".join(terms.connect) or "a site nearby"
    refuses, limit_s = "", terms.timeout_s
    if all_refuse(terms.connect):
        refuses = " (nothing listens there: the connection was refused)"
        limit_s = limit_s if terms.refused_s is None else min(limit_s, terms.refused_s)
    log.warning("waiting for %s%s, for up to %s", where, refuses, format_age(limit_s))


def _try_to_open(terms: SessionTerms) -> zenoh.Session:
    begun, left_s, pause_s, denials = time.monotonic(), terms.timeout_s, _PAUSE_S, 0
    while True:
        tried, attempt_s = time.monotonic(), max(left_s / max(len(terms.connect), 1), _ATTEMPT_S_MIN)
        try:
            return _open(replace(terms, timeout_s=min(attempt_s, terms.timeout_s)))
        except zenoh.ZError as error:
            now = time.monotonic()
            left_s = begun + terms.timeout_s - now
            is_silent = now - tried >= _SILENT * min(attempt_s, OPEN_S)
            denials = denials + 1 if not is_silent and all_speak(terms.connect) else 0
            may_give_up = terms.refused_s is not None and now - begun >= terms.refused_s
            if left_s <= 0 or denials == _DENIALS or (may_give_up and all_refuse(terms.connect)):
                raise _opening_error(terms, str(error), is_silent, denials == _DENIALS) from None
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


def _open_site(terms: SessionTerms) -> zenoh.Session:
    for attempt in range(1, _PORT_ATTEMPTS + 1):
        settled = replace(terms, listen=tuple(_with_port(endpoint) for endpoint in terms.listen))
        try:
            return _open(settled)
        except zenoh.ZError as error:
            if settled.listen == terms.listen or "in use" not in str(error) or attempt == _PORT_ATTEMPTS:
                raise _opening_error(settled, str(error)) from None
    raise AssertionError  # unreachable: the last attempt raises


def _open(terms: SessionTerms) -> zenoh.Session:
    with dictionary(terms.users_file) as users:
        return zenoh.open(_configuration(replace(terms, users_file=users)))


def _configuration(terms: SessionTerms) -> zenoh.Config:
    config = zenoh.Config()
    for path, value in settings_of(terms).items():
        try:
            config.insert_json5(path, json.dumps(value))
        except zenoh.ZError as error:
            raise FabricError(f"Zenoh refuses {path}: {plain_words(str(error))}", "check the terms") from None
    return config


def _opening_error(terms: SessionTerms, told: str, is_silent: bool = False, is_denied: bool = False) -> FabricError:
    if "Unable to connect" in told or "No router" in told or (terms.mode == "client" and not terms.connect):
        return explain_connecting(terms, is_silent, is_denied)
    told_of = [text for text in terms.listen if text.partition("/")[2] in told] or list(terms.listen)
    if told_of:
        return explain_listening(told_of[0] if len(told_of) == 1 else " or ".join(told_of), told)
    return FabricError(f"cannot open a session: {plain_words(told)}", "check the endpoints")


def _with_port(text: str) -> str:
    """Choose the port of a WebSocket endpoint here: Zenoh does not report which one it was given."""
    endpoint = parse_endpoint(text, listen=True)
    if endpoint.protocol != "ws" or endpoint.port:
        return text
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((endpoint.host, 0))
            return str(Endpoint("ws", endpoint.host, int(probe.getsockname()[1])))
    except OSError as error:
        raise explain_listening(text, error.strerror or str(error)) from None


def _raise_limit(kind: int) -> None:
    """Raise a limit of this process to what is allowed."""
    soft, hard = resource.getrlimit(kind)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(kind, (hard, hard))


def locators(session: zenoh.Session) -> list[str]:
    """The endpoints on which a router or peer really listens, with their ports; empty for a client."""
    for reply in session.get(f"@/{session.zid()}/*", timeout=5.0):
        if reply.ok is not None:
            return _locators_in(json.loads(reply.ok.payload.to_bytes()))
    return []


def _locators_in(told: dict[str, Any]) -> list[str]:
    asked = [text for text in (told.get("metadata") or {}).get("listen", []) if text.startswith("ws/")]
    return sorted(dict.fromkeys([*told["locators"], *asked]))
