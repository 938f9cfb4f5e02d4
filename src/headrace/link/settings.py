"""Settings: the terms of a session as Zenoh's configuration.

Each setting is a path in Zenoh's configuration and a value. Other settings keep Zenoh's defaults, which measured best:
batching (idle while the link keeps up), two batches per priority (with more of them more is lost, because Zenoh takes
longer to notice that a link is full), a wait of 1 ms for room, and of 50 ms for messages in several fragments (without
it large messages never get through). `express` messages fill those batches one each, and are dropped at a few thousand
per second. The low-latency transport takes no message above 64 kB.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.link.access import access_settings
from headrace.link.endpoint import SECURE, parse_endpoint
from headrace.link.scouting import scouting_settings

if TYPE_CHECKING:
    from headrace.link.session import SessionTerms

SESSIONS_MAX = 10_000
PENDING_MAX = 2_000  # links that are not authenticated yet
OPEN_S = 5.0  # to set up a link, incoming or outgoing
SHARED_BYTES = 128 << 20  # of a site's pages that others are reading; two replies from its log
_KEEP_ALIVES = 4  # within a lease
_RETRY = {"period_init_ms": 100, "period_max_ms": 1_000, "period_increase_factor": 2}
_PRIVATE = {  # deny queries about subscriptions: such a query during a declaration makes a router hang
    "enabled": True,
    "default_permission": "allow",
    "rules": [
        {"id": "admin", "permission": "deny", "messages": ["query"], "flows": ["ingress"], "key_exprs": ["@/**"]}
    ],
    "subjects": [{"id": "all"}],
    "policies": [{"rules": ["admin"], "subjects": ["all"]}],
}
_TLS = "transport/link/tls"
_USER = "transport/auth/usrpwd"


def settings_of(terms: "SessionTerms") -> dict[str, Any]:
    """All settings. Endpoints to listen on have their ports already."""
    return {
        "mode": terms.mode,
        "timestamping/enabled": terms.mode == "router",
        **_endpoint_settings(terms),
        **_scouting_settings(terms),
        **_transport_settings(terms),
        **_credential_settings(terms),
        "access_control": access_settings(terms.rules, terms.names, terms.socket_key) if terms.rules else _PRIVATE,
        "adminspace/enabled": terms.mode != "client",  # for `locators`
        "adminspace/permissions": {"read": True, "write": False},
        "metadata": {"listen": list(terms.listen)},
    }


def _endpoint_settings(terms: "SessionTerms") -> dict[str, Any]:
    """Sites try to connect in the background, without end; a client tries each endpoint once."""
    is_client = terms.mode == "client"
    return {
        "listen/endpoints": list(terms.listen),
        "listen/timeout_ms": 0,
        "listen/exit_on_failure": True,
        "connect/endpoints": [_connected(endpoint, terms) for endpoint in terms.connect],
        "connect/timeout_ms": 0 if is_client else -1,
        "connect/exit_on_failure": is_client,
        "connect/retry": _RETRY,
    }


def _connected(text: str, terms: "SessionTerms") -> str:
    """As Zenoh requires it for TLS: an IPv6 address without brackets, and an option to show a certificate."""
    endpoint = parse_endpoint(text)
    if endpoint.protocol not in SECURE:
        return text
    shows = terms.tls is not None and terms.tls.certificate is not None
    return f"{endpoint.protocol}/{endpoint.host}:{endpoint.port}{'#enable_mtls=true' if shows else ''}"


def _scouting_settings(terms: "SessionTerms") -> dict[str, Any]:
    """Of two sites that find each other, the one with the greater id connects."""
    multicast = scouting_settings(terms.scouting, terms.listen)
    settings: dict[str, Any] = {
        **{f"scouting/multicast/{key}": value for key, value in multicast.items()},
        "scouting/gossip/enabled": terms.gossip,
        "scouting/gossip/autoconnect": {
            "router": ["router"] if terms.mesh else [], "peer": ["router", "peer"], "client": ["router"],
        },
        "scouting/gossip/autoconnect_strategy": multicast["autoconnect_strategy"],
        "scouting/timeout": round(terms.timeout_s * 1000),
    }  # fmt: skip
    if terms.scouting != "link":
        settings["scouting/delay"] = 0  # nothing to wait for
    return settings


def _transport_settings(terms: "SessionTerms") -> dict[str, Any]:
    return {
        "transport/shared_memory/enabled": terms.shared_memory,
        "transport/shared_memory/transport_optimization/pool_size": SHARED_BYTES,
        "transport/unicast/max_sessions": SESSIONS_MAX,
        "transport/unicast/accept_pending": PENDING_MAX,
        "transport/unicast/accept_timeout": round(OPEN_S * 1000),
        "transport/unicast/open_timeout": round(min(OPEN_S, terms.timeout_s) * 1000),
        "transport/unicast/compression/enabled": terms.compression,
        "transport/link/tx/lease": round(terms.lease_s * 1000),
        "transport/link/tx/keep_alive": _KEEP_ALIVES,
        "transport/link/rx/max_message_size": terms.message_bytes_max,
    }


def _credential_settings(terms: "SessionTerms") -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if terms.users_file is not None:
        settings[f"{_USER}/dictionary_file"] = str(terms.users_file)
    if terms.user is not None:
        settings |= {f"{_USER}/user": terms.user.name, f"{_USER}/password": terms.user.secret}
    tls = terms.tls
    if tls is None:
        return settings
    settings |= {
        f"{_TLS}/root_ca_certificate": str(tls.authority),
        f"{_TLS}/enable_mtls": tls.mutual and tls.certificate is not None,
        f"{_TLS}/verify_name_on_connect": True,
        f"{_TLS}/close_link_on_expiration": True,
    }
    if tls.certificate is not None:
        for side in ("listen", "connect"):
            settings[f"{_TLS}/{side}_certificate"] = str(tls.certificate)
            settings[f"{_TLS}/{side}_private_key"] = str(tls.key)
    return settings


def plain_words(text: str) -> str:
    """A message of Zenoh's without its source locations."""
    return re.sub(r"\s*at /[^\s:]*\.rs:\d+\.?", "", text).strip(" .")


def protocols(endpoints: Iterable[str]) -> set[str]:
    return {endpoint.partition("/")[0] for endpoint in endpoints}
