"""Look: one candidate of a search, with a session and a thread of its own.

    ask whether anything answers ──► open a session ──► see which sites are there, again and again
              │ no                        │ refused, or a mistake of ours
              └──── reason ◄──────────────┘

Zenoh cannot be interrupted while it opens a session, and must not return into an interpreter that is ending, so the
threads are no daemons and a program waits for them at its end. Therefore a place is asked with a plain socket first
(link/answer.py): Zenoh only ever opens sessions to places that answer, which takes a moment.
"""

import threading
import time
from dataclasses import dataclass, field

import zenoh

from headrace.errors import HeadraceError, SiteUnreachableError
from headrace.link.answer import first_answer
from headrace.link.bearer import principal_at
from headrace.link.credentials import TlsTerms, UserTerms
from headrace.link.diagnosis import explain_connecting
from headrace.link.endpoint import SECURE
from headrace.link.keys import AT_SOCKET
from headrace.link.known import Candidate
from headrace.link.session import SessionTerms, open_session
from headrace.remote.client.find import LOOK_S_MIN, View, pause_s, sites_seen, view_of

ATTEMPT_S = 2.0  # for an answer, and to open a session; longer at the second time
_SETTLED_S = 0.25  # for the tokens to arrive at a session that has just been opened
_FINAL_S = 2.0  # before a place that refused us is tried again, if there are other places


@dataclass(frozen=True, slots=True)
class Looking:
    """What all looks of a search share. `changed` is notified when one of them knows more."""

    tls: TlsTerms | None
    user: UserTerms | None
    until: float
    changed: threading.Condition = field(default_factory=threading.Condition)
    is_over: threading.Event = field(default_factory=threading.Event)


class Look(threading.Thread):
    """Connects to a candidate, again and again, and sees which sites are there. The search reads its state."""

    def __init__(self, looking: Looking, candidate: Candidate) -> None:
        super().__init__(name=f"headrace-find-{candidate.endpoints[0]}")
        self.candidate, self._looking = candidate, looking
        self.endpoint = candidate.endpoints[0]  # or the one that was reached
        self.session: zenoh.Session | None = None
        self.principal: str | None = None
        self.view = View()
        self.reason: HeadraceError | None = None  # why there is no session
        self.is_settled = False  # what it says will not change within a moment
        self.is_refused = False  # nothing listens there
        self.is_kept = False  # the session is used when the search is over
        self._opened = 0.0

    @property
    def where(self) -> str:
        return " or ".join(self.candidate.endpoints)

    @property
    def is_secure(self) -> bool:
        return self.endpoint.partition("/")[0] in SECURE

    @property
    def is_final(self) -> bool:
        """It refuses our credentials, or ours are invalid: waiting changes nothing."""
        return self.reason is not None and not isinstance(self.reason, SiteUnreachableError)

    def run(self) -> None:
        turn = 0
        try:
            while not self._looking.is_over.wait(self._pause_s(turn)):
                self._look(turn)
                turn += 1
        finally:
            if self.session is not None and not self.is_kept:
                self.session.close()  # type: ignore[no-untyped-call]

    def _pause_s(self, turn: int) -> float:
        if turn == 0:
            return 0
        return _FINAL_S if self.is_final else pause_s(turn - 1)

    def _look(self, turn: int) -> None:
        try:
            if self.session is None:
                self._open(turn)
            if self.session is not None:
                view = view_of(self.session)
                self._note(view, None, bool(view.sites) or time.monotonic() - self._opened >= _SETTLED_S)
        except HeadraceError as error:
            self._note(View(), error, True)
        except zenoh.ZError as error:
            self._note(View(), SiteUnreachableError(f"the session failed: {error}", "connect again"), True)

    def _open(self, turn: int) -> None:
        """Open a session to the endpoint that answers first; without an answer, note why."""
        left_s = max(self._looking.until - time.monotonic(), LOOK_S_MIN)
        attempt_s = min(left_s, ATTEMPT_S if turn == 0 else 2 * ATTEMPT_S)
        terms = self.terms(self.candidate.endpoints, attempt_s)
        answer = first_answer(terms.connect, attempt_s, self._looking.is_over.is_set)
        if self._looking.is_over.is_set():
            return
        if answer.endpoint is None:
            is_known = self.reason is not None and self.is_refused == answer.is_refused  # finding out takes time
            reason = self.reason if is_known else explain_connecting(terms, is_silent=True)
            self._note(View(), reason, True, answer.is_refused)
            return
        terms = self.terms((answer.endpoint,), attempt_s)
        self.session, self.endpoint = open_session(terms), answer.endpoint
        self._opened, self.principal = time.monotonic(), principal_at(self.session, terms.tls, terms.user)

    def terms(self, endpoints: tuple[str, ...], timeout_s: float) -> SessionTerms:
        """Terms of a client, with the credentials of this candidate."""
        login = self.candidate.login
        tls, user = (self._looking.tls, self._looking.user) if login is None else login.read()
        return SessionTerms("client", connect=endpoints, tls=tls, user=user, timeout_s=timeout_s, refused_s=0)

    def _note(self, view: View, reason: HeadraceError | None, is_settled: bool, is_refused: bool = False) -> None:
        with self._looking.changed:
            self.view, self.reason, self.is_refused = view, reason, is_refused
            self.is_settled = self.is_settled or is_settled
            self._looking.changed.notify()

    # --- what became of it ------------------------------------------------------------------------

    def told(self) -> str:
        if self.reason is not None:
            problem = self.reason.problem
            for where in (self.where, *self.candidate.endpoints):
                problem = problem.removeprefix(f"cannot connect to {where}: ")
            return f"{self.candidate}: {problem}"
        if self.session is None:
            return f"{self.candidate}: no answer yet"
        if not self.view.names:
            return f"{self.candidate}: connected, but no site is visible to {self._bearer()}"
        return f"{self.candidate}: {sites_seen(self.view.names)}"

    def remedy(self) -> str | None:
        """What to do about this candidate; None: nothing, the cause is elsewhere."""
        if self.reason is not None:
            return None if self.is_refused else self.reason.hint
        if self.session is None or self.view.names:
            return None
        return f"check the access rules of the site: {self._bearer()} needs a rule; and that the site has started"

    def _bearer(self) -> str:
        if self.principal is not None and self.principal.startswith(AT_SOCKET):
            return "a program at its socket"
        return self.principal or "a client without a user and a certificate"
