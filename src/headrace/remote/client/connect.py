"""`headrace.connect`: opens a queue by its directory, by the name of a site, or by the endpoint of one.

    headrace.connect("wx.queue")                             a queue on this machine
    headrace.connect("site:denver")                          the queue of the site of that name, wherever it is found
    headrace.connect("tcp/denver.example.org:7447")          the queue of the site that listens there
    headrace.connect("tcp/192.0.2.7:7447?site=denver")       the queue of another site, reached through it

All implement `AnyQueue` (queue/interface.py); mypy checks that here. find.py and search.py find the site. Zenoh is
loaded only for sites.
"""

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.errors import OptionError
from headrace.extras import require
from headrace.link.address import SITE, Address, is_remote, parse_address
from headrace.link.endpoint import is_address
from headrace.payload.compression.link import check_link
from headrace.queue import AnyQueue, Queue
from headrace.units import parse_age

if TYPE_CHECKING:
    from headrace.link.credentials import TlsTerms, UserTerms
    from headrace.remote.client.find import Found
    from headrace.remote.client.silence import OnLoss

REFUSED_S = 3.0  # as long as a site takes to restart, on a busy machine
_PATIENCE = "30s"
_CONNECT_S_MIN = 0.5
_EXPECTED = "give the directory of a queue, a site, such as site:denver, or its endpoint, such as tcp/host:7447"


def connect(
    where: str | os.PathLike[str], *, patience: float | str | timedelta | None = None, on_loss: "OnLoss" = "raise",
    through: str | Sequence[str] | None = None, tls: "TlsTerms | None" = None, user: "UserTerms | None" = None,
    compress: str | None = None,
) -> AnyQueue:  # fmt: skip
    """The queue at `where`: a directory, `site:NAME`, or the endpoint of a site, with `?site=NAME` for one behind it.

    `patience`, 30 s by default, is how long to wait for a site that starts or does not reply, and how long a call is
    repeated while it does not reply, before SiteUnreachableError. If nothing listens at the endpoint, the error comes
    after three seconds, unless `patience` or `on_loss="wait"` is given. With `on_loss="wait"` calls wait for the return
    of the site without limit; a `timeout` still ends them.

    `site:NAME` is looked for at the endpoints in HEADRACE_SITES and in saved contexts, and by multicast; only at
    those in `through`, if that is given. `tls` and `user` are the credentials of the client. With `compress="zstd"`
    puts and batches are compressed for the link. A directory needs none of them.
    """
    refused_s = REFUSED_S if patience is None and on_loss == "raise" else None
    patience = _PATIENCE if patience is None else patience
    return connect_within(where, patience, tls, user, refused_s, on_loss, through, compress)


def connect_within(
    where: str | os.PathLike[str], patience: float | str | timedelta, tls: "TlsTerms | None", user: "UserTerms | None",
    refused_s: float | None, on_loss: "OnLoss" = "raise", through: str | Sequence[str] | None = None,
    compress: str | None = None,
) -> AnyQueue:  # fmt: skip
    """As `connect`; `refused_s` is how long to try if nothing listens at the endpoint, None: as long as otherwise."""
    if on_loss not in ("raise", "wait"):
        raise OptionError(f"on_loss {on_loss!r} is unknown", 'choose "raise" or "wait"')
    link = check_link(compress)
    if not isinstance(where, str) or not is_remote(where):
        check_not_address(where)
        return Queue.open(where)
    require("sites")
    from headrace.remote.client.connection import Connection
    from headrace.remote.client.queue import RemoteQueue

    patience_s = parse_age(patience, "patience")
    until = time.monotonic() + patience_s
    found = find(where, patience_s, tls, user, refused_s, through)
    shown = str(Address(found.endpoint, found.site)) if where.startswith(SITE) else where
    try:
        return RemoteQueue(
            Connection(found.session, shown, found.site, found.principal, patience_s, on_loss, until, link)
        )
    except BaseException:
        found.session.close()  # type: ignore[no-untyped-call]
        raise


def find(
    where: str, patience_s: float, tls: "TlsTerms | None", user: "UserTerms | None", refused_s: float | None,
    through: str | Sequence[str] | None = None,
) -> "Found":  # fmt: skip
    """The site at an address, and a session in which it is present; the errors are those of find.py and search.py."""
    from headrace.link.known import known_candidates, looks_here
    from headrace.link.session import SessionTerms
    from headrace.remote.client.find import find_at
    from headrace.remote.client.search import find_named

    endpoint, site = parse_address(where)
    timeout_s = max(patience_s, _CONNECT_S_MIN)
    if endpoint is not None and through is not None:
        raise OptionError(f"{where} has an endpoint, and through names another", "leave one of them out")
    if endpoint is not None:
        terms = SessionTerms(
            "client", connect=(endpoint,), tls=tls, user=user, timeout_s=timeout_s, refused_s=refused_s
        )
        return find_at(terms, site)
    assert site is not None  # an address has one of them
    return find_named(
        site, lambda: known_candidates(through), tls, user, timeout_s, refused_s,
        scouts=through is None, looks_here=through is None and looks_here(),
    )  # fmt: skip


def check_not_address(where: str | os.PathLike[str]) -> None:
    """OptionError if it is empty, or if nothing exists there and it is a URL or an endpoint without its protocol."""
    text = os.fspath(where)
    if not text:
        raise OptionError("the path of the queue is empty", _EXPECTED)
    if isinstance(text, str) and "://" in text and not os.path.exists(text):
        raise OptionError(f"{text!r} is neither a directory nor an endpoint", _EXPECTED)
    if isinstance(text, str) and is_address(text.partition("?")[0]) and not os.path.exists(text):
        raise OptionError(f"{text} is neither a file nor an endpoint", f"to connect to a site, write tcp/{text}")
