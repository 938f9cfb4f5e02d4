"""Supplier: pushes products into a channel.

A push is a put on the terms of the channel: the feed lies in its subtree, `timeout` gives the product an expiry, and
from `stop_time` on the push is refused. `max_queue` and blocking stations are checked by the put itself. The terms are
those at the moment of the push: each push checks whether their file was replaced, and reads it only then.

Each supplier holds a slot, so that `suppliers_max` counts across processes (slots.py). Several threads may use one
Supplier. A forked child takes a slot of its own at its first push.

Not here: polling a function (pull.py).
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Unpack

import msgspec
import numpy as np

from headrace.channel.context import ChannelContext
from headrace.channel.document import Definition
from headrace.channel.slots import SupplierSlot
from headrace.channel.subtree import Subtree
from headrace.errors import ChannelEndedError, ChannelError, ChannelMissingError, FeedError, RejectedError
from headrace.log import append
from headrace.log.append import Duplicate, Receipt, distinct
from headrace.log.columns import Columns, PutColumns, columns_of, payload_column
from headrace.log.in_thread import put_in_thread
from headrace.log.seams import Timeout
from headrace.product.put import PLAIN, Put, PutFacts, expiry_of, put_of
from headrace.units import format_time

Prepared = Callable[[Timeout], int | Duplicate | Receipt]


class Supplier:
    """A push supplier; get one from `Channel.supplier`. End it with `close`, or use it in a `with`."""

    def __init__(self, channel: ChannelContext) -> None:
        """Take a slot; SuppliersFullError if `suppliers_max` are connected."""
        self.channel = channel
        self._number = channel.definition.number
        self._terms = (channel.definition, Subtree.of(channel.definition.feed))
        self._taking = threading.Lock()
        self._closed = False
        self._slot = self._take()

    @property
    def place(self) -> int:
        """Its slot."""
        return self._slot.number

    push_s = 0.2  # how long one attempt of a pull supplier takes; so soon it notices `stop`

    @property
    def channel_name(self) -> str:
        return self.channel.name

    def push(
        self, payload: Any, *, feed: str | None = None, ident: str = "", timeout: Timeout = None,
        **facts: Unpack[PutFacts],
    ) -> int | Duplicate:  # fmt: skip
        """Store one product in the channel; returns its sequence, or a Duplicate if the queue holds an equal one.

        The default `feed` is the root of the channel; the other arguments are those of `Queue.put`. RejectedError if
        `max_queue` products wait; ChannelEndedError from the channel's stop time on.
        """
        return self.store(payload, feed, ident, put_of(facts), timeout)

    def push_many(
        self, payloads: Any, *, feed: Any = None, ident: Any = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt:
        """Store many products as one batch: `Queue.put_many` on the terms of `push`."""
        held = payloads if type(payloads) is list else payload_column(payloads)
        feeds = feed_within(self.channel.name, self._current()[1], None) if feed is None else feed
        return self.store_many(held, columns_of(len(held), feeds, ident, facts), timeout)

    async def push_async(
        self, payload: Any, *, feed: str | None = None, ident: str = "", timeout: Timeout = None,
        **facts: Unpack[PutFacts],
    ) -> int | Duplicate:  # fmt: skip
        """As `push`, in a thread of its own. If the task is cancelled, the product may be stored, or not at all."""
        put = put_of(facts)
        return await put_in_thread(lambda seconds: self.store(payload, feed, ident, put, seconds), timeout)

    async def push_many_async(
        self, payloads: Any, *, feed: Any = None, ident: Any = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt:
        """As `push_many`, in a thread of its own. A cancellation is as for `push_async`."""
        return await put_in_thread(
            lambda seconds: self.push_many(payloads, feed=feed, ident=ident, timeout=seconds, **facts), timeout
        )

    def prepared(
        self, payload: Any, *, feed: str | None = None, ident: str = "", **facts: Unpack[PutFacts]
    ) -> Prepared:
        """A push that may be repeated until it succeeds, and is stored once."""
        return lambda timeout: self.push(payload, feed=feed, ident=ident, timeout=timeout, **facts)

    def prepared_many(
        self, payloads: Any, *, feed: Any = None, ident: Any = "", **facts: Unpack[PutColumns]
    ) -> Prepared:
        return lambda timeout: self.push_many(payloads, feed=feed, ident=ident, timeout=timeout, **facts)

    def store(
        self, payload: Any, feed: str | None, ident: str, facts: Put = PLAIN, timeout: Timeout = None
    ) -> int | Duplicate:
        """As `push`, with facts that were checked already."""
        definition, subtree = self._current()
        feed = feed_within(definition.name, subtree, feed)
        facts = self._with_expiry(definition, facts)
        slot = self._holding()
        try:
            outcome = append.put(self.channel.log, payload, feed, ident, facts, timeout)
        except RejectedError:
            slot.count(rejected=1)
            raise
        if isinstance(outcome, Duplicate):
            slot.count(duplicates=1)
        else:
            slot.count(products=1)
        return outcome

    def store_many(self, payloads: list[Any], columns: Columns, timeout: Timeout = None) -> Receipt:
        """As `push_many`, with columns that were checked already."""
        definition, subtree = self._current()
        for feed in distinct(columns.feed):
            feed_within(definition.name, subtree, feed)
        columns = self._with_expiries(definition, columns)
        slot = self._holding()
        try:
            receipt = append.put_columns(self.channel.log, payloads, columns, timeout)
        except RejectedError:
            slot.count(rejected=len(payloads))
            raise
        slot.count(products=receipt.stored, duplicates=receipt.products - receipt.stored)
        return receipt

    def close(self) -> None:
        """Free the slot for other suppliers."""
        self._closed = True
        self._slot.leave()

    def abandon(self) -> None:
        """Free the slot as the death of the process does."""
        self._closed = True
        self._slot.release()

    def __enter__(self) -> "Supplier":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Supplier of {self.channel.name!r}{' closed' if self._closed else ''}>"

    # --- slot -------------------------------------------------------------------------------------

    def _take(self) -> SupplierSlot:
        definition = self.channel.definition
        path = self.channel.suppliers_file(definition)
        return SupplierSlot(path, definition.name, definition.qos.suppliers_max, self.channel.now_ns())

    def _holding(self) -> SupplierSlot:
        """The slot; a new one if this process is a forked child and the first belongs to the parent."""
        if not self._slot.is_held:
            with self._taking:
                if self._closed:
                    raise ChannelError("this supplier is closed", "get another one: channel.supplier()")
                if not self._slot.is_held:
                    self._slot = self._take()
        return self._slot

    # --- terms ------------------------------------------------------------------------------------

    def _current(self) -> tuple[Definition, Subtree]:
        """The terms now; an error if the channel was removed or has ended."""
        definition = self.channel.definition
        if definition is not self._terms[0]:
            self._terms = (definition, Subtree.of(definition.feed))
        if definition.number != self._number:
            raise ChannelMissingError(
                f"channel {definition.name!r} was removed, and another one created",
                "get a supplier of the new one: queue.channel(name).supplier()",
            )
        stop_ns = definition.qos.stop_time_ns
        if stop_ns is not None and self.channel.now_ns() >= stop_ns:
            raise ChannelEndedError(
                f"channel {definition.name!r} ended at its stop_time {format_time(stop_ns)}; nothing was stored",
                "choose a later one: headrace channel change --stop-time",
            )
        return self._terms

    def _with_expiry(self, definition: Definition, facts: Put) -> Put:
        """The facts with the earlier of the product's own expiry and the channel's."""
        timeout_s = definition.qos.timeout_s
        if timeout_s is None:
            return facts
        now_ns = self.channel.now_ns()
        own_ns, end_ns = facts.expires_ns(now_ns), now_ns + int(timeout_s * 1e9)
        return msgspec.structs.replace(facts, expiry=min(own_ns, end_ns) if own_ns else end_ns)

    def _with_expiries(self, definition: Definition, columns: Columns) -> Columns:
        timeout_s = definition.qos.timeout_s
        if timeout_s is None:
            return columns
        now_ns = self.channel.now_ns()
        own, end_ns = columns.facts.get("expiry", 0), np.uint64(now_ns + int(timeout_s * 1e9))
        own_ns = np.atleast_1d(np.asarray(expiry_of(own, now_ns) if isinstance(own, str) else own, np.uint64))
        expiry = np.where(own_ns == 0, end_ns, np.minimum(own_ns, end_ns))
        return msgspec.structs.replace(columns, facts={**columns.facts, "expiry": expiry})


def feed_within(channel: str, subtree: Subtree, feed: str | None) -> str:
    """The feed of a push; FeedError if it is not in the subtree."""
    if feed is None:
        if not subtree.root:
            raise FeedError(f"channel {channel!r} covers all feeds, and the push names none", "give feed=…")
        return subtree.root
    if not isinstance(feed, str) or not subtree.has(feed):
        raise FeedError(
            f"feed {feed!r} is not in the channel's {subtree.pattern}",
            f"push below {subtree.root}, or into a channel that contains this feed",
        )
    return feed
