"""Streams: all that a site sends out, and the two threads that do it.

One thread sleeps until something is put and lets every stream advance; the other makes them beat. The stream `own` is
always there. A stream with conditions is made when somebody asks for it, is shared by all who ask for the same, and
ends when nobody has listened for a minute.
"""

import hashlib
import logging
import threading
import time

import zenoh

from headrace.errors import FabricError, HeadraceError
from headrace.link.keys import OWN
from headrace.queue import Queue
from headrace.relay.beat import INTERVAL_S
from headrace.relay.stream import Stream
from headrace.selection import Selection

STREAMS_MAX = 256
_IDLE_S = 60.0
_APART_S = 0.0005  # between pages that follow each other: those who receive a page take about as long
_GRACE_S = 5.0  # to begin to listen, if others wait for room

log = logging.getLogger("headrace.fabric")


def stream_name(selection: Selection) -> str:
    """The same selection has the same stream, whoever asks for it."""
    return hashlib.blake2b(str(selection).encode(), digest_size=8).hexdigest()


class Streams:
    """Sends from the moment it is made until `close`."""

    def __init__(self, session: zenoh.Session, queue: Queue, site: str, beat_s: float = INTERVAL_S) -> None:
        self._session, self._queue, self._site, self._beat_s = session, queue, site, beat_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._streams = {OWN: Stream(session, queue, site, OWN, Selection(origin=site))}
        self._wanted: dict[str, float] = {}  # when somebody last listened
        self._waiter = queue.follow(queue.next)
        self._threads = [threading.Thread(target=target, name=f"headrace-{target.__name__.strip('_')}")
                         for target in (self._send, self._beat)]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def listen(self, selection: Selection) -> str:
        """The name of the stream of this selection, which is made if need be."""
        if selection.every != 1 or selection.function is not None:
            raise FabricError(
                "a stream cannot have `every` or a function, which depend on who counts",
                "use them at a station of your own queue",
            )
        name = stream_name(selection)
        with self._lock:
            if name not in self._streams:
                if len(self._streams) >= STREAMS_MAX:
                    self._end_unheard(_GRACE_S)
                if len(self._streams) >= STREAMS_MAX:
                    raise FabricError(
                        f"site {self._site} has {STREAMS_MAX} streams already", "ask for fewer selections"
                    )
                self._streams[name] = Stream(self._session, self._queue, self._site, name, selection)
            self._wanted[name] = time.monotonic()
        return name

    def is_wanted(self, feed: str) -> bool:
        """Does anybody listen to what is put here under this feed?"""
        for stream in self.all():
            if stream.name == OWN:
                wanted = stream.is_wanted_feed(feed)
            else:
                mine = stream.selection.wants_feed(feed) and stream.selection.wants_origin(self._site)
                wanted = mine and stream.is_wanted()
            if wanted:
                return True
        return False

    def all(self) -> list[Stream]:
        with self._lock:
            return list(self._streams.values())

    def _send(self) -> None:
        """A product that comes while the streams advance makes the sleep end at once.

        What comes within a moment of the last time waits for the rest of that moment, and goes out together.
        """
        while not self._stopped.is_set():
            self._waiter.position = self._queue.next
            for stream in self.all():
                self._advance(stream)
            due = time.monotonic() + _APART_S
            self._waiter.wait(1.0)
            time.sleep(max(0.0, due - time.monotonic()))

    def _advance(self, stream: Stream) -> None:
        try:
            stream.advance()
        except (HeadraceError, zenoh.ZError, OSError) as error:
            if not self._stopped.is_set():
                log.error("stream %s: %s", stream.name, error)
                self._stopped.wait(0.5)

    def _beat(self) -> None:
        while not self._stopped.wait(self._beat_s):
            for stream in self.all():
                try:
                    stream.beat()
                except zenoh.ZError as error:
                    log.error("stream %s: %s", stream.name, error)
            with self._lock:
                self._end_unheard(_IDLE_S)

    def _end_unheard(self, idle_s: float) -> None:
        now = time.monotonic()
        for name, stream in list(self._streams.items()):
            if name == OWN or stream.is_wanted():
                self._wanted[name] = now
            elif now - self._wanted[name] > idle_s:
                self._streams.pop(name).close()
                del self._wanted[name]

    def close(self) -> None:
        self._stopped.set()
        self._waiter.stop()
        for thread in self._threads:
            thread.join()
        for stream in self.all():
            stream.close()
