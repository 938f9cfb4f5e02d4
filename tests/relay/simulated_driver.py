"""Driver: performs the actions of one upstream in a simulated world. What it stores is a list instead of a queue."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from simulation import ORIGIN, Network, Site, World

from headrace.errors import FabricMessageError
from headrace.log.records import Names
from headrace.product.feed import FeedPattern
from headrace.relay.messages.page import Page, decode, decode_head
from headrace.relay.messages.query import Read, ResolveReply, Unreachable
from headrace.relay.receive import actions
from headrace.relay.receive.actions import Action, LiveMessage
from headrace.relay.receive.live_buffer import LiveBuffer
from headrace.relay.receive.upstream import Upstream

TIMEOUT_S = 2.0  # of a query


class _Reply:
    """Pages on their way to a driver."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.pages: list[tuple[bytes, bytes]] = []
        self.is_complete = self.is_over = False
        self.resume: Callable[[], None] | None = None  # the driver waits

    def add(self, page: tuple[bytes, bytes] | None) -> None:
        """A page, or the end."""
        if page is None:
            self.is_complete = True
        else:
            self.pages.append(page)
        self._wake()

    def expire(self) -> None:
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        resume, self.resume = self.resume, None
        if resume is not None:
            resume()

    @property
    def is_ready(self) -> bool:
        return bool(self.pages) or self.is_complete or self.is_over

    def next(self) -> Page | None:
        if self.pages:
            head, records = self.pages.pop(0)
            return decode(decode_head(head), records, self.names)
        if self.is_complete:
            return None
        raise Unreachable("no reply in time")


_LATER = object()  # an event will bring the outcome
Finish = Callable[..., None]


