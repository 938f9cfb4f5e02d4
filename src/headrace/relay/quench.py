"""Quench: which feeds have subscribers elsewhere, saved beside the queue for the programs that put products.

A subscriber of a stream shows itself by a liveliness token. Once a second the site reads these tokens, and saves their
feed patterns if they have changed (queue/demand.py). Remote readers of the queue count as well. A pattern without
subscribers is kept with the time at which that was noticed, also over a restart.

Zenoh's admin space lists the subscriptions themselves. But it holds a lock while it replies, so a router that is
queried there while anything is declared hangs forever.
"""

import logging
import threading
from collections.abc import Callable

import zenoh

from headrace.errors import FeedError, HeadraceError, QueueMovedError
from headrace.guard import GuardedThread
from headrace.link.keys import OWN, listening_key
from headrace.product.feed import FeedPattern
from headrace.queue import Queue
from headrace.queue.demand import LINGER_S, read_wanted, write_wanted
from headrace.queue.queue import log_of
from headrace.relay.send import Streams

PATTERNS_MAX = 10_000  # if there are more, all feeds count as wanted
EVERYTHING = "**"
_LOOK_S = 1.0
_REPLY_S = 2.0

Patterns = Callable[[], set[str]]

log = logging.getLogger("headrace.fabric")


class Quench:
    """Watches the subscribers of one site from the moment it is made until `close`."""

    def __init__(self, session: zenoh.Session, streams: Streams, queue: Queue, site: str, read: Patterns = set) -> None:
        """`read` returns the feed patterns of remote readers of the queue."""
        self._session, self._streams, self._queue, self._site = session, streams, queue, site
        self._read = read
        before = read_wanted(queue.path)
        now_ns = log_of(self._queue).now_ns()
        self._last = {pattern: last or now_ns for pattern, last in before.patterns.items()} if before else {}
        self._noted: dict[str, int] | None = None
        self._look_once()
        self._stopped = threading.Event()
        self._thread = GuardedThread(self._run, "headrace-quench", until=self._stopped.is_set)
        self._thread.start()

    @property
    def patterns(self) -> list[str]:
        """The feed patterns that have subscribers now."""
        return sorted(pattern for pattern, last_ns in self._last.copy().items() if not last_ns)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self._look_once()

    def _look_once(self) -> None:
        try:
            self._last = self._remembered(self._listened() | self._read(), log_of(self._queue).now_ns())
            self._note()
        except QueueMovedError:
            pass  # a problem of the site; it is tried again at the next look
        except (zenoh.ZError, OSError) as error:
            log.error("the feeds with subscribers are not saved: %s", error)

    def _remembered(self, listened: set[str], now_ns: int) -> dict[str, int]:
        """Patterns with subscribers, and patterns that had some not long ago; everything if there are too many."""
        gone = {pattern: last_ns or now_ns for pattern, last_ns in self._last.items() if pattern not in listened}
        recent = {pattern: last_ns for pattern, last_ns in gone.items() if now_ns - last_ns < LINGER_S * 1e9}
        if len(listened) + len(recent) > PATTERNS_MAX:
            return {EVERYTHING: 0 if listened else now_ns}
        return dict.fromkeys(sorted(listened), 0) | recent

    def _note(self) -> None:
        if self._last != self._noted:
            log_of(self._queue).check_open()  # where a moved queue was, nothing is created
            write_wanted(self._queue.path, self._last)
            self._noted = self._last

    def _listened(self) -> set[str]:
        found: set[str] = set()
        for reply in self._session.liveliness().get(listening_key(self._site, "*", EVERYTHING), timeout=_REPLY_S):
            if reply.ok is not None:
                found.update(self._patterns_in(str(reply.ok.key_expr)))
        return found if len(found) <= PATTERNS_MAX else {EVERYTHING}

    def _patterns_in(self, key: str) -> list[str]:
        """The feed pattern in a subscriber's token; empty if it wants nothing that is put here."""
        levels = key.split("/", 5)
        if len(levels) < 6 or "*" in levels[4]:
            return [EVERYTHING]
        if levels[4] == OWN:
            return [_checked(levels[5])]
        stream = next((stream for stream in self._streams.all() if stream.name == levels[4]), None)
        if stream is None or not stream.selection.wants_origin(self._site):
            return []
        return [stream.selection.feed or EVERYTHING]

    def close(self) -> None:
        """Stop, and save that all patterns had subscribers until now."""
        self._stopped.set()
        self._thread.join()
        try:
            self._last = self._remembered(set(), log_of(self._queue).now_ns())
            self._note()
        except (HeadraceError, OSError) as error:
            log.error("the feeds with subscribers are not saved: %s", error)


def _checked(pattern: str) -> str:
    """The pattern of a token; everything if it is invalid, because any client can declare any token."""
    try:
        return FeedPattern(pattern).text
    except FeedError:
        return EVERYTHING
