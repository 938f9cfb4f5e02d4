"""Search: a session in which a site is present, by the name of the site.

Every candidate is tried at the same time, each with a session and a thread of its own, so that one that does not answer
holds up none of the others:

    HEADRACE_SITES, contexts, or `through` ──┐
    answers to multicast, as they arrive ────┴──► looks, each with a session ──► ids of sessions that have the name

The first look that sees the name does not end the search at once: candidates that answer within half a second are
compared with it, so that two sites of one name are noticed, also if no link leads from one to the other.

A thread cannot be interrupted while Zenoh opens a session. So an attempt is short, and the threads are no daemons: the
interpreter waits for the last attempts, because Zenoh must not return into an interpreter that is ending.
"""

import logging
import math
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

import zenoh

from headrace.errors import FabricError, HeadraceError, SiteUnreachableError
from headrace.link.credentials import TlsTerms, UserTerms, principal_of
from headrace.link.diagnosis import all_refuse, soonest_first
from headrace.link.known import CANDIDATES_MAX, Candidate
from headrace.link.scouting import Nearby, scouted, usable
from headrace.link.session import SessionTerms, open_session
from headrace.remote.client.find import LOOK_S_MIN, Conflict, Found, Notice, View, find_at, pause_s, sites_seen, view_of
from headrace.units import format_age

_TOGETHER_S = 0.5  # for answers to multicast, and for candidates that are slower than the first
_SETTLED_S = 0.25  # for the tokens to arrive at a session that has just been opened
_ATTEMPT_S = 2.0  # to open a session; longer at the second time
_DENIED_S = 3.0  # for a site that is just loading other credentials
_WAKE_S = 0.05
_TOLD_MAX = 8  # candidates in a message

log = logging.getLogger("headrace.link")


def find_named(
    site: str, candidates: Iterable[Candidate], tls: TlsTerms | None, user: UserTerms | None, patience_s: float,
    refused_s: float | None, *, scouts: bool = True,
) -> Found:  # fmt: skip
    """The site called `site`, through any of the candidates or, with `scouts`, through any session that answers.

    SiteUnreachableError: there is none within the time, or nothing is reachable for `refused_s`; it says where was
    looked, and what was seen. FabricError: two sites have the name, or no candidate accepts the credentials.
    """
    search = _Search(site, tls, user, time.monotonic() + patience_s, refused_s)
    try:
        if not scouts:
            return _with_all_paths(search, search.run(candidates))
        with scouted(search.hear) as group:
            search.scouts, search.group = True, group
            looks = search.run(candidates)
        return _with_all_paths(search, looks)
    finally:
        search.is_over.set()


def _with_all_paths(search: "_Search", looks: "list[_Look]") -> Found:
    """A session that Zenoh restores through any of the endpoints at which the site was seen, the best first."""
    best = looks[0]
    same = [look for look in looks if look.candidate.login == best.candidate.login]
    log.info("site %s is reached through %s", search.site, " or ".join(str(look.candidate) for look in same))
    if len(same) > 1:
        endpoints = tuple(look.endpoint for look in same)
        with suppress(FabricError):  # a path has just ended: the session of the best look is as good
            return find_at(best.terms(endpoints, _ATTEMPT_S), search.site)._replace(endpoint=best.endpoint)
    search.kept = best
    assert best.session is not None  # it has seen the site
    return Found(best.session, best.endpoint, search.site, best.principal)