class Driver:
    """Performs the actions of one upstream in a world. What it stores is known by corpus and sequence."""

    def __init__(self, world: World, network: Network, sites: dict[str, Site], upstream: Upstream) -> None:
        self._world, self._network, self._sites = world, network, sites
        self.stored: dict[str, dict[int, int]] = {}  # by corpus: how often each sequence was stored
        self.order: dict[tuple[str, str], list[int]] = {}  # by corpus and feed: sequences in their order of arrival
        self.started: dict[bytes, int] = {}  # by queue: the sequence at which it began
        self.may_repeat = False  # it has started again, or has stored something before it had met the origin
        self._performers: dict[type[Action], Callable[[Any], Any]] = {
            actions.Ask: self._ask, actions.ReadLog: self._read_log, actions.NextPage: self._next_page,
            actions.Subscribe: self._subscribe, actions.OpenLive: lambda _: self._buffer.open(),
            actions.ShutLive: lambda _: self._buffer.shut(), actions.TakeLive: self._take_live,
            actions.Store: self._store, actions.FindMissing: self._find_missing, actions.Recognise: self._recognise,
            actions.Admit: lambda action: np.ones(len(action.page.batch), np.bool_),
            actions.ListHolders: lambda _: [name for name in sites if name != ORIGIN],
            actions.SaveProgress: lambda _: self.save(), actions.Pause: self._pause,
        }  # fmt: skip
        self._start(upstream)

    def _start(self, upstream: Upstream) -> None:
        self.upstream, self._steps, self.saved = upstream, upstream.run(), upstream.known
        self._buffer, self._stream, self._feeds = LiveBuffer(), "", FeedPattern("**")
        self._ticket: object = None  # of what the upstream waits for
        self._live = self._pausing = None  # type: Finish | None
        self._resume(None, None)

    def restart(self, upstream: Upstream) -> None:
        """The process has died between two actions. What it stored stays; what it saved is what it knows."""
        self._steps.close()
        self.may_repeat = True
        self._world.note(f"receiver starts again behind {upstream.known[1]}")
        self._start(upstream)

    def save(self) -> None:
        self.saved = self.upstream.known

    def _resume(self, outcome: Any, error: Exception | None) -> None:
        while outcome is not _LATER:
            action = self._steps.send(outcome) if error is None else self._steps.throw(error)
            outcome = error = None
            try:
                outcome = self._performers[type(action)](action)
            except (Unreachable, FabricMessageError) as raised:
                error = raised

    def _wait(self) -> Finish:
        """A function that resumes the upstream; only the first call counts, and only as long as it still waits."""
        ticket = self._ticket = object()

        def finish(outcome: Any = None, error: Exception | None = None) -> None:
            if self._ticket is ticket:
                self._ticket = None
                self._resume(outcome, error)

        return finish

    # --- queries ------------------------------------------------------------------------------------

    def _ask(self, action: actions.Ask) -> object:
        site, finish = self._sites[action.site], self._wait()

        def serve() -> None:
            if site.present and not self._network.loses():
                reply = site.reply(action.query)
                if isinstance(reply, ResolveReply):
                    self._note_start(site, reply.sequence)
                self._world.after(self._network.delay(), lambda: finish(reply))

        self._world.after(self._network.delay(), serve)
        self._world.after(TIMEOUT_S, lambda: finish(error=Unreachable("no reply")))
        return _LATER

    def _note_start(self, site: Site, sequence: int) -> None:
        if site.name == ORIGIN:
            self.started[site.queue] = sequence

    def _read_log(self, action: actions.ReadLog) -> _Reply:
        site, reply, chance = self._sites[action.site], _Reply(action.names), self._world.chance

        def serve() -> None:
            if not site.present or self._network.loses():
                return
            query = Read(action.selection, action.after, chance.randint(1, site.pages_max),
                         min(chance.randint(1, site.page_products_max), action.products or 1000), 1)  # fmt: skip
            pages: list[tuple[bytes, bytes]] = list(site.pages(query))
            if self._network.is_rough and len(pages) > 1 and chance.random() < self._network.duplicate:
                pages.insert(chance.randrange(len(pages)), chance.choice(pages))  # once more, out of order
            delay = 0.0
            for page in pages:
                if self._network.loses():
                    return
                delay += self._network.delay()
                self._world.after(delay, partial(reply.add, page))
            self._world.after(delay, partial(reply.add, None))

        self._world.after(self._network.delay(), serve)
        self._world.after(TIMEOUT_S, reply.expire)
        return reply

    def _next_page(self, action: actions.NextPage) -> Any:
        reply: _Reply = action.reply
        if reply.is_ready:
            return reply.next()
        finish = self._wait()

        def resume() -> None:
            try:
                page = reply.next()
            except (Unreachable, FabricMessageError) as error:
                finish(error=error)
            else:
                finish(page)

        reply.resume = resume
        return _LATER

    def _pause(self, action: actions.Pause) -> object:
        self._pausing = self._wait()
        self._world.after(action.seconds, self._pausing)
        return _LATER

    def site_appeared(self) -> None:
        if self._pausing is not None:
            self._pausing()

    # --- live messages --------------------------------------------------------------------------------

    def _subscribe(self, action: actions.Subscribe) -> None:
        self._stream, self._feeds = action.stream, FeedPattern(action.feeds)

    def listens(self, stream: str, feed: str | None) -> bool:
        return stream == self._stream and (feed is None or self._feeds.matches(feed))

    def hear(self, feed: str | None, attachment: bytes, payload: bytes, corrupted: bool) -> None:
        """A live message has arrived."""
        if corrupted:
            payload = payload[:-1]
        if feed is None:
            self.upstream.hear_beat()
        self._buffer.push(LiveMessage(feed, attachment, payload, 0))
        if self._live is not None:
            live, self._live = self._live, None
            live(self._buffer.take())

    def _take_live(self, action: actions.TakeLive) -> Any:
        if messages := self._buffer.take():
            return messages
        self._live = self._wait()
        self._world.after(action.timeout_s, partial(self._live, []))
        return _LATER

    # --- our queue ------------------------------------------------------------------------------------

    def _store(self, action: actions.Store) -> None:
        self.may_repeat = self.may_repeat or not self.upstream.known[0]
        for row, product in enumerate(action.page.batch):
            if action.keep is None or action.keep[row]:
                number, _, corpus = bytes(product.payload).decode().partition(" of ")
                counts = self.stored.setdefault(corpus, {})
                if int(number) not in counts:  # as the queue does, by signature
                    self.order.setdefault((corpus, product.feed), []).append(int(number))
                counts[int(number)] = counts.get(int(number), 0) + 1
        self._world.note(f"stored {len(action.page.batch)} up to {action.page.head.upto}")

    def _recognise(self, action: actions.Recognise) -> Any:
        raise NotImplementedError("only a standby compares")

    def _find_missing(self, action: actions.FindMissing) -> tuple[int, int]:
        first, last = action.first, action.last
        held = self.stored.get(self._sites[ORIGIN].corpus.name, {})
        while first <= last and first in held:
            first += 1
        while first <= last and last in held:
            last -= 1
        return first, last
