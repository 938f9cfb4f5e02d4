"""A simulated network, clock, site and holder, which drive upstreams without threads and without sleeping.

    World       the clock, the events to come, and one seeded generator of chance
    Network     delays every message; while it is rough, also drops, duplicates, reorders and corrupts
    Corpus      products with real records, made once in a real queue and shared by all runs
    Origin      a site with a growing log and a stream of pages and beats; may be absent, evict, or get a new queue
    Holder      another site that has some of the origin's products, under its own sequences
    Driver      performs the actions of one upstream; what it stores is a list instead of a queue

Any number of sites and drivers may share a world. Everything that happens follows from the seed.
"""

import hashlib
import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from headrace import Queue, Selection
from headrace.errors import FabricMessageError
from headrace.link.keys import OWN
from headrace.log.records import Names
from headrace.product.feed import FeedPattern
from headrace.relay.messages.beat import INTERVAL_S, Beat, encode_beat
from headrace.relay.messages.page import (
    VERSION,
    Page,
    PageHead,
    decode,
    decode_head,
    encode_head,
    records_of,
    sequence_bytes,
)
from headrace.relay.messages.query import (
    Identify,
    IdentifyReply,
    Listen,
    ListenReply,
    Query,
    Read,
    Resolve,
    ResolveReply,
    Unreachable,
)
from headrace.relay.receive import actions
from headrace.relay.receive.actions import Action, LiveMessage
from headrace.relay.receive.live_buffer import LiveBuffer
from headrace.relay.receive.upstream import Upstream
from headrace.relay.send import stream_name

ORIGIN, HOLDER = "a", "h"
TIMEOUT_S = 2.0  # of a query
_CALM_S = 0.01  # delay of every message in a calm network


