"""SitesSeen: which sites are present, by the tokens that they declare; a state machine without threads.

    headrace/site/<site>/<session>              the site is present
    headrace/site/<site>/<session>/<digest>     and this is a digest of the feeds that it offers
    headrace/site/<site>/<session>/leaving      and it is about to stop

A site declares `leaving` before it withdraws its token; a site that dies does not. A token that disappears otherwise
may return at once, because all tokens are declared again when a router joins (link/declarations.py): only after
`SETTLE_S` the site is lost. Any client can declare any token, if there are no access rules, so names and their number
are checked. Several sessions of one name are several sites, as far as anybody can know: two were given one name, or a
site was restarted and its old link has not timed out yet. Only a session that appears after the token of another has
disappeared is known to be its successor.
"""

import re
import threading
from dataclasses import dataclass

from headrace.link.keys import LEAVING
from headrace.product.put import is_origin
from headrace.queue.members import End

SESSIONS_MAX = 2048
SETTLE_S = 1.0
DOUBT_S = 3.0  # for a token to be seen again, after a new subscription
_ID = re.compile("[0-9a-f]{1,32}")


@dataclass(slots=True)
class _Session:
    """One token; `gone_at` is when it counts as gone, None while it is there."""

    is_known: bool = False  # its token was seen, not only what belongs to it
    gone_at: float | None = None
    is_leaving: bool = False
    is_replaced: bool = False  # its token had disappeared when a successor came
    digest: str = ""


class SitesSeen:
    """Tokens arrive on Zenoh's threads; one thread reads. `own` is the session that looks, which is left out."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._sessions: dict[tuple[str, str], _Session] = {}  # by site and session
        self._ends: dict[tuple[str, str], End] = {}
        self._lock = threading.Lock()
        self.refused = 0  # tokens that are invalid, or too many

    def see(self, key: str, is_there: bool, now: float) -> None:
        """A token was declared or withdrawn."""
        levels = key.split("/")
        if len(levels) not in (4, 5) or not is_origin(levels[2]) or not _ID.fullmatch(levels[3]):
            self.refused += 1
            return
        if levels[3] == self._own:
            return
        with self._lock:
            session = self._find(levels[2], levels[3], is_there)
            if session is None:
                return
            if len(levels) == 4:
                if is_there and not session.is_known:
                    self._replace(levels[2])
                session.is_known = session.is_known or is_there
                session.is_replaced = session.is_replaced and not is_there
                session.gone_at = None if is_there else now if session.is_leaving else now + SETTLE_S
            elif levels[4] == LEAVING:
                session.is_leaving = session.is_leaving or is_there
                session.gone_at = session.gone_at and now  # the two may arrive in any order
            elif is_there and _ID.fullmatch(levels[4]):
                session.digest = levels[4]
            if not is_there and not session.is_known:
                del self._sessions[levels[2], levels[3]]

    def _find(self, site: str, session: str, is_there: bool) -> _Session | None:
        found = self._sessions.get((site, session))
        if found is None and is_there:
            if len(self._sessions) >= SESSIONS_MAX:
                self.refused += 1
                return None
            found = self._sessions[site, session] = _Session()
        return found

    def _replace(self, site: str) -> None:
        """A session has come: those of the same site that are disappearing have a successor."""
        for (name, _), session in self._sessions.items():
            session.is_replaced = session.is_replaced or (name == site and session.gone_at is not None)

    def doubt(self, now: float) -> None:
        """After a new subscription: who is not seen again is gone."""
        with self._lock:
            for session in self._sessions.values():
                session.gone_at = session.gone_at or now + DOUBT_S

    def present(self, now: float) -> dict[tuple[str, str], str]:
        """The digest of each site that is present, by name and session."""
        with self._lock:
            self._settle(now)
            return {key: each.digest for key, each in self._sessions.items() if each.is_known and not each.is_replaced}

    def _settle(self, now: float) -> None:
        over = [key for key, each in self._sessions.items() if each.gone_at is not None and each.gone_at <= now]
        for name, zid in over:
            session = self._sessions.pop((name, zid))
            self._ends[name, zid] = End("site", name, zid, "stopped" if session.is_leaving else "lost")

    def end_of(self, site: str, session: str) -> End:
        """How a session ended, once; `lost` if that is unknown."""
        with self._lock:
            return self._ends.pop((site, session), None) or End("site", site, session, "lost")

    def forget_ends(self) -> None:
        """Forget how sessions ended that nobody asked about."""
        with self._lock:
            self._ends.clear()

    def due_s(self, now: float) -> float | None:
        """In how many seconds a token that disappeared counts as gone; None if there is none."""
        with self._lock:
            moments = [each.gone_at for each in self._sessions.values() if each.gone_at is not None]
        return max(0.0, min(moments) - now) if moments else None
