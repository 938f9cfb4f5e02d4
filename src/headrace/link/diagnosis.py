"""Diagnosis: why a session could not be opened, found out afterwards and explained with a remedy.

Zenoh reports only that a connection failed. So the endpoint is tried once more with plain sockets: does the host name
resolve, does anything listen, does it speak TLS, whose certificate does it show, does it require ours? Nothing here is
on the path of a product, and nothing is sent except a TLS handshake.
"""

import os
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import FabricError, SiteUnreachableError
from headrace.link.answer import question
from headrace.link.endpoint import DATAGRAMS, UNIX, Endpoint, parse_endpoint
from headrace.link.settings import plain_words

if TYPE_CHECKING:
    from headrace.link.session import SessionTerms

_PROBE_S = 1.0
_ENDPOINTS_MAX = 3  # to try again
_LISTENING = (
    ("Address already in use", "another program listens there: stop it, or choose another port"),
    ("Unable to acquire lock", "another program listens there: stop it, or choose another path"),
    ("Permission denied", "use a port above 1023 or a path that this user may write to"),
    ("Cannot assign requested address", "this machine does not have this address; 0.0.0.0 and [::] mean all it has"),
    ("No such file or directory", "create the directory of the socket first"),
    ("failed to lookup address", "the host name is unknown: use an address"),
)


def explain_listening(endpoint: str, told: str) -> FabricError:
    """The error for an endpoint on which listening failed; `told` is Zenoh's message."""
    for sign, hint in _LISTENING:
        if sign in told:
            return FabricError(f"cannot listen on {endpoint}: {sign[0].lower()}{sign[1:]}", hint)
    return FabricError(f"cannot listen on {endpoint}: {plain_words(told)}", "try another endpoint")


def explain_connecting(terms: "SessionTerms", is_silent: bool = False, is_denied: bool = False) -> FabricError:
    """The error for a client that could not connect to any site.

    `is_silent`: its last attempt had no answer. `is_denied`: it was refused again and again, and that will not change.
    """
    if not terms.connect:
        hint = "give an endpoint to connect to, such as tcp/host:7447"
        return SiteUnreachableError(f"no site was found within {terms.timeout_s:g} s", hint)
    reasons = {text: _reason(parse_endpoint(text), terms, is_silent) for text in terms.connect[:_ENDPOINTS_MAX]}
    problem = "; ".join(f"cannot connect to {endpoint}: {reason.problem}" for endpoint, reason in reasons.items())
    has_credentials = terms.tls is not None or terms.user is not None
    is_refused = (has_credentials or is_denied) and all(reason.is_reachable for reason in reasons.values())
    kind = FabricError if is_refused else SiteUnreachableError
    return kind(problem, _joined([reason.hint for reason in reasons.values()]))


def all_refuse(endpoints: Sequence[str]) -> bool:
    """Whether nothing listens at any of these endpoints, as far as that is known at once."""
    return bool(endpoints) and all(_refuses(parse_endpoint(text)) for text in endpoints)


def _refuses(endpoint: Endpoint) -> bool:
    if endpoint.protocol in DATAGRAMS:
        return False  # nothing tells
    try:
        _dial(endpoint).close()
    except (ConnectionRefusedError, FileNotFoundError):
        return True
    except OSError:
        pass
    return False


def all_speak(endpoints: Sequence[str]) -> bool:
    """Whether at each of these endpoints something replies to the first message of Zenoh's handshake.

    A tunnel or proxy whose site is down accepts a connection, too, but then only closes it.
    """
    return bool(endpoints) and all(_speaks(parse_endpoint(text)) for text in endpoints)


def _speaks(endpoint: Endpoint) -> bool:
    if endpoint.protocol in DATAGRAMS:
        return False  # nothing tells
    try:
        with _dial(endpoint) as link:
            link.sendall(question(endpoint))
            return link.recv(1) != b""
    except OSError:
        return False


def _joined(hints: Sequence[str]) -> str:
    return "; ".join(dict.fromkeys(hints))


class _Reason(NamedTuple):
    problem: str
    hint: str
    is_reachable: bool = False  # something answers there, and refuses us


def _reason(endpoint: Endpoint, terms: "SessionTerms", is_silent: bool) -> _Reason:
    if endpoint.protocol in DATAGRAMS:
        return _Reason(
            "no answer", "check that a site listens there, that the port is open, and names and certificates"
        )
    try:
        link = _dial(endpoint)
    except socket.gaierror:
        return _Reason(f"host {endpoint.host} is unknown", "check the name, or use an address")
    except TimeoutError:
        return _Reason("no answer", "check that the host is up and the port open")
    except OSError as error:
        return _Reason(f"{(error.strerror or str(error)).lower()}", "check that a site listens there")
    with link:
        if is_silent:
            return _Reason(
                "it accepted the connection and did not answer", "check that it is a site, and that it is not suspended"
            )
        if not _speaks(endpoint):
            return _Reason("it accepted the connection and closed it", "check that a site runs behind this port")
        told = _tls_reason(link, endpoint, terms) if endpoint.protocol == "tls" else _refusal(terms)
    return _Reason(*told, is_reachable=True)


def _dial(endpoint: Endpoint) -> socket.socket:
    if endpoint.protocol != UNIX:
        return socket.create_connection((endpoint.host, endpoint.port), timeout=_PROBE_S)
    if not os.path.exists(endpoint.host):
        raise FileNotFoundError(2, "no such socket")
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(_PROBE_S)
    try:
        link.connect(endpoint.host)
    except OSError:
        link.close()
        raise
    return link


def _refusal(terms: "SessionTerms") -> tuple[str, str]:
    if terms.user is None:
        hint = "check that it is a site, and whether it requires a user and a password, or TLS"
        return "it refused the connection", hint
    hint = f"check the password of {terms.user.name}, and that the site has users at all"
    return f"it refused user {terms.user.name}", hint


def _tls_reason(link: socket.socket, endpoint: Endpoint, terms: "SessionTerms") -> tuple[str, str]:
    tls = terms.tls
    assert tls is not None  # terms with such an endpoint have them
    context = ssl.create_default_context(cafile=str(tls.authority))
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    try:
        with context.wrap_socket(link, server_hostname=endpoint.host) as secure:
            secure.recv(1)  # only now TLS 1.3 says whether it accepted our certificate
    except ssl.SSLCertVerificationError as error:
        return _distrust(error, endpoint, terms)
    except ssl.SSLError as error:
        return _tls_alert(error, terms)
    except (TimeoutError, OSError):
        pass
    return _refusal(terms)


def _distrust(error: ssl.SSLCertVerificationError, endpoint: Endpoint, terms: "SessionTerms") -> tuple[str, str]:
    told = error.verify_message.rstrip(".")
    if "mismatch" in told:
        hint = f"create its certificate with: headrace certs site DIR NAME --host {endpoint.host}"
        return f"its certificate is not for {endpoint.host}", hint
    if "expired" in told:
        return "its certificate has expired", "create a new one for it with: headrace certs site"
    assert terms.tls is not None
    return f"its certificate is not from our authority ({told})", f"check that the site has {terms.tls.authority}, too"


def _tls_alert(error: ssl.SSLError, terms: "SessionTerms") -> tuple[str, str]:
    assert terms.tls is not None
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "alert" in reason:  # it speaks TLS, and refused our handshake
        ours = terms.tls.certificate
        if ours is None:
            return "it requires a certificate", "get one from its authority: headrace certs site"
        return f"it refuses the certificate {ours} ({reason})", "get one from its authority: headrace certs site"
    return f"it does not speak TLS ({reason})", "connect with tcp/ if the site listens there"
