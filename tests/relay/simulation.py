"""A simulated network, clock, origin and holder, for upstreams without threads and without sleeping.

    World       the clock, the events to come, and one seeded generator of chance
    Network     delays every message; while it is rough, also drops, duplicates, reorders and corrupts
    Corpus      products with real records, made once in a real queue and shared by all runs
    Origin      a site with a growing log and a stream of pages and beats; may be absent, evict, or get a new queue
    Holder      another site that has some of the origin's products, under its own sequences

Any number of sites and drivers (simulated_driver.py) may share a world. Everything that happens follows from the seed.
"""

import hashlib
import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import Queue, Selection
from headrace.link.keys import OWN
from headrace.product.batch import ROW
from headrace.product.feed import FeedPattern
from headrace.relay.messages.beat import INTERVAL_S, Beat, encode_beat
from headrace.relay.messages.inventory import InventoryReply, make_reply
from headrace.relay.messages.page import (
    VERSION,
    PageHead,
    encode_head,
    records_of,
    sequence_bytes,
)
from headrace.relay.messages.query import (
    Identify,
    IdentifyReply,
    Inventory,
    Listen,
    ListenReply,
    Locate,
    LocateReply,
    Query,
    Read,
    Resolve,
    ResolveReply,
    Trace,
    TraceReply,
)
from headrace.relay.stream import stream_name

if TYPE_CHECKING:
    from simulated_driver import Driver

ORIGIN, HOLDER = "a", "h"
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
    """Products 1 … `last` of one queue: their feeds, their records, and which selections select them."""

    def __init__(self, folder: Path, seed: int, count: int, feeds: tuple[str, ...]) -> None:
        chance = random.Random(seed)
        with Queue.create(folder / f"corpus-{seed}", size="16MiB", origin=ORIGIN) as queue:
            for number in range(1, count + 1):
                feed = chance.choices(feeds, weights=range(1, len(feeds) + 1))[0]
                queue.put(b"%d of %d" % (number, seed), feed=feed, ident=f"{number}", expiry="365d")
            batch = queue.read_batch("oldest", limit=count)
            self.feeds = ["", *batch.feeds]
            self.records = [b"", *(records_of(batch, np.array([row], np.uint32)) for row in range(count))]
            self.products = [None, *batch]
            self.previous = [0, *(product.previous or 0 for product in batch)]
            self.columns = np.concatenate([np.zeros(1, ROW), batch.columns])
            self.names = list(batch.names)
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
    expired: set[int] = field(default_factory=set)  # products that are not given to anybody any more
    page_products_max: int = 5
    pages_max: int = 3
    started_ns: int = 1
    beat_s: float = INTERVAL_S
    receivable: tuple[str, ...] = ("**",)  # feeds that the receiver may receive

    @property
    def next(self) -> int:
        return len(self.log)

    def reply(self, query: Query) -> Any:
        if isinstance(query, Identify):
            return IdentifyReply(
                self.name, self.queue, self.oldest, self.next, self.started_ns, origins=(ORIGIN,),
                interval_ms=int(1000 * self.beat_s), receivable=self.receivable,
            )  # fmt: skip
        if isinstance(query, Inventory):
            return self.inventory(query)
        if isinstance(query, Trace):
            return self.trace(query)
        if isinstance(query, Locate):
            return self.locate(query)
        if isinstance(query, Resolve):
            return ResolveReply(self.next if query.start == "next" else self.oldest)
        assert isinstance(query, Listen)
        return ListenReply(self.listen(query.selection))

    def listen(self, selection: str) -> str:
        raise NotImplementedError

    def gives(self, selection: str, sequence: int) -> bool:
        """Whether the selection wants a product, and the receiver may receive it."""
        number = self.log[sequence]
        is_permitted = any(FeedPattern(text).matches(self.corpus.feeds[number]) for text in self.receivable)
        return self.corpus.wanted(selection)[number] and is_permitted

    def inventory(self, query: Inventory) -> InventoryReply:
        """As relay/inventory.py does it."""
        first = max(query.after + 1, self.oldest)
        lost = (query.after + 1, first - 1) if first > query.after + 1 else (0, 0)
        rows = [row for row in range(first, self.next) if self.gives(query.selection, row)][: query.products]
        columns = self.corpus.columns[[self.log[row] for row in rows]]
        columns["sequence"] = rows
        upto = rows[-1] if len(rows) == query.products else max(query.after, self.next - 1)
        return make_reply(self.queue, (self.oldest, self.next), (query.after, upto), lost, columns, self.corpus.names)

    def trace(self, query: Trace) -> TraceReply:
        """Nothing is known."""
        return TraceReply(self.queue, (), query.first, query.last)

    def locate(self, query: Locate) -> LocateReply:
        places = {self.corpus.columns[self.log[row]]["signature"].tobytes(): row for row in range(self.oldest, self.next)
                  if self.gives(query.selection, row)}  # fmt: skip
        asked = [query.signatures[at : at + 16] for at in range(0, len(query.signatures), 16)]
        return LocateReply(self.queue, sequence_bytes([places.get(each, 0) for each in asked]))

    def pages(self, query: Read) -> Iterator[tuple[bytes, bytes]]:
        """As serve.Pager does it."""
        after = query.after
        for _ in range(query.pages):
            first = max(after + 1, self.oldest)
            lost = (after + 1, first - 1) if first > after + 1 else (0, 0)
            rows: list[int] = []
            upto, expired = first - 1, 0
            while upto < self.next - 1 and len(rows) < query.products:
                upto += 1
                if not self.gives(query.selection, upto):
                    continue
                if self.log[upto] in self.expired:
                    expired += 1
                else:
                    rows.append(upto)
            upto = max(after, upto)
            head = PageHead(
                VERSION, self.name, self.queue, stream_name(Selection.parse(query.selection)), after, upto, self.next,
                len(rows), 0, *lost, sequence_bytes(rows) if rows else b"",
                left_out={"expired": expired} if expired else {},
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
        self.world.after(self.beat_s, self._beat)

    def restart(self) -> None:
        self.started_ns += 1
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

    def expire(self, sequence: int) -> None:
        """From now on this product, which may have been put or not, is left out on every path."""
        self.expired.add(sequence)
        self.world.note(f"{sequence} expires at the origin")

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
        self.world.after(self.beat_s, self._beat)

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
        self._left_out = 0

    def advance(self) -> None:
        site = self._site
        by_feed: dict[str, list[int]] = {}
        for sequence in range(self._position + 1, site.next):
            if not site.gives(self._selection, sequence):
                continue
            if site.log[sequence] in site.expired:
                self._left_out = site.next - 1
            else:
                by_feed.setdefault(site.corpus.feeds[site.log[sequence]], []).append(sequence)
        self._position = site.next - 1
        for feed, sequences in by_feed.items():
            head = PageHead(
                VERSION, site.name, site.queue, self._name, max(self._last.get(feed, 0), self._floor), sequences[-1],
                site.next, len(sequences), 0, sequences=b"" if self._name == OWN else sequence_bytes(sequences),
            )  # fmt: skip
            records = b"".join(site.corpus.records[site.log[sequence]] for sequence in sequences)
            site.publish(self._name, feed, encode_head(head), records)
            self._last[feed] = self._recent[feed] = sequences[-1]

    def beat(self) -> None:
        beat = Beat(VERSION, self._site.name, self._site.queue, self._name, self._since, self._position,
                    self._before | self._recent, 0, self._site.started_ns, int(1000 * self._site.beat_s),
                    self._left_out)  # fmt: skip
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
