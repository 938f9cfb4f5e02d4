"""Visiting: how a program on the site's machine, or one that has its configuration, gets into the fabric as a client.

It connects to where the site itself listens, and if nobody answers there to whom the site would connect, and shows the
certificate or the user name of the site.
"""

from cryptography.x509.oid import NameOID

from headrace.errors import OptionError
from headrace.fabric.credentials import read_certificate
from headrace.fabric.endpoint import UNIX, Endpoint, parse_endpoint
from headrace.fabric.session import SessionTerms
from headrace.site.config import SiteConfig
from headrace.site.daemon import session_terms

_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # all addresses of this machine, and one of them


def visiting_terms(config: SiteConfig) -> SessionTerms:
    """The terms of a client; OptionError if there is nothing to connect to."""
    terms = session_terms(config)
    near = [parse_endpoint(text, listen=True) for text in terms.listen]
    places = [str(_reachable(endpoint)) for endpoint in near if endpoint.port or endpoint.protocol == UNIX]
    if not places and not terms.connect:
        raise OptionError(
            f"site {config.site.name} has no endpoint that is known beforehand",
            "give its endpoint instead of its configuration",
        )
    return SessionTerms("client", connect=(*places, *terms.connect), tls=terms.tls, user=terms.user)


def principal_of(terms: SessionTerms) -> str | None:
    """Under which name the rules of sites know who has these terms: that of the user, or of the certificate."""
    if terms.user is not None:
        return terms.user.name
    if terms.tls is None or terms.tls.certificate is None:
        return None
    names = read_certificate(terms.tls.certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else None


def _reachable(endpoint: Endpoint) -> Endpoint:
    return Endpoint(endpoint.protocol, _LOCAL.get(endpoint.host, endpoint.host), endpoint.port)
