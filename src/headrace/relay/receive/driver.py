"""Driver: drives one upstream or standby in a pool of threads, with a Zenoh session, a live buffer and clients of logs.

It performs the actions of the state machine one after the other and does nothing else. An action that cannot be
completed now, because a reply or a page has not come or the queue is full, is looked at again when something has come
or the time is over; no thread waits for it. `stop` ends it between two actions, and never between a `Store` that has
been performed and the move of the track that follows.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import zenoh
from zenoh.handlers import Callback

from headrace.errors import FabricMessageError
from headrace.guard import FAILURES, guarded
from headrace.link.declarations import Declarations, Declared
from headrace.link.keys import beat_key, feed_of, is_wild, listening_key, live_key
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
    Steps,
    Store,
    Subscribe,
    TakeLive,
)
from headrace.relay.receive.arrived import SequenceRange
from headrace.relay.receive.counts import UpstreamStatistics
from headrace.relay.receive.live_buffer import LiveBudget, LiveBuffer
from headrace.relay.receive.pool import NAME, Pool
from headrace.relay.receive.standby import Standby
from headrace.relay.receive.track import Known
from headrace.relay.receive.upstream import Upstream
from headrace.relay.replies import PENDING
from headrace.relay.site_client import Pages, SiteClient

_RESTART_S = 5.0  # after an unexpected error
_STEP_S = 0.02  # then other upstreams have their turn

Poll = Callable[[], Any]  # the outcome of an action, or PENDING


class Driver:
    """Runs from `start` to `stop`.

    The callables: `store` yields how long to wait, as often as the queue does not take the page, and ends when it is in
    the queue; `admit` yields so too, and returns which products of a page count as brought by its sender;
    `find_missing` and `recognise` look into our queue; `holders` lists the other sites that are present and may bring
    the origin's products; `save_progress` saves `known` of all upstreams; `now_ns` is the time of our site.
    """

    def __init__(
        self, upstream: Upstream | Standby, pool: Pool, session: zenoh.Session, declarations: Declarations, *,
        store: Callable[[Page, Keep | None], Generator[float, None, None]],
        find_missing: Callable[[int, int, int], SequenceRange],
        holders: Callable[[], list[str]], save_progress: Callable[[], int],
        recognise: Callable[[Identities], npt.NDArray[np.bool_]],
        admit: Callable[[Page], Generator[float, None, npt.NDArray[np.bool_]]],
        principal: str | None = None, budget: LiveBudget | None = None, now_ns: Callable[[], int] = time.time_ns,
        compress: str = "", record_bytes: int = PAGE_BYTES_MAX,
    ) -> None:  # fmt: skip
        self.upstream, self._now_ns = upstream, now_ns
        self._session, self._declarations, self._principal = session, declarations, principal
        self._compress, self._record_bytes = compress, record_bytes
        self._task = pool.task(upstream.site, self._run)
        self._buffer = LiveBuffer(upstream.statistics.dropped, budget, wake=self._task.wake)
        self._clients: dict[str, SiteClient] = {}
        self._dictionaries: dict[str, SiteDictionaries] = {}
        self._subscribers: list[Declared] = []
        self._is_stopping, self._has_appeared, self._ended = False, False, threading.Event()
        self._steps: Steps[None] | None = None
        self._action: Action | None = None  # that is being performed
        self._poll: Poll | None = None  # of that action, once it has begun
        self._begin_at = 0.0  # after an unexpected error
        self._begin: dict[type[Action], Callable[[Any], Poll]] = {
            Ask: lambda action: self._client(action.site).ask(action.query, action.kind).poll,
            ReadLog: _at_once(self._read_log),
            NextPage: lambda action: action.reply.poll,
            Subscribe: _at_once(self._subscribe),
            OpenLive: _at_once(lambda _: self._buffer.open()),
            ShutLive: _at_once(lambda _: self._buffer.shut()),
            TakeLive: self._take_live,
            Store: lambda action: self._resting(store(action.page, action.keep)),
            Admit: lambda action: self._resting(admit(action.page)),
            Recognise: _at_once(lambda action: recognise(action.products)),
            FindMissing: _at_once(lambda action: find_missing(action.first, action.last, action.since)),
            ListHolders: _at_once(lambda _: holders()),
            SaveProgress: _at_once(lambda _: save_progress()),
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
        return isinstance(self.upstream, Standby) or self._is_stopping

    def start(self) -> None:
        self._task.wake()

    def end(self) -> None:
        """Ask it to end between two actions; a query that is on its way is abandoned."""
        self._is_stopping = True
        self._task.wake()

    def has_ended(self, within_s: float = 0.0) -> bool:
        return self._ended.wait(within_s)

    def stop(self) -> None:
        """End between two actions, and return when that has happened. Idempotent."""
        self.end()
        self._ended.wait()

    def site_appeared(self) -> None:
        """End a pause: the site seems to be back."""
        self._has_appeared = True
        self._task.wake()

    # --- steps, each on one thread of the pool ------------------------------------------------------

    def _run(self) -> None:
        """Go on until an action cannot be completed now, or others should have their turn."""
        if self._ended.is_set():
            return
        until = time.monotonic() + _STEP_S
        try:
            while self._advance():
                if self._is_stopping:
                    break
                if time.monotonic() > until:
                    self._task.wake()
                    return
        except Exception as error:  # noqa: BLE001 nothing that a site sends may end an upstream
            FAILURES.note(NAME, error)
            self.statistics.state, self.statistics.problem = "unreachable", repr(error)
            self._steps, self._begin_at = None, time.monotonic() + _RESTART_S
            self._task.wake_at(self._begin_at)
        if self._is_stopping:
            self._finish()

    def _advance(self) -> bool:
        """Complete the action and hand its outcome to the machine; False if that cannot be done now."""
        if self._steps is None:
            if time.monotonic() < self._begin_at:
                self._task.wake_at(self._begin_at)
                return False
            self._steps = self.upstream.run()
            self._action, self._poll = next(self._steps), None
        try:
            if self._poll is None:
                self._poll = self._begin[type(self._action)](self._action)  # type: ignore[index]
            outcome = self._poll()
        except zenoh.ZError as error:
            self._action = self._steps.throw(Unreachable(str(error)))
        except Exception as error:  # noqa: BLE001 the upstream knows which of them it expects
            self._action = self._steps.throw(error)
        else:
            if outcome is PENDING:
                return False
            self._action = self._steps.send(outcome)
        self._poll = None
        return True

    def _finish(self) -> None:
        if self._steps is not None:
            self._steps.close()
        self._unsubscribe()
        self._buffer.shut()
        self._ended.set()

    # --- actions ------------------------------------------------------------------------------------

    def _client(self, site: str) -> SiteClient:
        if site not in self._clients:
            self._clients[site] = SiteClient(
                self._session, site, self._principal, compress=self._compress, count=self._count,
                record_bytes=self._record_bytes, wake=self._task.wake,
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

    def _read_log(self, action: ReadLog) -> Pages:
        client = self._client(action.site)
        return client.pages(action.selection, action.after, action.names, hurry=action.hurry, products=action.products)

    def _take_live(self, action: TakeLive) -> Poll:
        until = time.monotonic() + action.timeout_s

        def poll() -> Any:
            taken = self._buffer.take()
            if taken or self._is_over(until):
                return [self._unfold(each) for each in taken]
            return PENDING

        return poll

    def _pause(self, action: Pause) -> Poll:
        until = time.monotonic() + action.seconds

        def poll() -> Any:
            if self._has_appeared or self._is_over(until):
                self._has_appeared = False
                return None
            return PENDING

        return poll

    def _resting(self, pauses: Generator[float, None, Any]) -> Poll:
        """Go through something that says for how long it is of no use to go on; the outcome is what it returns."""
        until = 0.0

        def poll() -> Any:
            nonlocal until
            while self._is_over(until):
                try:
                    until = time.monotonic() + next(pauses)
                except StopIteration as ended:
                    return ended.value
            return PENDING

        return poll

    def _is_over(self, until: float) -> bool:
        """Whether this time has come; otherwise it wakes the task."""
        if time.monotonic() >= until:
            return True
        self._task.wake_at(until)
        return False

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
        if is_wild(sample.key_expr):
            return
        attachment = sample.attachment
        self._buffer.push(
            LiveMessage(feed_of(str(sample.key_expr)), attachment.to_bytes() if attachment else b"",
                        sample.payload.to_bytes(), self._now_ns(), str(sample.encoding) == ENCODING)
        )  # fmt: skip

    def _hear_beat(self, sample: zenoh.Sample) -> None:
        if is_wild(sample.key_expr):
            return
        self.upstream.hear_beat()
        self._buffer.push(LiveMessage(None, b"", sample.payload.to_bytes(), self._now_ns()))


def _at_once(act: Callable[[Any], Any]) -> Callable[[Any], Poll]:
    """For an action that does not wait for anybody."""
    return lambda action: lambda: act(action)
