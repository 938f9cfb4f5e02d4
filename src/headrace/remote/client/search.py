"""Search: a session in which a site is present, by the name of the site.

Every candidate is tried at the same time, each with a session and a thread of its own, so that one that does not answer
holds up none of the others. Those that become known meanwhile, such as the socket of a site that starts, are tried too:

    HEADRACE_SITES, contexts, or `through` ──┐
    answers to multicast, as they arrive ────┴──► looks, each with a session ──► ids of sessions that have the name

The first look that sees the name does not end the search at once: candidates that answer within half a second are
compared with it, so that two sites of one name are noticed, also if no link leads from one to the other.

The search ends early if waiting changes nothing: every candidate refuses the credentials, or the credentials given are
invalid for it, or a site was seen whose name differs in case only.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from headrace.errors import FabricError, HeadraceError, OptionError, SiteUnreachableError
from headrace.link.credentials import TlsTerms, UserTerms, check_tls
from headrace.link.known import CANDIDATES_MAX, HERE, VARIABLE, Candidate
from headrace.link.scouting import Nearby, scouted, usable
from headrace.remote.client.find import Conflict, Found, Notice, differs_in_case, find_at, near_name, sites_seen
from headrace.remote.client.look import ATTEMPT_S, Look, Looking
from headrace.units import format_age

_TOGETHER_S = 0.5  # for answers to multicast, and for candidates that are slower than the first
_WAKE_S = 0.05
_KNOWN_S = 0.5  # between two looks for candidates that are new
_TOLD_MAX = 8  # candidates in a message
_REMEDIES_MAX = 3

log = logging.getLogger("headrace.link")


def find_named(
    site: str, known: Callable[[], Iterable[Candidate]], tls: TlsTerms | None, user: UserTerms | None,
    patience_s: float, refused_s: float | None, *, scouts: bool = True, looks_here: bool = False,
) -> Found:  # fmt: skip
    """The site called `site`, through any `known` candidate or, with `scouts`, through any session that answers.

    `looks_here`: the sockets of this machine are among those that are `known`, as soon as there is one.
    SiteUnreachableError: there is none within the time, or nothing is reachable for `refused_s`; it says where was
    looked, and what was seen. FabricError: two sites have the name, or no candidate accepts the credentials.
    OptionError: there is nowhere to look, or every candidate requires credentials that were not given.
    """
    if tls is not None:
        check_tls(tls)
    search = _Search(site, Looking(tls, user, time.monotonic() + patience_s), refused_s, looks_here)
    try:
        if not scouts:
            return _with_all_paths(search, search.run(known))
        with scouted(search.hear) as group:
            search.scouts, search.group = True, group
            looks = search.run(known)
        return _with_all_paths(search, looks)
    finally:
        search.looking.is_over.set()


def _with_all_paths(search: "_Search", looks: list[Look]) -> Found:
    """A session that Zenoh restores through any of the endpoints at which the site was seen, the best first."""
    best = looks[0]
    same = [look for look in looks if look.candidate.login == best.candidate.login and look.is_secure == best.is_secure]
    log.info("site %s is reached through %s", search.site, " or ".join(str(look.candidate) for look in same))
    if len(same) > 1:
        endpoints = tuple(look.endpoint for look in same)
        with suppress(FabricError):  # a path has just ended: the session of the best look is as good
            return find_at(best.terms(endpoints, ATTEMPT_S), search.site)._replace(endpoint=best.endpoint)
    best.is_kept = True
    assert best.session is not None  # it has seen the site
    return Found(best.session, best.endpoint, search.site, best.principal)


class _Search:
    """The looks of one search. The thread that searches decides, at every change."""

    def __init__(self, site: str, looking: Looking, refused_s: float | None, looks_here: bool) -> None:
        self.site, self.looking, self._looks_here = site, looking, looks_here
        self.begun, self._refused_s = time.monotonic(), refused_s
        self.scouts = False  # by multicast
        self.group: str | None = None  # of multicast; None: it is off
        self._looks: list[Look] = []
        self._known: set[Candidate] = set()  # those that are looked at
        self._heard: dict[str, Nearby] = {}
        self._begun_with: set[str] = set()  # ids of sessions that were heard
        self._first_seen: float | None = None
        self._conflict = Conflict()
        self._notice = Notice(f"site {site}", looking.until)

    def hear(self, nearby: Nearby) -> None:
        """An answer to multicast; runs on a thread of Zenoh's."""
        with self.looking.changed:
            if len(self._heard) < CANDIDATES_MAX:
                self._heard.setdefault(nearby.zid, nearby)
            self.looking.changed.notify()

    def run(self, known: Callable[[], Iterable[Candidate]]) -> list[Look]:
        """The looks that have found the site, the best first."""
        self._begin_with(known())
        known_at = self.begun
        if not self._looks and self.group is None and not self._looks_here:
            raise OptionError(
                f"there is nowhere to look for site {self.site!r}: no endpoint is known, and multicast is off",
                f"set {VARIABLE}=tcp/HOST:7447, or give an endpoint: tcp/HOST:7447?site={self.site}",
            )
        while True:
            with self.looking.changed:
                looks = self._decide(time.monotonic())
                if looks:
                    return looks
                self._begin_with_heard()
                self.looking.changed.wait(_WAKE_S)
            if time.monotonic() - known_at >= _KNOWN_S:
                self._begin_with(known())
                known_at = time.monotonic()

    def _begin_with(self, candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            if candidate not in self._known and len(self._known) < CANDIDATES_MAX:
                self._known.add(candidate)
                self._begin(candidate)

    def _begin(self, candidate: Candidate) -> None:
        self._looks.append(Look(self.looking, candidate))
        self._looks[-1].start()

    def _begin_with_heard(self) -> None:
        for zid, nearby in self._heard.items():
            endpoints = usable(nearby.endpoints, self.looking.tls is not None)
            is_linked = any(zid in look.view.neighbours for look in self._looks)
            if zid in self._begun_with or is_linked or not endpoints or len(self._looks) >= 2 * CANDIDATES_MAX:
                continue
            self._begun_with.add(zid)
            self._begin(Candidate(endpoints, "multicast"))

    def _decide(self, now: float) -> list[Look]:
        """The looks that have found the site; none: not yet. Raises if it will not be found."""
        seen = {zid: look for look in reversed(self._looks) for zid in look.view.ids(self.site)}
        linked = {zid for zid in seen if any(zid in look.view.neighbours for look in self._looks)}
        self._conflict.check(
            self.site, {zid: look.where for zid, look in seen.items()}, linked, now, self.looking.until
        )
        if len(seen) == 1:
            self._first_seen = self._first_seen or now
            if self._are_together(now, self._first_seen):
                (zid,) = seen
                looks = [look for look in self._looks if zid in look.view.ids(self.site)]
                return sorted(looks, key=lambda look: self._rank(look, zid))
        elif now >= min(self.looking.until, self._hopeless_at(now)):
            raise self._not_found(now)
        self._notice.look(now, self._told(), self._hopeless_at(now))
        return []

    def _rank(self, look: Look, zid: str) -> tuple[bool, bool]:
        """The lower, the better: an endpoint that can see our certificate, and a direct link."""
        return (self.looking.tls is not None and not look.is_secure, zid not in look.view.neighbours)

    def _are_together(self, now: float, first: float) -> bool:
        """Whether all that may know another site of that name have had their time."""
        return now >= max(first, self.begun) + _TOGETHER_S or (
            now >= self._heard_at() and all(look.is_settled for look in self._looks)
        )

    def _heard_at(self) -> float:
        """When all answers to multicast have probably arrived."""
        return self.begun + (_TOGETHER_S if self.group is not None else 0)

    def _hopeless_at(self, now: float) -> float:
        """When to give up early: waiting changes nothing, or nothing listens at any place that is known."""
        if self._looks and all(look.is_final for look in self._looks):
            return self._heard_at()
        if differs_in_case(self.site, self._names()) and self._are_together(now, self.begun):
            return now
        if self._refused_s is None or not all(look.is_final or look.is_refused for look in self._looks):
            return math.inf
        return self.begun + max(self._refused_s, _TOGETHER_S)

    def _names(self) -> set[str]:
        return {name for look in self._looks for name in look.view.names}

    def _told(self) -> str:
        told = [look.told() for look in self._looks[:_TOLD_MAX]]
        if len(self._looks) > _TOLD_MAX:
            told.append(f"{len(self._looks) - _TOLD_MAX} more; in all of them, {sites_seen(self._names())}")
        if self._looks_here and not any(look.candidate.source == HERE for look in self._looks):
            told.append("this machine: no socket of a site accepts this user")
        if self.group is not None:
            told.append(f"multicast {self.group}: {self._answers()}")
        elif told and self.scouts:
            told.append("multicast is off")
        return "; ".join(told)

    def _answers(self) -> str:
        if not self._heard:
            return "no answer"
        others = self._unusable()
        why = "no endpoint with tls or quic" if self.looking.tls is not None else "no endpoint without certificates"
        return f"{len(self._heard)} answered" + (f", {len(others)} of them with {why}" if others else "")

    def _unusable(self) -> list[Nearby]:
        has_tls = self.looking.tls is not None
        return [each for each in self._heard.values() if not usable(each.endpoints, has_tls)]

    def _not_found(self, now: float) -> HeadraceError:
        waited_s = now - self.begun
        within = f" within {format_age(waited_s)}" if waited_s >= _TOGETHER_S else ""
        return self._kind()(f"no site {self.site!r} was found{within}; looked at {self._told()}", self._remedy())

    def _kind(self) -> type[HeadraceError]:
        """That of the mistake, if waiting changes nothing."""
        if not self._looks or not all(look.is_final for look in self._looks):
            return SiteUnreachableError
        return OptionError if all(isinstance(look.reason, OptionError) for look in self._looks) else FabricError

    def _remedy(self) -> str:
        at = {remedy: look.where for look in self._looks if (remedy := look.remedy())}
        found = [f"at {where}, {remedy}" for remedy, where in at.items()] if len(self._looks) > 1 else list(at)
        if self._unusable() and self.looking.tls is None:
            found.append("give the authority, a certificate and a key")
        if self._names() or not found:
            found.insert(0, self._other_name())
        return "; ".join(found[:_REMEDIES_MAX])

    def _other_name(self) -> str:
        names = self._names()
        near = near_name(self.site, names)
        if near is None:
            where = f"tcp/HOST:7447?site={self.site}, or {VARIABLE}=tcp/HOST:7447"
            return f"check the name; or give an endpoint: {where}"
        is_case = differs_in_case(self.site, names)
        return f"write site:{near}: upper and lower case differ" if is_case else f"did you mean site:{near}?"
