"""Presence: which sites a session sees, by the tokens that sites declare.

    headrace/site/<name>/<id of the session>

The token of a site that lost its link without a goodbye stays until the lease of the link ends. Any client can declare
any token, so a token is a claim; what is called at the site proves it.
"""

import re
import time
from contextlib import suppress

import zenoh

from headrace.link.keys import site_key
from headrace.product.put import is_origin

_TOKENS_S = 2.0  # for all tokens to arrive
_TOKENS_MAX = 100_000
_ID = re.compile("[0-9a-f]{1,32}")  # of a session
_TURN_S = 0.5  # how long a session waits for others that stop at the same time


def sites_present(session: zenoh.Session, name: str = "*") -> dict[str, str]:
    """The names of the sites that are present, by the ids of their sessions; those called `name`, or all."""
    return dict(site_tokens(session, name))


def site_tokens(session: zenoh.Session, name: str = "*") -> set[tuple[str, str]]:
    """As `sites_present`, in pairs of id and name: any client can declare any token, also in the name of a session
    that is not its own. What is not such a pair, even a pattern, is left out, and so is what exceeds the limit.
    """
    found: set[tuple[str, str]] = set()
    for reply in session.liveliness().get(site_key(name, "*"), timeout=_TOKENS_S):
        levels = str(reply.ok.key_expr).split("/") if reply.ok is not None else []
        if len(levels) == 4 and is_origin(levels[2]) and _ID.fullmatch(levels[3]) and len(found) < _TOKENS_MAX:
            found.add((levels[3], levels[2]))
    return found


def close_in_turn(session: zenoh.Session) -> None:
    """Close the session of a site that has withdrawn its token; sites that stop at the same time, one after the other.

    A router that handles the end of a link while it closes itself may panic (Zenoh 1.10): harmless, but its message
    alarms people. A neighbour without the token of a site is stopping, too. If its id is the lower one, this session
    waits until their link has ended; not for long, because the neighbour may be a router that is no site.
    """
    with suppress(zenoh.ZError):
        own, until = str(session.zid()), time.monotonic() + _TURN_S
        sites = set(sites_present(session))
        while any(zid < own for zid in _linked(session) - sites) and time.monotonic() < until:
            time.sleep(_TURN_S / 100)
    session.close()  # type: ignore[no-untyped-call]


def _linked(session: zenoh.Session) -> set[str]:
    return {str(zid) for zid in (*session.info.routers_zid(), *session.info.peers_zid())}