class _Search:
    """The looks of one search. The thread that searches decides, at every change."""

    def __init__(
        self, site: str, tls: TlsTerms | None, user: UserTerms | None, until: float, refused_s: float | None
    ) -> None:
        self.site, self.tls, self.user, self.until = site, tls, user, until
        self.begun, self._refused_s = time.monotonic(), refused_s
        self.scouts = False  # by multicast
        self.group: str | None = None  # of multicast; None: it is off
        self.changed = threading.Condition()
        self.is_over = threading.Event()
        self.kept: _Look | None = None
        self._looks: list[_Look] = []
        self._heard: dict[str, Nearby] = {}
        self._begun_with: set[str] = set()  # ids of sessions that were heard
        self._first_seen: float | None = None
        self._conflict = Conflict()
        self._notice = Notice(f"site {site}", until)

    def hear(self, nearby: Nearby) -> None:
        """An answer to multicast; runs on a thread of Zenoh's."""
        with self.changed:
            if len(self._heard) < CANDIDATES_MAX:
                self._heard.setdefault(nearby.zid, nearby)
            self.changed.notify()

    def run(self, candidates: Iterable[Candidate]) -> "list[_Look]":
        """The looks that have found the site, the best first."""
        for candidate in candidates:
            self._begin(candidate)
        while True:
            with self.changed:
                looks = self._decide(time.monotonic())
                if looks:
                    return looks
                self._begin_with_heard()
                self.changed.wait(_WAKE_S)

    def _begin(self, candidate: Candidate) -> None:
        self._looks.append(_Look(self, candidate))
        self._looks[-1].start()

    def _begin_with_heard(self) -> None:
        for zid, nearby in self._heard.items():
            endpoints = usable(nearby.endpoints, self.tls is not None)
            is_linked = any(zid in look.view.neighbours for look in self._looks)
            if zid in self._begun_with or is_linked or not endpoints or len(self._looks) >= 2 * CANDIDATES_MAX:
                continue
            self._begun_with.add(zid)
            self._begin(Candidate(endpoints, "multicast"))

    def _decide(self, now: float) -> "list[_Look]":
        """The looks that have found the site; none: not yet. Raises if it will not be found."""
        seen = {zid: look for look in reversed(self._looks) for zid in look.view.ids(self.site)}
        linked = {zid for zid in seen if any(zid in look.view.neighbours for look in self._looks)}
        self._conflict.check(self.site, {zid: look.where for zid, look in seen.items()}, linked, now, self.until)
        if len(seen) == 1:
            self._first_seen = self._first_seen or now
            if self._are_together(now, self._first_seen):
                (zid,) = seen
                looks = [look for look in self._looks if zid in look.view.ids(self.site)]
                return sorted(looks, key=lambda look: zid not in look.view.neighbours)  # a direct link is best
        elif now >= min(self.until, self._hopeless_at()):
            raise self._not_found(now)
        self._notice.look(now, self._told(), self._hopeless_at())
        return []

    def _are_together(self, now: float, first: float) -> bool:
        """Whether all that may know another site of that name have had their time."""
        may_hear_more = self.group is not None and now < self.begun + _TOGETHER_S
        return now >= max(first, self.begun) + _TOGETHER_S or (
            not may_hear_more and all(look.is_settled for look in self._looks)
        )

    def _hopeless_at(self) -> float:
        """When to give up early: everything that is known refuses our credentials, or nothing listens there."""
        if self._looks and all(look.is_denied for look in self._looks):
            return self.begun + _DENIED_S
        if self._refused_s is None or not all(look.is_denied or look.is_refused for look in self._looks):
            return math.inf
        return self.begun + max(self._refused_s, _TOGETHER_S)

    def _told(self) -> str:
        told = [look.told() for look in self._looks[:_TOLD_MAX]]
        if len(self._looks) > _TOLD_MAX:
            names = {name for look in self._looks for name in look.view.names}
            told.append(f"{len(self._looks) - _TOLD_MAX} more; in all of them, {sites_seen(names)}")
        if self.group is not None:
            told.append(f"multicast {self.group}: {self._answers()}")
        elif told and self.scouts:
            told.append("multicast is off")
        return "; ".join(told) or "nothing: no endpoint is known, and multicast is off"

    def _answers(self) -> str:
        if not self._heard:
            return "no answer"
        others = [each for each in self._heard.values() if not usable(each.endpoints, self.tls is not None)]
        why = "no endpoint with tls or quic" if self.tls is not None else "no endpoint without certificates"
        return f"{len(self._heard)} answered" + (f", {len(others)} of them with {why}" if others else "")

    def _not_found(self, now: float) -> FabricError:
        is_denied = bool(self._looks) and all(look.is_denied for look in self._looks)
        kind = FabricError if is_denied else SiteUnreachableError
        return kind(
            f"no site {self.site!r} was found within {format_age(now - self.begun)}; looked at {self._told()}",
            f"check the name; or give an endpoint: tcp/HOST:7447?site={self.site}, or HEADRACE_SITES=tcp/HOST:7447",
        )


