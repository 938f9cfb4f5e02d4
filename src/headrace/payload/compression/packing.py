"""Packing: products that enter a queue, compressed as the terms of their channels say.

The log asks for each product that is put, by whatever way, before it takes any lock (log/append.py). A channel's terms
are read by the same rule as slices are: `control.slicings` changes with them, and the kernel refuses an append of a
process that has not read them since. So no product enters under terms that are no longer in force.

A product that came compressed from another site stays as it is: its origin chose how, and every reader knows how to
expand it.
"""

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from headrace.channel.document import Definition, DefinitionFile
from headrace.channel.subtree import Subtree
from headrace.errors import DictionaryError
from headrace.log.dictionaries import Dictionaries, parse_name, restore
from headrace.log.seams import Packed
from headrace.payload.compression.coding import Coder
from headrace.product.options import CODEC_ZSTD, Compression


class ChannelPacker:
    """What compresses the products of one opened queue (log/seams.py: Packer). Threads may share it."""

    def __init__(self, dictionaries: Dictionaries, changed: Callable[[bool], None]) -> None:
        """`changed` is called with whether any channel compresses."""
        self._dictionaries, self._changed = dictionaries, changed
        self._channels: list[tuple[Subtree, Coder | Definition]] = []
        self._of_feed: dict[str, Coder | None] = {}

    def set_channels(self, definitions: Sequence[Definition]) -> None:
        """Compress the products of these channels from now on, and of no others."""
        self._channels = [(Subtree.of(each.feed), self._coder(each)) for each in definitions]
        self._of_feed = {}
        self._changed(bool(definitions))

    def _coder(self, definition: Definition) -> Coder | Definition:
        """What compresses for a channel; its definition if the queue lacks its dictionary."""
        terms = definition.compression
        assert terms is not None
        if terms.dictionary is None:
            return Coder(terms.level)
        number = parse_name(terms.dictionary)
        found = self._dictionaries.get(number)
        return definition if found is None else Coder(terms.level, found)

    def _coder_of(self, feed: str) -> Coder | None:
        try:
            return self._of_feed[feed]
        except KeyError:
            found = self._channel_of(feed)
        if isinstance(found, Definition):  # its dictionary may be back, or the channel has other terms by now
            channels = DefinitionFile(self._dictionaries.queue).read().channels.values()
            self.set_channels([each for each in channels if each.compression is not None])
            found = self._channel_of(feed)
        if isinstance(found, Definition):
            raise self._missing(found)
        self._of_feed[feed] = found
        return found

    def _channel_of(self, feed: str) -> Coder | Definition | None:
        return next((each for subtree, each in self._channels if subtree.has(feed)), None)

    def _missing(self, definition: Definition) -> DictionaryError:
        name, terms = definition.name, definition.compression
        assert terms is not None
        assert terms.dictionary is not None
        number = parse_name(terms.dictionary)
        queue = self._dictionaries.queue
        return DictionaryError(
            f"{queue} lacks dictionary {terms.dictionary}, with which channel {name!r} compresses its products",
            f"{restore(number, queue)}; or put without it: headrace channel change {shlex.quote(str(queue))} {name} "
            "--dictionary none. Products that do not need it stay readable",
        )

    def packs(self, feed: str) -> bool:
        """Whether a channel compresses products of this feed."""
        return self._coder_of(feed) is not None

    def pack(self, payload: Any, feed: str, bytes_max: int) -> Packed | None:
        """The product as it is to be stored; None: as it is. DictionaryError if the channel's dictionary is missing.

        A payload that the queue refuses anyway is not looked at.
        """
        coder = self._coder_of(feed)
        return None if coder is None else _packed(coder, payload, bytes_max)

    def pack_many(
        self, payloads: Sequence[Any], feeds: str | Sequence[str], bytes_max: int
    ) -> list[Packed | None] | None:
        """As `pack`, for many; None if all are to be stored as they are."""
        if isinstance(feeds, str):
            coder = self._coder_of(feeds)
            if coder is None:
                return None
            packed = [_packed(coder, payload, bytes_max) for payload in payloads]
        else:
            pairs = zip(payloads, feeds, strict=True)
            packed = [self.pack(payload, feed, bytes_max) for payload, feed in pairs]
        return packed if any(packed) else None


def _packed(coder: Coder, payload: Any, bytes_max: int) -> Packed | None:
    try:
        size = len(payload) if payload.__class__ is bytes else memoryview(payload).nbytes
        frame = coder.compress(payload) if size <= bytes_max else None
    except (TypeError, ValueError, BufferError):  # no bytes: the kernel says what is wrong
        return None
    return None if frame is None else Packed(frame, Compression(CODEC_ZSTD, coder.number, size))
