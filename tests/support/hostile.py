"""A hostile peer: a session with a certificate that plays a site, and says whatever a test wants it to say.

    evil = Hostile(realm.session("evil", hub), "evil", folder)
    evil.hold("evil", ("wx/text/a", "t1"), ("secret/x", "s1"))   # products that its log pretends to have
    evil.appear()                                                # declare the token of a site: others will ask it

Its answers are plain functions by the type of the query; replace any of them, or give bytes to send as they are:
`evil.answers[Identify] = lambda query: b"junk"`. Products are made with a real queue, by any origin.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import zenoh
from zenoh.handlers import Callback

from headrace import Batch, Queue
from headrace.link.keys import ROOT, beat_key, live_key, site_key
from headrace.relay.messages.beat import VERSION as BEAT_VERSION
from headrace.relay.messages.beat import Beat, encode_beat
from headrace.relay.messages.page import VERSION, PageHead, encode_head, records_of
from headrace.relay.messages.query import (
    Identify,
    IdentifyReply,
    Listen,
    ListenReply,
    Read,
    Resolve,
    ResolveReply,
    decode_query,
    encode,
)

_numbers = itertools.count(1)
Product = tuple[str, str]  # feed and ident; the ident is the payload too
Message = tuple[bytes, bytes]  # attachment and payload
MakeHostile = Callable[..., "Hostile"]  # by name, and the sites to link to


def made(folder: Path, origin: str, *products: Product, **terms: Any) -> Batch:
    """Products that were put at `origin`, as its queue has them."""
    queue = Queue.create(folder / f"made{next(_numbers)}", size="4MiB", origin=origin, **terms)
    for feed, ident in products:
        queue.put(ident.encode(), feed=feed, ident=ident)
    return queue.read_batch("oldest", limit=100_000)


class Hostile:
    """Plays the site `name`. What its log holds grows by `hold`; sequences are those of that log."""

    def __init__(self, session: zenoh.Session, name: str, folder: Path) -> None:
        self.session, self.name, self._folder = session, name, folder
        self.queue, self.stream = os.urandom(16), "own"
        self.refusal = b"not now"  # the error for queries that it has no answer to
        self.origins: tuple[str, ...] = (name,)
        self.asked: list[Any] = []  # all queries, in order
        self._held: list[tuple[int, bytes]] = []  # sequence and record
        self._lock = threading.Lock()
        self.answers: dict[type, Callable[[Any], Any]] = {
            Identify: lambda _: self.card(),
            Resolve: lambda query: ResolveReply(1 if query.start == "oldest" else self.next),
            Listen: lambda _: ListenReply(self.stream),
            Read: self.pages,
        }
        self._tokens: list[Any] = []
        self._queryable = session.declare_queryable(f"{ROOT}/log/{name}/**", Callback(self._take, indirect=False))

    @property
    def next(self) -> int:
        return self._held[-1][0] + 1 if self._held else 1

    def card(self) -> IdentifyReply:
        return IdentifyReply(self.name, self.queue, 1, self.next, 1, origins=self.origins, interval_ms=100)

    def hold(self, origin: str, *products: Product) -> Batch:
        """Add products of any origin to its log; the batch that was made for that."""
        batch = made(self._folder, origin, *products)
        self.add(batch)
        return batch

    def add(self, batch: Batch) -> list[tuple[int, bytes]]:
        """Add a batch to its log; the sequences and records there."""
        with self._lock:
            first = self.next
            added = [(first + row, records_of(batch, np.array([row], np.uint32))) for row in range(len(batch))]
            self._held += added
        return added

    def hold_record(self, record: bytes) -> None:
        """Add one product as the bytes of its record."""
        with self._lock:
            self._held.append((self.next, record + bytes(-len(record) % 8)))

    def pages(self, query: Read) -> Iterator[Message]:
        """All that the log has behind `after`, whatever was asked for."""
        with self._lock:
            sent = [(sequence, record) for sequence, record in self._held if sequence > query.after]
        yield self.page(query.after, sent)

    def page(self, after: int, products: list[tuple[int, bytes]], stream: str = "own", **changes: Any) -> Message:
        upto = products[-1][0] if products else after
        sequences = b"".join(sequence.to_bytes(8, "little") for sequence, _ in products)
        head = {
            "version": VERSION, "site": self.name, "queue": self.queue, "stream": stream, "after": after, "upto": upto,
            "head": self.next, "count": len(products), "sent_ns": 0, "sequences": sequences, **changes,
        }  # fmt: skip
        return encode_head(PageHead(**head)), b"".join(record for _, record in products)

    def appear(self) -> None:
        """Declare the token of a site, after which others ask it for its identity."""
        key = site_key(self.name, str(self.session.zid()))
        self._tokens.append(self.session.liveliness().declare_token(key))

    def keep(self, token: Any) -> None:
        """Withdraw this token with the others."""
        self._tokens.append(token)

    def vanish(self) -> None:
        for token in self._tokens:
            token.undeclare()
        self._tokens = []

    def publish(self, feed: str, message: Message, stream: str | None = None) -> None:
        """A live page under the key of a feed."""
        head, payload = message
        self.session.put(live_key(self.name, stream or self.stream, feed), payload, attachment=head)

    def publish_held(self, feed: str, *products: Product, origin: str = "") -> None:
        """Add products to its log, and send them live as one page that continues what was sent before."""
        after = self.next - 1
        added = self.add(made(self._folder, origin or self.name, *products))
        self.publish(feed, self.page(after, added, self.stream))

    def beat(self, stream: str | None = None, **changes: Any) -> None:
        """Say that everything has been sent; without beats others take the site for dead after three seconds."""
        stream = stream or self.stream
        told = {
            "version": BEAT_VERSION, "site": self.name, "queue": self.queue, "stream": stream, "since": 0,
            "examined": self.next - 1, "recent": {}, "sent_ns": 0, "started_ns": 1, "interval_ms": 60_000, **changes,
        }  # fmt: skip
        self.session.put(beat_key(self.name, stream), encode_beat(Beat(**told)))

    def _take(self, query: zenoh.Query) -> None:
        """On Zenoh's thread."""
        with query, suppress(zenoh.ZError):
            asked = decode_query(query.payload.to_bytes() if query.payload else b"")
            self.asked.append(asked)
            answer = self.answers.get(type(asked))
            if answer is None:
                query.reply_err(self.refusal)
                return
            reply, key = answer(asked), query.key_expr
            if isinstance(reply, bytes):
                query.reply(key, reply)
            elif isinstance(reply, Iterator):
                for head, payload in reply:
                    query.reply(key, payload, attachment=head)
            else:
                query.reply(key, encode(reply))
