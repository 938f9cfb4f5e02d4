"""Watch: looks for the problems of a running site once a second, and logs each of them once.

A problem that lasts is logged when it has lasted for some seconds, again when its words change, and once more when it
is over. If only its numbers change, such as by how much a time server is wrong, it is logged again once an hour. One
that has happened is logged at once, and again, if it goes on, once a minute with the new numbers. The list itself
(problems.py) is also part of the site's description.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import zenoh

from headrace.guard import GuardedThread, counted
from headrace.link.presence import sites_present
from headrace.link.reach import Reach, Unlinked
from headrace.link.session import SessionTerms
from headrace.relay.messages.description import Problem
from headrace.site.memory import MemoryWatch

_LOOK_S = 1.0
_LASTS_S = 3.0  # before it is logged
_AGAIN_S = 60.0
_MEASURED_S = 3600.0  # if only numbers have changed
_NAMESAKES_MAX = 4  # in a message
_LOGGED = ("lost", "too large")  # each product or range is logged where it is found
_NUMBER = re.compile(r"[+-]?\d[\d.,]*")

log = logging.getLogger("headrace.site")
FindProblems = Callable[[Sequence[Problem]], Sequence[Problem]]  # those of the links are given
Key = tuple[str, str]  # kind and subject


@dataclass(slots=True)
class _Seen:
    first: float
    logged: float = 0.0
    text: str = ""


class Watch:
    """Looks from the moment it is made until `close`. Without `terms`, links are not compared with anything."""

    def __init__(
        self, session: zenoh.Session, name: str, terms: SessionTerms | None, find: FindProblems,
        save: Callable[[], None],
    ) -> None:  # fmt: skip
        """`name` is that of the site. `save` is called at every look: it writes down how far the requests are."""
        self._session, self._name = session, name
        self._reach = None if terms is None else Reach(session, terms)
        self._find, self._save = find, save
        self._memory = MemoryWatch()
        self._seen: dict[Key, _Seen] = {}
        self.links: tuple[Problem, ...] = ()  # also of the sites that they lead to
        self._stopped = threading.Event()
        self._thread = GuardedThread(self._run, "headrace-watch", until=self._stopped.is_set)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            with counted("headrace-watch"):  # whatever it is, the next look may succeed
                unlinked = self._reach.look() if self._reach is not None else ()
                self.links = (*map(_link_problem, unlinked), *_namesakes(self._session, self._name))
                self.note(self._find(self.links), time.monotonic())
                self._save()
                self._memory.look(time.monotonic())

    def note(self, problems: Sequence[Problem], now: float) -> None:
        """Log what is new, what has changed and what is over."""
        found = {(problem.kind, problem.subject): problem for problem in problems if problem.kind not in _LOGGED}
        for key, problem in found.items():
            self._note_one(problem, self._seen.setdefault(key, _Seen(now)), now)
        for key in [key for key in self._seen if key not in found]:
            known = self._seen.pop(key)
            if known.text:
                log.info("solved: %s", known.text)

    def _note_one(self, problem: Problem, known: _Seen, now: float) -> None:
        if problem.text == known.text:
            return
        if now - (known.logged if known.text else known.first) >= _pause_s(problem, known.text):
            known.logged, known.text = now, problem.text
            log.warning("%s (%s)", problem.text, problem.remedy)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()


def _pause_s(problem: Problem, logged: str) -> float:
    """How long after the last time a problem may be logged; `logged` is what was said then, if anything."""
    if problem.age_s:
        return _AGAIN_S if logged else 0.0
    if not logged:
        return _LASTS_S
    return _MEASURED_S if _NUMBER.sub("", problem.text) == _NUMBER.sub("", logged) else 0.0


def _link_problem(unlinked: Unlinked) -> Problem:
    text = f"no link to {unlinked.endpoint}: {unlinked.reason}"
    return Problem("link", unlinked.endpoint, text, unlinked.remedy)


def _namesakes(session: zenoh.Session, name: str) -> tuple[Problem, ...]:
    """Other sessions with the name of this site: when it started there were none, or no link to them yet."""
    others = sorted(set(sites_present(session, name)) - {str(session.zid())})
    if not others:
        return ()
    text = f"another site is called {name}, too: session {', '.join(others[:_NAMESAKES_MAX])}"
    remedy = f"stop it, or give it another name: clients that look for {name} are refused"
    return (Problem("name", name, text, remedy),)
