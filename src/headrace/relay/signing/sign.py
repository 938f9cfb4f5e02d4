"""Signing: products that were put at this site leave it with its signature.

Products lie in the queue without one: any program on the machine may put them, and only the site has the key. A page
that leaves is signed as a whole, with one signature for up to 128 products, and without waiting for more. What was
signed is kept for a while, because a product may leave in several streams.

Not here: products of other origins, which pass as they came.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headrace.errors import HeadraceError, OptionError
from headrace.product.batch import Batch
from headrace.relay.messages.page import records_of
from headrace.relay.signing.covered import PROOF, SIGNED, Entries, leaf_of, parts_of, with_options
from headrace.relay.signing.keyring import key_id, public_of
from headrace.relay.signing.tree import LEAVES_MAX, grow

DOMAIN = b"headrace products 1\0"  # in front of the root; the key signs nothing else that begins so
_KEPT = 1 << 14  # products whose signature is remembered

Places = npt.NDArray[np.uint32]


class Signer:
    """Of one site. Threads may share it."""

    def __init__(self, origin: str, key: Ed25519PrivateKey) -> None:
        self._origin, self._key = origin, key
        self.id = key_id(public_of(key))
        self._kept: OrderedDict[int, Entries] = OrderedDict()  # by sequence
        self._lock = threading.Lock()
        self.signatures = self.products = 0

    def records(self, batch: Batch, rows: Places | None = None) -> bytes:
        """The records of a batch as they leave: all, or those of `rows`."""
        places = list(range(len(batch))) if rows is None else rows.tolist()
        own = self._own(batch)
        if not own.any():
            return records_of(batch, rows)
        with self._lock:
            entries = self._entries(batch, [place for place in places if own[place]], own)
        return b"".join(_padded(_with(batch.record(place), entries.get(place))) for place in places)

    def _own(self, batch: Batch) -> npt.NDArray[np.bool_]:
        numbers = np.unique(batch.columns["origin"])
        ours = [number for number in numbers.tolist() if batch.names[number] == self._origin]
        return np.isin(batch.columns["origin"], ours)

    def _entries(self, batch: Batch, places: list[int], own: npt.NDArray[np.bool_]) -> dict[int, Entries]:
        """The options that sign these products. If one is new, all of the batch are signed: others leave soon."""
        sequences = batch.columns["sequence"]
        if not all(int(sequences[place]) in self._kept for place in places):
            places = np.flatnonzero(own).tolist()
        found = {place: kept for place in places if (kept := self._kept.get(int(sequences[place])))}
        leaves = {place: leaf for place in places if place not in found and (leaf := _leaf(batch, place))}
        new = list(leaves)
        for begin in range(0, len(new), LEAVES_MAX):
            some = new[begin : begin + LEAVES_MAX]
            for place, entries in zip(some, self._sign(batch, some, leaves), strict=True):
                found[place] = self._kept[int(sequences[place])] = entries
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found

    def _sign(self, batch: Batch, places: list[int], leaves: dict[int, bytes]) -> Iterator[Entries]:
        root, paths = grow([leaves[place] for place in places])
        signed = self.id.to_bytes(8, "little") + self._key.sign(DOMAIN + root)
        self.signatures, self.products = self.signatures + 1, self.products + len(places)
        for number, place in enumerate(places):
            put_ns, kind = int(batch.columns["inserted_ns"][place]), int(batch.columns["kind"][place])
            yield [(SIGNED, signed), (PROOF, put_ns.to_bytes(8, "little") + bytes([number, kind]) + paths[number])]


def _leaf(batch: Batch, place: int) -> bytes | None:
    """None of a payload that cannot be expanded: such a product leaves without a signature."""
    parts, put_ns = parts_of(batch.record(place)), int(batch.columns["inserted_ns"][place])
    try:
        return leaf_of(parts, batch.payload(place), put_ns, parts.kind)
    except HeadraceError:
        return None


def _with(record: bytes, entries: Entries | None) -> bytes:
    """The record with these options; as it is, if they do not fit in."""
    if entries is None:
        return record
    try:
        return with_options(parts_of(record), entries)
    except OptionError:
        return record


def _padded(record: bytes) -> bytes:
    return record + bytes(-len(record) % 8)
