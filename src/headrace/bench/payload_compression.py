"""Compression of the generator's feeds, beside LZ4 and no compression: part of `headrace bench payload`.

    shrink    each product by itself, without a queue: LZ4, zstd, and zstd with a dictionary
    queue     the same products put into a queue and read from it: not compressed, compressed, with a dictionary

A dictionary is trained with the first half of the products of a feed, and everything is measured with the second half.
A ratio is bytes as put, divided by bytes as stored: a product that would not shrink by a sixteenth counts as it is, and
a compressed one with the bytes that its record needs to say so. Rates count bytes as put. The best of some rounds
counts, since other work on the machine can only slow a round down.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard

from headrace.bench.report import Announce, Figure
from headrace.channel.compression import LEVEL_DEFAULT
from headrace.errors import DictionaryError, HeadraceError
from headrace.log.dictionaries import Dictionary, zstd_dictionary
from headrace.payload.compression.coding import RECORD_OVERHEAD, Coder
from headrace.payload.compression.training import train
from headrace.queue import Queue
from headrace.testing.generator import FeedGenerator
from headrace.testing.profiles import PROFILES

NOT_MEASURED = ["compression: other levels than the default, and several threads that put at once"]
FEED_BYTES = 8 << 20  # of each feed; half of it trains
_PRODUCTS_MIN, _PRODUCTS_MAX = 60, 20_000
_SIZE_MAX = 128 << 10
_ROUNDS = 3
_BATCH = 500
_SHRUNK = 0.95  # of the bytes: above it, too few products are compressed for a rate of their expansion
_LEAST = 16  # a product is stored compressed if that saves one part of so many


@dataclass(frozen=True, slots=True)
class Codec:
    """One way to compress a payload, and to expand it again."""

    name: str
    what: str
    compress: Callable[[bytes], bytes | None]
    expand: Callable[[bytes, int], Any]


@dataclass(frozen=True, slots=True)
class Feed:
    """Products of one kind, and a dictionary for them; None if they do not make one."""

    kind: str
    samples: list[bytes]  # that train
    payloads: list[bytes]  # that are measured
    dictionary: Dictionary | None


def figures(place: Path, scale: float, progress: Announce) -> Iterator[Figure]:
    """All figures about compression."""
    feeds = []
    for kind in PROFILES:
        progress(f"compression of feed {kind}")
        feed = _feed(kind, max(256 << 10, int(FEED_BYTES * scale)))
        feeds.append(feed)
        for codec in _codecs(feed.dictionary):
            yield _shrink(feed, codec)
    for words in ("", "zstd", "dictionary"):
        progress(f"a queue {_HOW[words]}")
        yield from _through_queue(place, feeds, words)


def _feed(kind: str, bytes_max: int) -> Feed:
    payloads: list[bytes] = []
    total = 0
    drafts = FeedGenerator(seed=1, feeds=[kind], duplicates=0.0, size_max=_SIZE_MAX, giants=False)
    for draft in islice(drafts, _PRODUCTS_MAX):
        payloads.append(draft.payload)
        total += len(draft.payload)
        if total >= bytes_max and len(payloads) >= _PRODUCTS_MIN:
            break
    half = len(payloads) // 2
    try:
        dictionary = train(payloads[:half], kind).dictionary
    except DictionaryError:  # nothing in common
        dictionary = None
    return Feed(kind, payloads[:half], payloads[half:], dictionary)


# --- each product by itself -----------------------------------------------------------------------


def _codecs(dictionary: Dictionary | None) -> Iterator[Codec]:
    yield Codec("lz4", "LZ4", _lz4, lambda frame, size: pa.decompress(frame, size, codec="lz4_raw", asbytes=True))
    yield _zstd("zstd", "zstd", None)
    if dictionary is not None:
        yield _zstd("dictionary", "zstd with a dictionary", dictionary)


def _lz4(payload: bytes) -> bytes:
    frame: bytes = pa.compress(payload, codec="lz4_raw", asbytes=True)
    return frame


def _zstd(name: str, what: str, dictionary: Dictionary | None) -> Codec:
    coder = Coder(LEVEL_DEFAULT, dictionary)
    data = None if dictionary is None else zstd_dictionary(dictionary.content)
    expander = zstandard.ZstdDecompressor(dict_data=data)
    return Codec(name, what, coder.compress, lambda frame, size: expander.decompress(frame, size))


def _shrink(feed: Feed, codec: Codec) -> Figure:
    payloads = feed.payloads
    frames = [codec.compress(payload) for payload in payloads]
    stored = sum(_stored(payload, frame) for payload, frame in zip(payloads, frames, strict=True))
    pairs = [(frame, len(payload)) for payload, frame in zip(payloads, frames, strict=True) if frame is not None]
    whole = sum(map(len, payloads))
    in_s = _best_s(lambda: [codec.compress(payload) for payload in payloads])
    out_s = _best_s(lambda: [codec.expand(frame, size) for frame, size in pairs])
    rates = f"compress {whole / in_s / 1e6:,.0f} MB/s"
    if stored < whole * _SHRUNK:
        rates += f", expand {sum(size for _, size in pairs) / out_s / 1e6:,.0f} MB/s"
    mean = whole // len(payloads)
    return Figure(
        f"ratio-{feed.kind}-{codec.name}", f"{feed.kind}, {mean:,} B: {codec.what}", whole / stored, "×", 1.0,
        beside=rates,
    )  # fmt: skip


def _stored(payload: bytes, frame: bytes | None) -> int:
    size = len(payload)
    worth = frame is not None and len(frame) + RECORD_OVERHEAD <= size - size // _LEAST
    return len(frame) + RECORD_OVERHEAD if frame is not None and worth else size


def _best_s(act: Callable[[], object]) -> float:
    return min(_taken_s(act) for _ in range(_ROUNDS))


def _taken_s(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


# --- a queue --------------------------------------------------------------------------------------

_HOW = {
    "": "that does not compress",
    "zstd": "that compresses",
    "dictionary": "that compresses with a dictionary for each feed",
}


def _through_queue(place: Path, feeds: list[Feed], words: str) -> Iterator[Figure]:
    """Put all products, and read them with their payloads."""
    whole = sum(sum(map(len, feed.payloads)) for feed in feeds)
    puts, reads, stored = [], [], 0
    for _ in range(_ROUNDS):
        path = place / "payload.queue"
        with Queue.create(path, size=max(64 << 20, 6 * whole), dedup="none", origin="bench") as queue:
            _set_channels(queue, feeds, words)
            first, held = queue.next, queue.statistics().held_bytes
            puts.append(_taken_s(lambda queue=queue: _put_all(queue, feeds)))  # type: ignore[misc]
            stored = queue.statistics().held_bytes - held
            reads.append(_taken_s(lambda queue=queue, first=first: _read_all(queue, first, whole)))  # type: ignore[misc]
        Queue.remove(path)
    name, what = words or "none", _HOW[words]
    saved = f"{whole / max(1, stored):.1f} times smaller than put"
    yield Figure(f"queue-put-{name}", f"put into a queue {what}", whole / min(puts) / 1e6, "MB/s", beside=saved)
    yield Figure(f"queue-read-{name}", f"read from a queue {what}", whole / min(reads) / 1e6, "MB/s")


def _set_channels(queue: Queue, feeds: list[Feed], words: str) -> None:
    for feed in feeds if words else ():
        channel = queue.channel(feed.kind, f"{feed.kind}/**", compress="zstd")
        if words == "dictionary" and feed.dictionary is not None:
            queue.put_many(feed.samples, feed=feed.kind)
            channel.change(compress="zstd", dictionary=queue.train_dictionary(feed.kind).dictionary.name)


def _put_all(queue: Queue, feeds: list[Feed]) -> None:
    for feed in feeds:
        for place in range(0, len(feed.payloads), _BATCH):
            queue.put_many(feed.payloads[place : place + _BATCH], feed=feed.kind)


def _read_all(queue: Queue, first: int, whole: int) -> None:
    found = sum(len(product.payload) for product in queue.read(first))
    if found != whole:
        raise HeadraceError(f"{found} of {whole} bytes were read", "repeat it with another --place")
