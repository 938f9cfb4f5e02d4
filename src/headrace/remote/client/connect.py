"""`headrace.connect`: opens a queue by its directory, or by the endpoint of a site.

    headrace.connect("wx.queue")                             a queue on this machine
    headrace.connect("tcp/denver.example.org:7447")          the queue of the site that listens there
    headrace.connect("tcp/192.0.2.7:7447?site=denver")       the queue of another site, reached through it

Both implement `AnyQueue` (queue/interface.py); mypy checks that here. Zenoh is loaded only for endpoints. A directory
whose name begins like an endpoint is written with `./` before it.
"""

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.errors import FabricError, OptionError
from headrace.extras import require
from headrace.link.endpoint import PROTOCOLS, check_endpoint, is_address
from headrace.product.put import check_origin
from headrace.queue import AnyQueue, Queue
from headrace.units import parse_age

if TYPE_CHECKING:
    import zenoh

    from headrace.link.credentials import TlsTerms, UserTerms
    from headrace.remote.client.connection import OnLoss

_LOOK_S = 2.0  # how long to look for the site
_LOOK_AGAIN_S = 0.05
_CONNECT_S_MIN = 0.5
_EXPECTED = "give the directory of a queue, or the endpoint of a site, such as tcp/host:7447"


def connect(
    where: str | os.PathLike[str], *, patience: float | str | timedelta = "30s", on_loss: "OnLoss" = "raise",
    tls: "TlsTerms | None" = None, user: "UserTerms | None" = None,
) -> AnyQueue:  # fmt: skip
    """The queue at `where`: a directory, or the endpoint of a site, with `?site=NAME` for one behind it.

    `patience` is how long to try to connect, and how long a call is repeated while the site does not reply, before
    SiteUnreachableError. With `on_loss="wait"` calls wait for the return of a site without limit, once there is a
    connection; a `timeout` still ends them. `tls` and `user` are the credentials of the client. A directory needs none
    of them.
    """
    return connect_within(where, patience, tls, user, on_loss=on_loss)


def connect_within(
    where: str | os.PathLike[str], patience: float | str | timedelta, tls: "TlsTerms | None", user: "UserTerms | None",
    refused_s: float | None = None, on_loss: "OnLoss" = "raise",
) -> AnyQueue:  # fmt: skip
    """As `connect`; `refused_s` is how long to try if nothing listens at the endpoint, None: as long as otherwise."""
    if on_loss not in ("raise", "wait"):
        raise OptionError(f"on_loss {on_loss!r} is unknown", 'choose "raise" or "wait"')
    if not isinstance(where, str) or not is_endpoint(where):
        check_not_address(where)
        return Queue.open(where)
    require("sites")
    from headrace.link.credentials import principal_of
    from headrace.link.session import SessionTerms, open_session
    from headrace.remote.client.connection import Connection
    from headrace.remote.client.queue import RemoteQueue

    endpoint, site = parse_where(where)
    patience_s = parse_age(patience, "patience")
    timeout_s = max(patience_s, _CONNECT_S_MIN)
    session = open_session(
        SessionTerms("client", connect=(endpoint,), tls=tls, user=user, timeout_s=timeout_s, refused_s=refused_s)
    )
    try:
        found = find_site(session, endpoint, site, min(timeout_s, _LOOK_S))
        return RemoteQueue(Connection(session, where, found, principal_of(tls, user), patience_s, on_loss))
    except BaseException:
        session.close()  # type: ignore[no-untyped-call]
        raise


def is_endpoint(where: str) -> bool:
    """Whether `where` begins like an endpoint, or like a URL, which `check_endpoint` refuses with an explanation."""
    return where.partition("/")[0].lower().removesuffix(":") in PROTOCOLS


def check_not_address(where: str | os.PathLike[str]) -> None:
    """OptionError if it is empty, or if nothing exists there and it is a URL or an endpoint without its protocol."""
    text = os.fspath(where)
    if not text:
        raise OptionError("the path of the queue is empty", _EXPECTED)
    if isinstance(text, str) and "://" in text and not os.path.exists(text):
        raise OptionError(f"{text!r} is neither a directory nor an endpoint", _EXPECTED)
    if isinstance(text, str) and is_address(text.partition("?")[0]) and not os.path.exists(text):
        raise OptionError(f"{text} is neither a file nor an endpoint", f"to connect to a site, write tcp/{text}")


def parse_where(where: str) -> tuple[str, str | None]:
    """The endpoint, and the name of the site if one is given."""
    address, mark, options = where.partition("?")
    endpoint = check_endpoint(address)
    if not mark:
        return endpoint, None
    key, _, site = options.partition("=")
    if key != "site":
        raise OptionError(f"{where!r} has the unknown option {key!r}", f"write {endpoint}?site=NAME")
    return endpoint, check_origin(site)


def find_site(session: "zenoh.Session", endpoint: str, site: str | None, look_s: float) -> str:
    """The site called `site`, or the one that the session is connected to; FabricError if there is none."""
    from headrace.link.session import sites_present

    until = time.monotonic() + look_s
    while True:
        sites = sites_present(session)
        names = set(sites.values())
        neighbours = {str(zid) for zid in (*session.info.routers_zid(), *session.info.peers_zid())}
        nearest = {sites[zid] for zid in neighbours & set(sites)} if site is None else {site} & names
        if len(nearest) == 1:
            return nearest.pop()
        if time.monotonic() >= until:
            break
        time.sleep(_LOOK_AGAIN_S)
    if site is None and len(names) == 1:  # a router that is not a site, with one site behind it
        return names.pop()
    raise _not_found(endpoint, site, sorted(names))


def _not_found(endpoint: str, site: str | None, names: list[str]) -> FabricError:
    known = f"reachable sites: {', '.join(names)}" if names else "no site is reachable"
    if site is not None:
        return FabricError(f"there is no site {site!r} behind {endpoint}; {known}", "check the name")
    if not names:
        return FabricError(
            f"{endpoint} is not a site, and no site is reachable from it",
            "start one there: headrace serve; or check your access rights",
        )
    return FabricError(f"{endpoint} is not a site; {known}", f"name the site: {endpoint}?site={names[0]}")
