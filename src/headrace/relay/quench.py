"""Quench: which feeds others listen to, noted beside the queue for those who put products there.

Whoever listens to a stream shows it by a token. Once a second these are looked at, and the patterns in them written
down if they have changed (queue/demand.py). Users who read the queue from elsewhere count as well. A pattern that
nobody wants any more is kept with the time at which that was noticed, over a restart too.

Zenoh's admin space would tell the subscriptions themselves; but it holds a lock while it answers, so that a router that
is asked while anything is declared stands still for ever.
"""

import logging
import threading
import time
from collections.abc import Callable

import zenoh

from headrace.errors import FeedError
from headrace.link.keys import OWN, listening_key
from headrace.product.feed import FeedPattern
from headrace.queue import Queue
from headrace.queue.demand import LINGER_S, read_wanted, write_wanted
from headrace.relay.send import Streams

PATTERNS_MAX = 10_000  # more are not told one by one
EVERYTHING = "**"
_LOOK_S = 1.0
_ANSWER_S = 2.0

Read = Callable[[], set[str]]

log = logging.getLogger("headrace.fabric")


class Quench:
    """Of one site; looks from the moment it is made until `close`."""

    def __init__(self, session: zenoh.Session, streams: Streams, queue: Queue, site: str, read: Read = set) -> None:
        """`read` tells the feed patterns that users from elsewhere read."""
        self._session, self._streams, self._queue, self._site = session, streams, queue, site
        self._read = read
        before = read_wanted(queue.path)
        now_ns = time.time_ns()
        self._last = {pattern: last or now_ns for pattern, last in before.patterns.items()} if before else {}
        self._noted: dict[str, int] | None = None
        self._look_once()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-quench")
        self._thread.start()

    @property
    def patterns(self) -> list[str]:
        """The feed patterns that somebody listens to now."""
        return sorted(pattern for pattern, last_ns in self._last.copy().items() if not last_ns)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self._look_once()

    def _look_once(self) -> None:
        try:
            self._last = self._remembered(self._listened() | self._read(), time.time_ns())
            self._note()
        except (zenoh.ZError, OSError) as error:
            log.error("what others want cannot be told: %s", error)

    def _remembered(self, listened: set[str], now_ns: int) -> dict[str, int]:
        """Those that are listened to, and those that were not long ago."""
        gone = {pattern: last_ns or now_ns for pattern, last_ns in self._last.items() if pattern not in listened}
        recent = {pattern: last_ns for pattern, last_ns in gone.items() if now_ns - last_ns < LINGER_S * 1e9}
        return dict.fromkeys(sorted(listened), 0) | recent

    def _note(self) -> None:
        if self._last != self._noted:
            write_wanted(self._queue.path, self._last)
            self._noted = self._last

    def _listened(self) -> set[str]:
        found: set[str] = set()
        for reply in self._session.liveliness().get(listening_key(self._site, "*", EVERYTHING), timeout=_ANSWER_S):
            if reply.ok is not None:
                found.update(self._patterns_in(str(reply.ok.key_expr)))
        return found if len(found) <= PATTERNS_MAX else {EVERYTHING}

    def _patterns_in(self, key: str) -> list[str]:
        """The feeds that somebody with this token listens to; no more than one pattern."""
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
        """What is listened to now will have been listened to until now."""
        self._stopped.set()
        self._thread.join()
        try:
            self._last = self._remembered(set(), time.time_ns())
            self._note()
        except OSError as error:
            log.error("what others want cannot be told: %s", error)


def _checked(pattern: str) -> str:
    """A stranger's token may have what is no feed pattern."""
    try:
        return FeedPattern(pattern).text
    except FeedError:
        return EVERYTHING