class _Look(threading.Thread):
    """One candidate: connects to it, again and again, and sees which sites are there. The search reads its state."""

    def __init__(self, search: _Search, candidate: Candidate) -> None:
        super().__init__(name=f"headrace-find-{candidate.endpoints[0]}")
        self.candidate, self._search = candidate, search
        self.endpoint = candidate.endpoints[0]  # or the one that was reached
        self.session: zenoh.Session | None = None
        self.principal: str | None = None
        self.view = View()
        self.reason: HeadraceError | None = None  # why there is no session
        self.is_settled = False  # what it says will not change within a moment
        self.is_refused = False  # nothing listens there
        self.is_denied = False  # it does not accept who we are
        self._opened = 0.0

    @property
    def where(self) -> str:
        return " or ".join(self.candidate.endpoints)

    def run(self) -> None:
        turn = 0
        try:
            while not self._search.is_over.wait(pause_s(turn - 1) if turn else 0):
                self._look(turn)
                turn += 1
        finally:
            if self.session is not None and self._search.kept is not self:
                self.session.close()  # type: ignore[no-untyped-call]

    def _look(self, turn: int) -> None:
        try:
            if self.session is None:
                session, self.principal = self._open(turn)
                self.session, self._opened = session, time.monotonic()
            view = view_of(self.session)
        except (HeadraceError, zenoh.ZError) as told:
            error = told if isinstance(told, HeadraceError) else FabricError(f"the session failed: {told}")
            self._note(View(), error, True, all_refuse(self.candidate.endpoints))
        else:
            is_settled = bool(view.sites) or time.monotonic() - self._opened >= _SETTLED_S
            self._note(view, None, is_settled)

    def _open(self, turn: int) -> tuple[zenoh.Session, str | None]:
        endpoints = self.candidate.endpoints
        if len(endpoints) > 1:
            endpoints = soonest_first(endpoints)
        left_s = max(self._search.until - time.monotonic(), LOOK_S_MIN)
        terms = self.terms(endpoints, min(left_s, _ATTEMPT_S if turn == 0 else 2 * _ATTEMPT_S))
        session = open_session(terms)
        self.endpoint = endpoints[0]
        return session, principal_of(terms.tls, terms.user)

    def terms(self, endpoints: tuple[str, ...], timeout_s: float) -> SessionTerms:
        """Terms of a client, with the credentials of this candidate."""
        login = self.candidate.login
        tls, user = (self._search.tls, self._search.user) if login is None else login.read()
        return SessionTerms("client", connect=endpoints, tls=tls, user=user, timeout_s=timeout_s, refused_s=0)

    def _note(self, view: View, reason: HeadraceError | None, is_settled: bool, is_refused: bool = False) -> None:
        with self._search.changed:
            self.view, self.reason, self.is_refused = view, reason, is_refused
            self.is_denied = reason is not None and not isinstance(reason, SiteUnreachableError)
            self.is_settled = self.is_settled or is_settled
            self._search.changed.notify()

    def told(self) -> str:
        """What became of this candidate."""
        if self.reason is not None:
            return f"{self.candidate}: {self.reason.problem.removeprefix(f'cannot connect to {self.where}: ')}"
        return f"{self.candidate}: {sites_seen(self.view.names) if self.session is not None else 'no answer yet'}"