class World:
    """The simulated clock, and what will happen."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.trace: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, event))

    def run(self, until: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """Let things happen until this time, or until it is done."""
        while self._events and self._events[0][0] <= until and not is_done():
            self.now, _, event = heapq.heappop(self._events)
            event()
        if not is_done():
            self.now = until

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:8.3f}  {text}")


@dataclass
class Network:
    """Carries messages; `is_rough` says how."""

    world: World
    is_rough: bool = True
    drop: float = 0.1
    duplicate: float = 0.1
    corrupt: float = 0.02
    delay_s: float = 0.3  # at most, unless it takes ten times as long

    def send(self, arrive: Callable[[bool], None]) -> None:
        """Call `arrive` once, twice or never; its argument says whether the message was corrupted on its way."""
        chance = self.world.chance
        if not self.is_rough:
            self.world.after(_CALM_S, partial(arrive, False))
        elif chance.random() >= self.drop:
            for _ in range(1 + (chance.random() < self.duplicate)):
                self.world.after(self.delay(), partial(arrive, chance.random() < self.corrupt))

    def delay(self) -> float:
        if not self.is_rough:
            return _CALM_S
        chance = self.world.chance
        return chance.random() * self.delay_s * (10 if chance.random() < 0.05 else 1)

    def loses(self) -> bool:
        return self.is_rough and self.world.chance.random() < self.drop


class Corpus:
    """Products 1 … `last` of one queue: their feeds, their records, and who wants them."""

    def __init__(self, folder: Path, seed: int, count: int, feeds: tuple[str, ...]) -> None:
        chance = random.Random(seed)
        with Queue.create(folder / f"corpus-{seed}", size="16MiB", origin=ORIGIN) as queue:
            for number in range(1, count + 1):
                feed = chance.choices(feeds, weights=range(1, len(feeds) + 1))[0]
                queue.put(b"%d of %d" % (number, seed), feed=feed, ident=f"{number}")
            batch = queue.read("oldest", limit=count)
            self.feeds = ["", *batch.feeds]
            self.records = [b"", *(records_of(batch, np.array([row], np.uint32)) for row in range(count))]
            self.products = [None, *batch]
            self.previous = [0, *(product.previous or 0 for product in batch)]
        self.last, self.name = count, str(seed)
        self.queue = hashlib.blake2b(b"%d" % seed, digest_size=16).digest()
        self._wanted: dict[str, list[bool]] = {}

    def wanted(self, selection: str) -> list[bool]:
        """By sequence: whether the selection wants the product."""
        if selection not in self._wanted:
            parsed = Selection.parse(selection)
            self._wanted[selection] = [False, *(parsed.wants(product) for product in self.products[1:])]
        return self._wanted[selection]


@dataclass
class Site:
    """What replies to queries: a log whose sequences 1 … next - 1 are products of the corpus, in some order."""

    world: World
    network: Network
    name: str
    corpus: Corpus
    log: list[int] = field(default_factory=lambda: [0])  # by sequence here: the sequence at the origin
    oldest: int = 1
    present: bool = True
    queue: bytes = b""
    page_products_max: int = 5
    pages_max: int = 3

    @property
    def next(self) -> int:
        return len(self.log)

    def reply(self, query: Query) -> Any:
        if isinstance(query, Identify):
            return IdentifyReply(self.name, self.queue, self.oldest, self.next, 0, origins=(ORIGIN,))
        if isinstance(query, Resolve):
            return ResolveReply(self.next if query.start == "next" else self.oldest)
        assert isinstance(query, Listen)
        return ListenReply(self.listen(query.selection))

    def listen(self, selection: str) -> str:
        raise NotImplementedError

    def pages(self, query: Read) -> Iterator[tuple[bytes, bytes]]:
        """As serve.Pager does it."""
        after, wanted = query.after, self.corpus.wanted(query.selection)
        for _ in range(query.pages):
            first = max(after + 1, self.oldest)
            lost = (after + 1, first - 1) if first > after + 1 else (0, 0)
            rows: list[int] = []
            upto = first - 1
            while upto < self.next - 1 and len(rows) < query.products:
                upto += 1
                if wanted[self.log[upto]]:
                    rows.append(upto)
            upto = max(after, upto)
            head = PageHead(
                VERSION, self.name, self.queue, stream_name(Selection.parse(query.selection)), after, upto, self.next,
                len(rows), 0, *lost, sequence_bytes(rows) if rows else b"",
            )  # fmt: skip
            yield encode_head(head), b"".join(self.corpus.records[self.log[row]] for row in rows)
            after = upto
            if upto >= self.next - 1:
                return


@dataclass
class Origin(Site):
    """The site at which the products are put. Its stream follows its log, as send.Stream does."""

    subscribers: "list[Driver]" = field(default_factory=list)
    streams: "dict[str, Stream]" = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = self.corpus.queue
        self.restart()
        self.world.after(INTERVAL_S, self._beat)

    def restart(self) -> None:
        self.streams = {OWN: Stream(self, OWN, "**")}

    def listen(self, selection: str) -> str:
        name = stream_name(Selection.parse(selection))
        if name not in self.streams:
            self.streams[name] = Stream(self, name, selection)
        return name

    def put(self, count: int) -> None:
        """Put the next products of the corpus, and publish them in one go."""
        self.log.extend(range(self.next, min(self.next + count, self.corpus.last + 1)))
        if self.present:
            for stream in self.streams.values():
                stream.advance()

    def evict(self, oldest: int) -> None:
        self.oldest = max(self.oldest, min(oldest, self.next))
        self.world.note(f"origin evicts up to {self.oldest - 1}")

    def leave(self) -> None:
        self.present = False
        self.world.note("origin is absent")

    def come_back(self) -> None:
        self.present = True
        self.restart()
        self.world.note("origin is present")
        for driver in self.subscribers:
            driver.site_appeared()

    def replace_queue(self, corpus: Corpus) -> None:
        self.corpus, self.queue, self.log, self.oldest = corpus, corpus.queue, [0], 1
        self.restart()
        self.world.note("origin has a new queue")

    def _beat(self) -> None:
        if self.present:
            for stream in self.streams.values():
                stream.beat()
        self.world.after(INTERVAL_S, self._beat)

    def publish(self, stream: str, feed: str | None, attachment: bytes, payload: bytes) -> None:
        for driver in self.subscribers:
            if driver.listens(stream, feed):
                self.network.send(partial(driver.hear, feed, attachment, payload))


class Stream:
    """One stream of an origin: pages by feed, and beats."""

    def __init__(self, site: Origin, name: str, selection: str) -> None:
        self._site, self._name, self._selection = site, name, selection
        self._floor = self._examined = self._since = self._position = site.next - 1
        self._last: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._recent: dict[str, int] = {}

    def advance(self) -> None:
        site, wanted = self._site, self._site.corpus.wanted(self._selection)
        by_feed: dict[str, list[int]] = {}
        for sequence in range(self._position + 1, site.next):
            if wanted[sequence]:
                by_feed.setdefault(site.corpus.feeds[sequence], []).append(sequence)
        self._position = site.next - 1
        for feed, sequences in by_feed.items():
            head = PageHead(
                VERSION, site.name, site.queue, self._name, max(self._last.get(feed, 0), self._floor), sequences[-1],
                site.next, len(sequences), 0, sequences=b"" if self._name == OWN else sequence_bytes(sequences),
            )  # fmt: skip
            records = b"".join(site.corpus.records[sequence] for sequence in sequences)
            site.publish(self._name, feed, encode_head(head), records)
            self._last[feed] = self._recent[feed] = sequences[-1]

    def beat(self) -> None:
        beat = Beat(VERSION, self._site.name, self._site.queue, self._name, self._since, self._position,
                    self._before | self._recent, 0)  # fmt: skip
        self._before, self._recent = self._recent, {}
        self._since, self._examined = self._examined, self._position
        self._site.publish(self._name, None, b"", encode_beat(beat))


@dataclass
class Holder(Site):
    """Has some of the origin's products, in the order of each feed."""

    def take(self, sequences: list[int]) -> None:
        self.log.extend(sequences)

    def listen(self, selection: str) -> str:
        raise NotImplementedError("nobody listens to a holder")


class _Reply:
    """Pages on their way to a driver."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.pages: list[tuple[bytes, bytes]] = []
        self.is_complete = self.is_over = False
        self.resume: Callable[[], None] | None = None  # somebody waits

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
            actions.Store: self._store, actions.FindMissing: self._find_missing,
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
                if isinstance(reply, ResolveReply) and action.site == ORIGIN:
                    self.started[site.queue] = reply.sequence
                self._world.after(self._network.delay(), lambda: finish(reply))

        self._world.after(self._network.delay(), serve)
        self._world.after(TIMEOUT_S, lambda: finish(error=Unreachable("no reply")))
        return _LATER

    def _read_log(self, action: actions.ReadLog) -> _Reply:
        site, reply, chance = self._sites[action.site], _Reply(action.names), self._world.chance

        def serve() -> None:
            if not site.present or self._network.loses():
                return
            query = Read(action.selection, action.after, chance.randint(1, site.pages_max),
                         chance.randint(1, site.page_products_max), 1)  # fmt: skip
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
            live(self._buffer.take(0))

    def _take_live(self, action: actions.TakeLive) -> Any:
        if messages := self._buffer.take(0):
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

    def _find_missing(self, action: actions.FindMissing) -> tuple[int, int]:
        first, last = action.first, action.last
        held = self.stored.get(self._sites[ORIGIN].corpus.name, {})
        while first <= last and first in held:
            first += 1
        while first <= last and last in held:
            last -= 1
        return first, last
