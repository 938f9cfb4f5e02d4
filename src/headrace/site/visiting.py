"""Visiting: how a program on the site's machine, or one that has its configuration, gets into the fabric as a client.

It connects to where the site itself listens, and if nobody answers there to whom the site would connect, and shows the
certificate or the user name of the site.
"""

from headrace.errors import OptionError
from headrace.link.endpoint import UNIX, Endpoint, parse_endpoint
from headrace.link.session import SessionTerms
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


def _reachable(endpoint: Endpoint) -> Endpoint:
    return Endpoint(endpoint.protocol, _LOCAL.get(endpoint.host, endpoint.host), endpoint.port)
