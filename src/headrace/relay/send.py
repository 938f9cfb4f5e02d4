"""The live path, sending side: all streams of a site (stream.py), and the two threads that serve them.

One thread publishes, and streams of different principals take turns (turns.py). Another one sends beats.

The stream `own` always exists and has everything that the site's own programs have put. Other streams are made for
requests with conditions, and for everybody who may not receive everything (audience.py): equal selections of one
audience share one stream, and a stream without subscribers ends after a minute. A principal has a quota of streams.

Not here: replies from the log (serve.py), and which feeds have subscribers (quench.py).
"""

import logging
import threading
import time

import zenoh

from headrace.errors import FabricError, HeadraceError
from headrace.guard import FAILURES, GuardedThread, counted
from headrace.link.keys import OWN
from headrace.link.quotas import QuotaTable, refused
from headrace.queue import Queue
from headrace.relay.audience import Audience
from headrace.relay.examine import TooLarge
from headrace.relay.messages.beat import INTERVAL_S
from headrace.relay.messages.page import Pack, records_of
from headrace.relay.stream import Stream, stream_name
from headrace.relay.turns import play_round
from headrace.selection import Selection

STREAMS_MAX = 1024
_IDLE_S = 60.0
_APART_S = 0.0005  # between two sendings: a receiver needs about as long for a page
_GRACE_S = 5.0  # to subscribe to a new stream while others wait for room
_SHARED = Audience()

log = logging.getLogger("headrace.fabric")


class Streams:
    """Publishes from the moment it is made until `close`."""

    def __init__(
        self, session: zenoh.Session, queue: Queue, site: str, beat_s: float = INTERVAL_S, *, started_ns: int = 0,
        too_large: TooLarge | None = None, quotas: QuotaTable | None = None, pack: Pack = records_of,
    ) -> None:  # fmt: skip
        """`started_ns` says in which run of the site this is; the site's log says the same. `pack` signs products.

        Without `quotas`, a principal may have all streams: where no rules say who asks, nobody is told apart.
        """
        self._session, self._queue, self._site, self._beat_s = session, queue, site, beat_s
        self._started_ns, self._too_large, self._quotas = started_ns, too_large or TooLarge(), quotas
        self._pack = pack
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._streams = {OWN: self._make(OWN, Selection(origin=site), _SHARED)}
        self._is_changed, self._grouped = True, list[list[Stream]]()
        self._subscribed: dict[str, float] = {}  # by stream: when it last had a subscriber
        self._waiter = queue.follow(queue.next)
        self._threads = [
            GuardedThread(run, name, until=self._stopped.is_set)
            for run, name in ((self._send, "headrace-send"), (self._beat, "headrace-beat"))
        ]
        for thread in self._threads:
            thread.start()

    def listen(self, selection: Selection, compresses: bool = False, audience: Audience = _SHARED) -> str:
        """Return the name of this selection's stream for an audience; make the stream if it does not exist.

        `compresses`: a stream whose pages are compressed for the link.

        Raises FabricError if the selection is unfit for a stream, or the site has STREAMS_MAX streams in use, and
        QuotaError if the principal has too many.
        """
        if selection.every != 1 or selection.function is not None:
            raise FabricError(
                "a stream's selection must not have `every` or a function: their result depends on the reader",
                "use them at a station of your own queue",
            )
        name = audience.stream(stream_name(selection, compresses))
        with self._lock:
            if name not in self._streams:
                self._check_room(audience)
                self._streams[name] = self._make(name, selection, audience, compresses)
                self._is_changed = True
            self._subscribed[name] = time.monotonic()
        return name

    def _check_room(self, audience: Audience) -> None:
        """End idle streams if there is no room for another one of this audience; refuse it if that is not enough."""
        if self._refusal(audience):
            self._end_idle(_GRACE_S)
        if refusal := self._refusal(audience):
            raise refusal

    def _refusal(self, audience: Audience) -> FabricError | None:
        if self._quotas is not None:
            made = sum(
                stream.audience.principal == audience.principal
                for name, stream in self._streams.items() if name != OWN
            )  # fmt: skip
            most = self._quotas.of(audience.principal).streams
            if made >= most:
                return refused("streams", most, audience.principal)
        if len(self._streams) >= STREAMS_MAX:
            return FabricError(f"site {self._site} has {STREAMS_MAX} streams, the maximum", "request fewer selections")
        return None

    def _make(self, name: str, selection: Selection, audience: Audience, compresses: bool = False) -> Stream:
        return Stream(
            self._session, self._queue, self._site, name, selection, started_ns=self._started_ns,
            interval_ms=round(1000 * self._beat_s), too_large=self._too_large, compresses=compresses, audience=audience,
            pack=self._pack,
        )  # fmt: skip

    def all(self) -> list[Stream]:
        with self._lock:
            return list(self._streams.values())

    def _send(self) -> None:
        """Publish, then sleep until something is put.

        A product that arrives while the streams advance ends the sleep at once. What arrives within a moment of the
        last sending waits for the rest of that moment, and is sent together.
        """
        while not self._stopped.is_set():
            self._waiter.position = self._queue.next
            while play_round(self._groups(), self._advance) and not self._stopped.is_set():
                pass
            due = time.monotonic() + _APART_S
            self._waiter.wait(1.0)
            time.sleep(max(0.0, due - time.monotonic()))

    def _groups(self) -> list[list[Stream]]:
        """The streams by whose they are; the site's own first. They change seldom, and this is asked at every put."""
        if self._is_changed:
            with self._lock:
                self._is_changed = False
                groups: dict[str | None, list[Stream]] = {}
                for stream in self._streams.values():
                    if stream.name != OWN:
                        groups.setdefault(stream.audience.principal, []).append(stream)
                self._grouped = [[self._streams[OWN]], *groups.values()]
        return self._grouped

    def _advance(self, stream: Stream) -> None:
        try:
            stream.step()
        except (HeadraceError, zenoh.ZError, OSError) as error:
            stream.pause(str(error))  # one of the site's problems, if it lasts
            if not self._stopped.is_set():
                log.debug("stream %s: %s", stream.name, error)
        except Exception as error:  # noqa: BLE001 the other streams must advance
            stream.pause(f"{type(error).__name__}: {error}")
            FAILURES.note("headrace-send", error)

    def _beat(self) -> None:
        while not self._stopped.wait(self._beat_s):
            for stream in self.all():
                with counted("headrace-beat"):  # the others must be heard of
                    try:
                        stream.beat()
                    except zenoh.ZError as error:
                        log.error("stream %s: %s", stream.name, error)
            try:
                with self._lock:
                    self._end_idle(_IDLE_S)
            except zenoh.ZError as error:
                log.error("idle streams are not ended: %s", error)

    def _end_idle(self, idle_s: float) -> None:
        now = time.monotonic()
        for name, stream in list(self._streams.items()):
            if name == OWN or stream.has_subscribers():
                self._subscribed[name] = now
            elif now - self._subscribed[name] > idle_s:
                del self._streams[name], self._subscribed[name]
                self._is_changed = True
                stream.close()

    def close(self) -> None:
        self._stopped.set()
        self._waiter.stop()
        for thread in self._threads:
            thread.join()
        for stream in self.all():
            stream.close()
