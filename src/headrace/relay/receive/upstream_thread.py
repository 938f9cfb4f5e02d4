"""UpstreamThread: drives one upstream or standby with a thread, a Zenoh session, a live buffer and clients of logs.

It performs the actions of the state machine one after the other and does nothing else. `stop` ends it between two
actions, and never between a `Store` that has been performed and the move of the track that follows.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import zenoh
from zenoh.handlers import Callback

from headrace.errors import FabricMessageError
from headrace.guard import FAILURES, GuardedThread, guarded
from headrace.link.declarations import Declarations, Declared
from headrace.link.keys import beat_key, feed_of, listening_key, live_key
from headrace.payload.compression.link import ENCODING, unfolded
from headrace.relay.dictionaries import SiteDictionaries
from headrace.relay.messages.inventory import Identities
from headrace.relay.messages.page import PAGE_BYTES_MAX, Keep, Page
from headrace.relay.messages.query import Unreachable
from headrace.relay.receive.actions import (
    Action,
    Admit,
    Ask,
    FindMissing,
    ListHolders,
    LiveMessage,
    NextPage,
    OpenLive,
    Pause,
    ReadLog,
    Recognise,
    SaveProgress,
    ShutLive,
    Store,
    Subscribe,
    TakeLive,
)
from headrace.relay.receive.arrived import SequenceRange
from headrace.relay.receive.counts import UpstreamStatistics
from headrace.relay.receive.live_buffer import LiveBudget, LiveBuffer
from headrace.relay.receive.standby import Standby
from headrace.relay.receive.track import Known
from headrace.relay.receive.upstream import Upstream
from headrace.relay.site_client import SiteClient

_RESTART_S = 5.0  # after an unexpected error

log = logging.getLogger("headrace.fabric")


class Stopped(Exception):  # noqa: N818
    """Raised by a sink: the upstream is stopping. The page was not stored, and will be read again."""


class UpstreamThread:
    """Runs from `start` to `stop`.

    The callables: `store` returns when the page is in the queue, or raises Stopped; `find_missing` and `recognise` look
    into our queue; `admit` says which products of a page its sender may bring; `holders` lists the other sites that are
    present and may bring the origin's products; `save_progress` saves `known` of all upstreams;
    `now_ns` is the time of our site.
    """

    def __init__(
        self, upstream: Upstream | Standby, session: zenoh.Session, declarations: Declarations, *,
        store: Callable[[Page, Keep | None], None], find_missing: Callable[[int, int, int], SequenceRange],
        holders: Callable[[], list[str]], save_progress: Callable[[], int],
        recognise: Callable[[Identities], npt.NDArray[np.bool_]], admit: Callable[[Page], npt.NDArray[np.bool_]],
        principal: str | None = None,
        budget: LiveBudget | None = None, now_ns: Callable[[], int] = time.time_ns, compress: str = "",
        record_bytes: int = PAGE_BYTES_MAX,
    ) -> None:  # fmt: skip
        self.upstream, self._now_ns = upstream, now_ns
        self._session, self._declarations, self._principal = session, declarations, principal
        self._compress, self._record_bytes = compress, record_bytes
        self._buffer = LiveBuffer(upstream.statistics.dropped, budget)
        self._clients: dict[str, SiteClient] = {}
        self._dictionaries: dict[str, SiteDictionaries] = {}
        self._subscribers: list[Declared] = []
        self._stopped, self._appeared = threading.Event(), threading.Event()
        self._thread = GuardedThread(self._run, f"headrace-from-{upstream.site}", until=self._stopped.is_set)
        self._perform: dict[type[Action], Callable[[Any], Any]] = {
            Ask: lambda action: self._client(action.site).query(action.query, action.kind),
            ReadLog: self._read_log,
            NextPage: lambda action: next(action.reply, None),
            Subscribe: self._subscribe,
            OpenLive: lambda _: self._buffer.open(),
            ShutLive: lambda _: self._buffer.shut(),
            TakeLive: lambda action: [self._unfold(each) for each in self._buffer.take(action.timeout_s)],
            Store: lambda action: store(action.page, action.keep),
            Admit: lambda action: admit(action.page),
            Recognise: lambda action: recognise(action.products),
            FindMissing: lambda action: find_missing(action.first, action.last, action.since),
            ListHolders: lambda _: holders(),
            SaveProgress: lambda _: save_progress(),
            Pause: self._pause,
        }

    @property
    def site(self) -> str:
        return self.upstream.site

    @property
    def base(self) -> int:
        """Everything has arrived up to here, in sequences of the site's queue."""
        return self.upstream.known.base

    @property
    def behind(self) -> int:
        return self.upstream.behind

    @property
    def known(self) -> Known:
        return self.upstream.known

    @property
    def statistics(self) -> UpstreamStatistics:
        return self.upstream.statistics

    @property
    def stands_by(self) -> bool:
        """Whether another site serves the request: it only compares, or is ending."""
        return isinstance(self.upstream, Standby) or self._stopped.is_set()

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Ask it to end between two pages. That takes as long as a query that is on its way."""
        self._stopped.set()
        self._appeared.set()
        self._buffer.wake()

    def has_ended(self, within_s: float = 0.0) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End between two pages, and return when that has happened. Idempotent."""
        self.end()
        self._thread.join()

    def site_appeared(self) -> None:
        """End a pause: the site seems to be back."""
        self._appeared.set()

    def sleep(self, seconds: float) -> None:
        """For a sink that waits: sleep, but not longer than until `stop`."""
        self._stopped.wait(seconds)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._drive()
            except Stopped:
                break
            except Exception as error:  # noqa: BLE001 nothing that a site sends may end the thread
                FAILURES.note(self._thread.name, error)
                self.statistics.state, self.statistics.problem = "unreachable", repr(error)
                self._stopped.wait(_RESTART_S)
        self._unsubscribe()
        self._buffer.shut()

    def _drive(self) -> None:
        """Run the upstream until `stop`."""
        steps = self.upstream.run()
        try:
            action = next(steps)
            while not self._stopped.is_set():
                try:
                    outcome = self._perform[type(action)](action)
                except Stopped:
                    raise
                except zenoh.ZError as error:
                    action = steps.throw(Unreachable(str(error)))
                except Exception as error:  # noqa: BLE001 the upstream knows which of them it expects
                    action = steps.throw(error)
                else:
                    action = steps.send(outcome)
        finally:
            steps.close()

    def _client(self, site: str) -> SiteClient:
        if site not in self._clients:
            self._clients[site] = SiteClient(
                self._session, site, self._principal, compress=self._compress, count=self._count,
                record_bytes=self._record_bytes,
            )  # fmt: skip
        return self._clients[site]

    def dictionaries(self, site: str) -> SiteDictionaries:
        """Where the dictionaries of products are that a site has sent."""
        if site not in self._dictionaries:
            self._dictionaries[site] = SiteDictionaries(self._client(site))
        return self._dictionaries[site]

    def _count(self, wire_bytes: int, page_bytes: int) -> None:
        self.statistics.wire_bytes += wire_bytes
        self.statistics.page_bytes += page_bytes

    def _unfold(self, message: LiveMessage) -> LiveMessage:
        """A live message as it was before it was compressed. A damaged one stays as it is, and is refused as a page."""
        if message.feed is None:
            return message
        payload = message.payload
        if message.is_compressed:
            with suppress(FabricMessageError):
                payload = unfolded(payload, PAGE_BYTES_MAX, f"a page of site {self.site}")
        self._count(len(message.payload), len(payload))
        return replace(message, payload=payload) if message.is_compressed else message

    def _read_log(self, action: ReadLog) -> Iterator[Page]:
        client = self._client(action.site)
        return client.pages(action.selection, action.after, action.names, hurry=action.hurry, products=action.products)

    def _pause(self, action: Pause) -> None:
        self._appeared.wait(action.seconds)
        self._appeared.clear()

    def _subscribe(self, action: Subscribe) -> None:
        self._unsubscribe()
        live = live_key(self.site, action.stream, action.feeds)
        beat = beat_key(self.site, action.stream)
        listening = listening_key(self.site, action.stream, action.feeds)
        self._subscribers = [
            self._declarations.add(lambda: self._session.liveliness().declare_token(listening)),
            self._declarations.add(
                lambda: self._session.declare_subscriber(live, Callback(guarded(self._hear_page), indirect=False))
            ),
            self._declarations.add(
                lambda: self._session.declare_subscriber(beat, Callback(guarded(self._hear_beat), indirect=False))
            ),
        ]

    def _unsubscribe(self) -> None:
        for subscriber in self._subscribers:
            subscriber.undeclare()
        self._subscribers = []

    # On Zenoh's own threads (`indirect=False`): that saves one change of threads for each page.

    def _hear_page(self, sample: zenoh.Sample) -> None:
        attachment = sample.attachment
        self._buffer.push(
            LiveMessage(feed_of(str(sample.key_expr)), attachment.to_bytes() if attachment else b"",
                        sample.payload.to_bytes(), self._now_ns(), str(sample.encoding) == ENCODING)
        )  # fmt: skip

    def _hear_beat(self, sample: zenoh.Sample) -> None:
        self.upstream.hear_beat()
        self._buffer.push(LiveMessage(None, b"", sample.payload.to_bytes(), self._now_ns()))
