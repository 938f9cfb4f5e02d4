"""Reach: which endpoints of `connect` have a link, and why the others have none.

Zenoh connects in the background, retries without end and keeps its reasons to itself. So the links of the session are
compared with the endpoints: by address, or by the id of the session at the other end, because of two sites that connect
to each other only one link stays. An endpoint without a link is tried as a client would, at first soon and then every
half minute: that finds out the id, or fails with an explanation (diagnosis.py).
"""

import socket
import time
from contextlib import suppress
from dataclasses import dataclass

import zenoh

from headrace.errors import FabricError
from headrace.link.endpoint import UNIX, Endpoint, parse_endpoint
from headrace.link.session import SessionTerms, open_session

_PATIENCE_S = 2.0  # for Zenoh to connect by itself
_AGAIN_S = 30.0  # between two attempts to find out the reason
_TRY_S = 2.0  # for one attempt
_NOT_YET = ("there is no link to it yet", "wait some seconds; if it stays, look at the log of the other site")


@dataclass(frozen=True, slots=True)
class Unlinked:
    """An endpoint without a link; `since` is in monotonic seconds."""

    endpoint: str
    reason: str
    remedy: str
    since: float


class Reach:
    """The endpoints that one session should be linked to. One thread calls `look`."""

    def __init__(self, session: zenoh.Session, terms: SessionTerms) -> None:
        self._session, self._terms = session, terms
        self._ids: dict[str, set[str]] = {}  # by endpoint: of the sessions at the other end
        self._unlinked: dict[str, Unlinked] = {}
        self._due: dict[str, float] = {}  # when to find out the reason

    def look(self) -> list[Unlinked]:
        """Compare links and endpoints, and find out reasons. May take some seconds if an endpoint does not answer."""
        links = {link.dst.partition("?")[0].partition("#")[0]: str(link.zid) for link in self._session.info.links()}
        for text in self._terms.connect:
            if self._is_linked(text, links):
                self._unlinked.pop(text, None)
                self._due.pop(text, None)
            else:
                self._explain(text, time.monotonic(), set(links.values()))
        return [unlinked for unlinked in self._unlinked.values() if time.monotonic() - unlinked.since >= _PATIENCE_S]

    def _is_linked(self, text: str, links: dict[str, str]) -> bool:
        ids = {links[address] for address in _addresses(parse_endpoint(text)) if address in links}
        if ids:
            self._ids[text] = ids
        return bool(self._ids.get(text, set()) & set(links.values()))

    def _explain(self, text: str, now: float, linked: set[str]) -> None:
        before = self._unlinked.setdefault(text, Unlinked(text, *_NOT_YET, now))
        if now < self._due.setdefault(text, now + _PATIENCE_S):
            return
        reason, remedy = self._reason(text)
        self._due[text] = time.monotonic() + _AGAIN_S
        self._unlinked[text] = Unlinked(text, reason, remedy, before.since)
        if self._ids.get(text, set()) & linked:
            del self._unlinked[text]

    def _reason(self, text: str) -> tuple[str, str]:
        """Connect as a client, and remember who is there; the reason and the remedy if that fails."""
        terms = SessionTerms(
            "client", connect=(text,), tls=self._terms.tls, user=self._terms.user, timeout_s=_TRY_S, gossip=False
        )
        try:
            session = open_session(terms)
        except FabricError as error:
            return error.problem.removeprefix(f"cannot connect to {text}: "), error.hint
        try:
            self._ids[text] = {str(transport.zid) for transport in session.info.transports()}
        finally:
            session.close()  # type: ignore[no-untyped-call]
        if str(self._session.zid()) in self._ids[text]:
            return "it is an endpoint of this site itself", "remove it from connect"
        return _NOT_YET


def _addresses(endpoint: Endpoint) -> set[str]:
    """The endpoint as Zenoh writes it in links: with an address instead of a host name."""
    found = {str(endpoint)}
    if endpoint.protocol != UNIX:
        with suppress(OSError):
            for *_, address in socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM):
                found.add(str(Endpoint(endpoint.protocol, str(address[0]), endpoint.port)))
    return found
