"""Bearer: under which name a session that is open calls and queries.

    logged in as a user              the name of the user
    by a Unix socket                 that of the key beside the socket (local.py); without a key no name
    by any other link                the name in the certificate; without a certificate no name

No certificate is shown at a Unix socket, so a name in one proves nothing there.
"""

import zenoh

from headrace.link.credentials import TlsTerms, UserTerms, principal_of
from headrace.link.endpoint import UNIX
from headrace.link.local import name_by_socket


def principal_at(session: zenoh.Session, tls: TlsTerms | None, user: UserTerms | None) -> str | None:
    """The name by which the sites that this session reaches know it."""
    if user is None:
        for link in session.info.links():
            if link.dst.partition("/")[0] == UNIX:
                return name_by_socket(link.dst)
    return principal_of(tls, user)
