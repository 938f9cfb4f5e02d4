"""Join: large products that were stored as fragments, whole again, from any batches.

    for product in headrace.joined(queue.follow("oldest", "sat/**")):
        ...                                     # products as they are, and large ones joined

A Joiner does the same step by step, for programs that save their position: `safe` is where to go on after a crash,
because everything before it was returned. Every fragment is compared with its hash. What is incomplete is kept up to
`bytes_max`; beyond that the oldest is dropped, and counted. Fragments of files (`headrace send`) are left out, and
counted: `headrace receive` joins those.

A fragment that comes before its manifest is kept, too, as a copy: a view would keep a segment of the queue from being
used again. `safe` stays before it, because its product is not returned yet.
"""

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from headrace.errors import HeadraceError
from headrace.payload.fragments.manifest import HASH_BYTES, Manifest, decode_manifest, hash_of
from headrace.payload.fragments.mark import Mark, mark_of
from headrace.payload.fragments.ranges import Numbers
from headrace.product.batch import Batch
from headrace.product.options import NO_OPTIONS
from headrace.product.product import MadeProduct, Product
from headrace.units import parse_size

_EARLY_MAX = 1024  # fragments that came before their manifest
_LEFT_OUT_MAX = 4096  # transfers whose fragments are left out


@dataclass(slots=True)
class _Joining:
    """One product on its way."""

    first: int  # the sequence of its first part
    head: Product  # its manifest: what the joined product has besides the payload
    manifest: Manifest
    content: mmap.mmap
    held: Numbers


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A product of which parts are missing."""

    feed: str
    ident: str
    first: int  # the sequence of the first part that came
    missing: int  # parts; the manifest counts as one
    parts: int  # with the manifest


@dataclass(slots=True)
class JoinerStatistics:
    """Counts since the start."""

    joined: int = 0
    damaged: int = 0  # fragments that do not match their hash, or no manifest
    dropped: int = 0  # products that were incomplete when `bytes_max` was reached
    files: int = 0  # fragments of files, which are left out
    file_manifests: int = 0  # and manifests of files
    early: int = 0  # fragments that came before their manifest: it comes out of order, or was lost
    early_dropped: int = 0  # of these, no longer kept: they were too many, or `bytes_max` was reached


@dataclass(slots=True)
class Joiner:
    """Joins what passes through `join`, in one thread."""

    bytes_max: int | str = "4GiB"
    statistics: JoinerStatistics = field(default_factory=JoinerStatistics)
    _open: dict[str, _Joining] = field(default_factory=dict)
    _early: dict[tuple[str, int], Product] = field(default_factory=dict)
    _left_out: dict[str, bool] = field(default_factory=dict)  # transfers; True: a file, False: it was dropped
    _next: int = 0

    @property
    def safe(self) -> int:
        """Everything before this sequence was returned, or is no part of a product that is still incomplete."""
        first_early = (early.sequence for early in self._early.values())
        return min([self._next, *(each.first for each in self._open.values()), *first_early])

    def incomplete(self) -> list[Incomplete]:
        """What is not whole yet, of what is kept."""
        found = [
            Incomplete(each.head.feed, each.head.ident, each.first, int((~each.held).sum()), each.manifest.count + 1)
            for each in self._open.values()
        ]
        early: dict[str, list[Product]] = {}
        for (transfer, _), product in self._early.items():
            early.setdefault(transfer, []).append(product)
        for parts in early.values():
            mark = parts[0].options.fragment
            assert mark is not None
            missing = mark.count - len(parts)
            found.append(Incomplete(parts[0].feed, parts[0].ident, parts[0].sequence, missing, mark.count))
        return sorted(found, key=lambda each: each.first)

    def join(self, batch: Batch) -> Iterator[Product]:
        """The products of a batch: those that are whole, and those that have become whole."""
        for product in batch:
            mark = mark_of(product)
            if mark is None:
                yield product
            elif (whole := self._take(product, mark)) is not None:
                yield whole
            self._next = product.sequence + 1
        self._next = batch.next

    def _take(self, product: Product, mark: Mark) -> Product | None:
        joining = self._begin(product, mark) if mark.is_manifest else self._open.get(mark.transfer)
        if joining is None:
            self._keep_early(product, mark)
            return None
        if not mark.is_manifest:
            self._write(joining, product, mark.number)
        if not joining.held.all():
            return None
        del self._open[mark.transfer]
        self.statistics.joined += 1
        return _whole(joining)

    def _begin(self, product: Product, mark: Mark) -> _Joining | None:
        """The manifest has come: make room. None if it is that of a file, is invalid, or is repeated."""
        try:
            manifest = decode_manifest(product.part)
        except HeadraceError:
            self.statistics.damaged += 1
            return None
        if manifest.kind != "product":
            self.statistics.file_manifests += 1
            self._leave_out(mark.transfer, is_file=True)
            return None
        if mark.transfer in self._open or manifest.transfer != mark.transfer or not manifest.has_hashes:
            return self._open.get(mark.transfer)
        self._left_out.pop(mark.transfer, None)
        early = {key: self._early.pop(key) for key in list(self._early) if key[0] == mark.transfer}
        self._make_room(manifest.size)
        content = mmap.mmap(-1, max(1, manifest.size))
        joining = _Joining(product.sequence, product.copy(), manifest, content, np.zeros(manifest.count, np.bool_))
        self._open[mark.transfer] = joining
        for (_, number), fragment in early.items():
            joining.first = min(joining.first, fragment.sequence)
            self._write(joining, fragment, number)
        return joining

    def _make_room(self, size: int) -> None:
        """Drop what is oldest until `size` more bytes may be kept: early fragments first."""
        room = parse_size(self.bytes_max) - size
        kept = sum(each.manifest.size for each in self._open.values())
        early = sum(each.size for each in self._early.values())
        while self._early and kept + early > room:
            early -= self._drop_early()
        while self._open and kept > room:
            transfer = next(iter(self._open))
            kept -= self._open.pop(transfer).manifest.size
            self._leave_out(transfer, is_file=False)
            self.statistics.dropped += 1

    def _leave_out(self, transfer: str, *, is_file: bool) -> None:
        """Its other fragments are not kept: for a file, or what was dropped, no product will come of them."""
        for key in [key for key in self._early if key[0] == transfer]:
            del self._early[key]
            self.statistics.files += is_file
        if len(self._left_out) >= _LEFT_OUT_MAX:
            self._left_out.pop(next(iter(self._left_out)))
        self._left_out[transfer] = is_file

    def _drop_early(self) -> int:
        self.statistics.early_dropped += 1
        return self._early.pop(next(iter(self._early))).size

    def _keep_early(self, product: Product, mark: Mark) -> None:
        """A fragment before its manifest: the order of a feed is kept between sites, unless it failed over."""
        if mark.is_manifest:
            return
        if (is_file := self._left_out.get(mark.transfer)) is not None:
            self.statistics.files += is_file
            return
        self.statistics.early += 1
        if len(self._early) >= _EARLY_MAX:
            self._drop_early()
        if sum(each.size for each in self._early.values()) + product.size > parse_size(self.bytes_max):
            self._make_room(product.size)
        self._early[mark.transfer, mark.number] = product.copy()

    def _write(self, joining: _Joining, product: Product, number: int) -> None:
        manifest, part = joining.manifest, product.part
        wanted = manifest.hashes[number * HASH_BYTES : (number + 1) * HASH_BYTES]
        if number >= manifest.count or part.nbytes != manifest.length_of(number) or hash_of(part) != wanted:
            self.statistics.damaged += 1
            return
        place = number * manifest.fragment_bytes
        joining.content[place : place + part.nbytes] = part
        joining.held[number] = True


def _whole(joining: _Joining) -> Product:
    """The product as it was put; its sequence is that of its manifest, and so is everything else but the payload."""
    head, size = joining.head, joining.manifest.size
    return MadeProduct(
        head.feed, joining.manifest.name, memoryview(joining.content)[:size].toreadonly(), head.sequence,
        head.signature, head.origin, head.origin_sequence, head.previous, head.created_ns, head.inserted_ns,
        head.priority, head.expiry_ns, head.slice, head.properties, NO_OPTIONS,
    )  # fmt: skip


def joined(batches: Iterable[Batch], *, bytes_max: int | str = "4GiB") -> Iterator[Product]:
    """The products of batches (a follower, `queue.read(…).batches()`, `consumer.batches(…)`), large ones joined.

    Products that are not fragments are passed on as they are. What is incomplete at the end is not returned; a Joiner
    says how much that is. A station acknowledges fragments before their product is whole: to lose none in a crash,
    follow with a cursor, and save `Joiner.safe`.
    """
    joiner = Joiner(bytes_max)
    for batch in batches:
        yield from joiner.join(batch)
