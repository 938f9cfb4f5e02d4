"""Find: a session in which a site is present, by the endpoint of the site; search.py does so by its name.

A session is opened, and the token of the site is awaited: while a site starts, its port is open already and its token
is not there yet. Without a name it must be the site that listens at the endpoint: a site behind it is never guessed,
because the next product would go to the wrong queue.

A site is its session: the same id on two paths is one site, two ids are two sites of one name, and an error. The token
of a site that lost its link without a goodbye stays for some seconds, so two are an error only if both stay.
"""

import difflib
import logging
import time
from collections.abc import Iterable
from typing import NamedTuple

import zenoh

from headrace.errors import FabricError, SiteUnreachableError
from headrace.link.bearer import principal_at
from headrace.link.presence import site_tokens
from headrace.link.session import SessionTerms, open_session
from headrace.units import format_age

_NOTICE_S = 1.0  # before it is logged for whom we wait
_NEAREST_S = 2.0  # for the token of the site that listens at an endpoint, if only others are seen
_LEFTOVER_S = 6.0  # the lease of a link and a bit: how long the token of a site may stay that has died
LOOK_S_MIN = 0.5
_PAUSES_S = (0.05, 0.05, 0.1, 0.2, 0.5)
_NAMES_MAX = 20  # in a message

log = logging.getLogger("headrace.link")


class Found(NamedTuple):
    """A session, closed by who receives it, in which the site is present; and the name under which we are known."""

    session: zenoh.Session
    endpoint: str
    site: str
    principal: str | None


class View(NamedTuple):
    """What a session sees: the ids and names of sites, and the ids of its neighbours."""

    sites: frozenset[tuple[str, str]] = frozenset()
    neighbours: frozenset[str] = frozenset()

    @property
    def names(self) -> set[str]:
        return {name for _, name in self.sites}

    def ids(self, site: str) -> set[str]:
        return {zid for zid, name in self.sites if name == site}

    def nearest(self) -> set[str]:
        """The names of the neighbours."""
        return {name for zid, name in self.sites if zid in self.neighbours}


def view_of(session: zenoh.Session) -> View:
    neighbours = {str(zid) for zid in (*session.info.routers_zid(), *session.info.peers_zid())}
    return View(frozenset(site_tokens(session)), frozenset(neighbours))


# --- by endpoint ----------------------------------------------------------------------------------


def find_at(terms: SessionTerms, site: str | None) -> Found:
    """The site that listens at an endpoint of these terms of a client, or the site called `site` behind it.

    SiteUnreachableError: there is none within the time of the terms, or nothing listens there. FabricError: the
    credentials are refused, two sites have the name, or the endpoint is that of a router and not of a site.
    """
    until = time.monotonic() + terms.timeout_s
    endpoint = " or ".join(terms.connect)
    session = open_session(terms)
    try:
        found = _await_site(session, endpoint, site, max(until, time.monotonic() + LOOK_S_MIN))
        return Found(session, endpoint, found, principal_at(session, terms.tls, terms.user))
    except BaseException:
        session.close()  # type: ignore[no-untyped-call]
        raise


def _await_site(session: zenoh.Session, endpoint: str, site: str | None, until: float) -> str:
    begun, turn, conflict = time.monotonic(), 0, Conflict()
    notice = Notice(f"{f'site {site} behind' if site else 'the site at'} {endpoint}", until)
    while True:
        view, now = view_of(session), time.monotonic()
        names = view.nearest() if site is None else {site}
        if len(names) == 1:
            (name,) = names
            if len(ids := view.ids(name)) == 1:
                return name
            conflict.check(name, dict.fromkeys(ids, endpoint), ids & view.neighbours, now, until)
        is_elsewhere = bool(view.names) and len(names) != 1 if site is None else differs_in_case(site, view.names)
        if now >= until or (is_elsewhere and now - begun >= _NEAREST_S):
            raise _not_at(endpoint, site, view)
        notice.look(now, sites_seen(view.names))
        time.sleep(pause_s(turn))
        turn += 1


def _not_at(endpoint: str, site: str | None, view: View) -> FabricError:
    seen = sites_seen(view.names)
    if site is not None:
        near = near_name(site, view.names)
        hint = f"did you mean {endpoint}?site={near}" if near else "check the name, and start the site"
        return SiteUnreachableError(f"there is no site {site!r} behind {endpoint}; {seen}", hint)
    if not view.names:
        return SiteUnreachableError(
            f"{endpoint} is not a site, and no site is reachable from it",
            "start one there: headrace serve; or check your access rights",
        )
    names = sorted(view.nearest() or view.names)
    what = "is not a site" if not view.nearest() else f"has {len(names)} sites"
    return FabricError(f"{endpoint} {what}; {seen}", f"name the site: {endpoint}?site={names[0]}")


# --- what both searches say -------------------------------------------------------------------------


class Conflict:
    """Two sites of one name: an error at once if we have a link to both, otherwise if both stay."""

    def __init__(self) -> None:
        self._since: float | None = None

    def check(self, site: str, found: dict[str, str], linked: set[str], now: float, until: float) -> None:
        """`found` has the endpoints through which sites of that name are seen, by the ids of their sessions; `linked`
        has those ids that are neighbours of ours.
        """
        if len(found) < 2:
            self._since = None
            return
        self._since = self._since or now
        if len(linked) > 1 or now - self._since >= _LEFTOVER_S or now >= until:
            both = " and ".join(f"session {zid} through {endpoint}" for zid, endpoint in sorted(found.items())[:4])
            raise FabricError(
                f"{len(found)} sites are called {site!r}: {both}",
                "stop one of them, or give it another name: its products would be taken for those of the other",
            )


class Notice:
    """One warning, when it takes longer than a moment."""

    def __init__(self, whom: str, until: float) -> None:
        self._whom, self._until, self._due = whom, until, time.monotonic() + _NOTICE_S

    def look(self, now: float, told: str, until: float | None = None) -> None:
        """Warn if it is time; `until` is an earlier end, as far as is known now."""
        if self._due <= now < self._until:
            self._due = self._until
            left_s = (self._until if until is None else min(until, self._until)) - now
            log.warning("waiting for %s, for up to %s; %s", self._whom, format_age(left_s), told)


def sites_seen(names: set[str]) -> str:
    if not names:
        return "no site is reachable"
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"reachable sites: {', '.join(sorted(names)[:_NAMES_MAX])}{more}"


def differs_in_case(site: str, names: Iterable[str]) -> bool:
    """Whether a site has this name, but for the case of its letters. Nobody has two such sites."""
    return site not in names and site.casefold() in {name.casefold() for name in names}


def near_name(site: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    by_folded = {name.casefold(): name for name in sorted(names)}
    found = difflib.get_close_matches(site.casefold(), by_folded, 1)
    return by_folded[found[0]] if found else None


def pause_s(turn: int) -> float:
    return _PAUSES_S[min(turn, len(_PAUSES_S) - 1)]
