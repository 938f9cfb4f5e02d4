"""Supplier: pushes products into a channel.

A push is a put on the terms of the channel: the feed lies in its subtree, `timeout` gives the product an expiry, and
from `stop_time` on the push is refused. `max_queue` and blocking stations are checked by the put itself. The terms are
those at the moment of the push: each push checks whether their file was replaced, and reads it only then.

Each supplier holds a slot, so that `suppliers_max` counts across processes (slots.py). Several threads may use one
Supplier. A forked child takes a slot of its own at its first push.

Not here: polling a function (pull.py).
"""

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Unpack

import numpy as np

from headrace.channel.context import ChannelContext
from headrace.channel.document import Definition
from headrace.channel.slots import SupplierSlot
from headrace.channel.subtree import Subtree
from headrace.errors import ChannelEndedError, ChannelError, ChannelMissingError, FeedError, RejectedError
from headrace.log import append
from headrace.log.append import Duplicate, Receipt
from headrace.log.columns import PutColumns
from headrace.log.seams import Timeout
from headrace.product.put import PutFacts, expiry_of, put_of
from headrace.units import format_time


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

    def push(
        self, payload: Any, *, feed: str | None = None, ident: str = "", timeout: Timeout = None,
        **facts: Unpack[PutFacts],
    ) -> int | Duplicate:  # fmt: skip
        """Store one product in the channel; returns its sequence, or a Duplicate if the queue holds an equal one.

        The default `feed` is the root of the channel; the other arguments are those of `Queue.put`. RejectedError if
        `max_queue` products wait; ChannelEndedError from the channel's stop time on.
        """
        definition, subtree = self._current()
        feed = _feed_of(definition, subtree, feed)
        facts["expiry"] = self._expiry(definition, facts.get("expiry"))
        slot = self._holding()
        try:
            outcome = append.put(self.channel.log, payload, feed, ident, put_of(facts), timeout)
        except RejectedError:
            slot.count(rejected=1)
            raise
        if isinstance(outcome, Duplicate):
            slot.count(duplicates=1)
        else:
            slot.count(products=1)
        return outcome

    def push_many(
        self, payloads: Any, *, feed: Any = None, ident: Any = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt:
        """Store many products as one batch: `Queue.put_many` on the terms of `push`."""
        definition, subtree = self._current()
        feed = _feeds_of(definition, subtree, feed)
        facts["expiry"] = self._expiry_column(definition, facts.get("expiry"))
        slot = self._holding()
        try:
            receipt = append.put_many(self.channel.log, payloads, feed=feed, ident=ident, timeout=timeout, **facts)
        except RejectedError:
            slot.count(rejected=len(payloads))
            raise
        slot.count(products=receipt.stored, duplicates=receipt.products - receipt.stored)
        return receipt

    def close(self) -> None:
        """Free the slot for other suppliers."""
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
        return SupplierSlot(path, definition.name, definition.qos.suppliers_max)

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

    def _expiry(self, definition: Definition, expiry: Any) -> Any:
        """The earlier of the product's own expiry and the channel's."""
        timeout_s = definition.qos.timeout_s
        if timeout_s is None:
            return expiry
        now_ns = self.channel.now_ns()
        own_ns = expiry_of(expiry, now_ns)
        end_ns = now_ns + int(timeout_s * 1e9)
        return min(own_ns, end_ns) if own_ns else end_ns

    def _expiry_column(self, definition: Definition, expiry: Any) -> Any:
        if definition.qos.timeout_s is None or expiry is None or np.ndim(expiry) == 0:
            return self._expiry(definition, expiry)
        own_ns = np.asarray(expiry, np.uint64)
        end_ns = np.uint64(self._expiry(definition, None))
        return np.where(own_ns == 0, end_ns, np.minimum(own_ns, end_ns))


def _feed_of(definition: Definition, subtree: Subtree, feed: str | None) -> str:
    """The feed of a push; FeedError if it is not in the subtree."""
    if feed is None:
        if not subtree.root:
            raise FeedError(f"channel {definition.name!r} covers all feeds, and the push names none", "give feed=…")
        return subtree.root
    if not isinstance(feed, str) or not subtree.has(feed):
        raise FeedError(
            f"feed {feed!r} is not in the channel's {definition.feed}",
            f"push below {subtree.root}, or into a channel that contains this feed",
        )
    return feed


def _feeds_of(definition: Definition, subtree: Subtree, feeds: Any) -> Any:
    if feeds is None or isinstance(feeds, str):
        return _feed_of(definition, subtree, feeds)
    names: Iterable[Any] = feeds.to_pylist() if hasattr(feeds, "to_pylist") else feeds
    for feed in set(names):
        _feed_of(definition, subtree, feed)
    return feeds
