"""Inventory: what a site's log holds, product by product, without payloads.

A receiver compares it with its own queue (receive/standby.py). A product is known by its signature, by which a queue
recognises duplicates, and by where, as which number and when it was put. The second is for queues that keep no
signatures, and for products that were evicted here. The time of creation is a part of the name, and is never compared
with a clock: an origin with a new queue counts from 1 again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import FabricMessageError
from headrace.relay.messages.page import QueueId, Sequence64, SiteName

ROWS_MAX = 10_000
ORIGINS_MAX = 4096

Numbers = npt.NDArray[np.uint64]


class InventoryReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the selection wants of the log behind `after` up to `upto`; columns, one value for each product."""

    queue: QueueId
    oldest: Sequence64
    next: Sequence64
    after: Sequence64
    upto: Sequence64
    lost_first: Sequence64  # this range is not available any more
    lost_last: Sequence64
    sequences: Annotated[bytes, msgspec.Meta(max_length=8 * ROWS_MAX)]
    signatures: Annotated[bytes, msgspec.Meta(max_length=16 * ROWS_MAX)]  # zeros: it has none
    origins: Annotated[tuple[SiteName, ...], msgspec.Meta(max_length=ORIGINS_MAX)]
    origin_numbers: Annotated[bytes, msgspec.Meta(max_length=2 * ROWS_MAX)]  # places in `origins`
    origin_sequences: Annotated[bytes, msgspec.Meta(max_length=8 * ROWS_MAX)]
    created_ns: Annotated[bytes, msgspec.Meta(max_length=8 * ROWS_MAX)]
    kinds: Annotated[bytes, msgspec.Meta(max_length=ROWS_MAX)]  # of the signatures
    is_partial: bool = False  # products may be missing from this list: feeds that are not permitted, damaged products


@dataclass(frozen=True, slots=True)
class Identities:
    """By what products are known: who put them, as which number there and when; and their signatures."""

    keys: Numbers  # origin and sequence there
    created: Numbers
    signatures: npt.NDArray[np.void]
    kinds: npt.NDArray[np.uint8]  # of the signatures
    origins: npt.NDArray[np.object_]
    is_ours: npt.NDArray[np.bool_]  # put at the site that asks

    def __len__(self) -> int:
        return len(self.keys)

    def where(self, which: npt.NDArray[Any]) -> "Identities":
        return Identities(
            self.keys[which], self.created[which], self.signatures[which], self.kinds[which], self.origins[which],
            self.is_ours[which],
        )  # fmt: skip


def identities(columns: Any, names: Sequence[str], ours: str = "") -> Identities:
    """Of rows as a Batch has them, with the names that their numbers mean; `ours` is the site that asks."""
    numbers, places = np.unique(columns["origin"], return_inverse=True)
    origins = np.array([names[number] for number in numbers.tolist()], np.object_)
    keys = keys_of(columns["origin"], columns["origin_sequence"], names)
    return Identities(
        keys, columns["created_ns"].copy(), columns["signature"].copy(), columns["kind"].copy(), origins[places],
        (origins == ours)[places],
    )  # fmt: skip


def keys_of(origins: npt.NDArray[np.uint16], sequences: Numbers, names: Sequence[str]) -> Numbers:
    """A number for each product, from its origin and its sequence there."""
    numbers, places = np.unique(origins, return_inverse=True)
    keys: Numbers = sequences + _origin_keys([names[number] for number in numbers.tolist()])[places]
    return keys


def _origin_keys(origins: Sequence[str]) -> Numbers:
    """A number for each origin. Sequences are added to it: products of one origin never share a key."""
    digests = [hashlib.blake2b(origin.encode(), digest_size=8).digest() for origin in origins]
    return np.frombuffer(b"".join(digests), np.uint64)


def make_reply(
    queue: bytes, extent: tuple[int, int], covered: tuple[int, int], lost: tuple[int, int], columns: Any,
    names: Sequence[str], *, is_partial: bool = False,
) -> InventoryReply:  # fmt: skip
    """The reply for these rows of a batch. `extent` is oldest and next, `covered` is after and upto."""
    numbers, places = np.unique(columns["origin"], return_inverse=True)
    return InventoryReply(
        queue, *extent, *covered, *lost,
        columns["sequence"].tobytes(), columns["signature"].tobytes(), tuple(names[number] for number in numbers),
        places.astype(np.uint16).tobytes(), columns["origin_sequence"].tobytes(), columns["created_ns"].tobytes(),
        columns["kind"].tobytes(), is_partial,
    )  # fmt: skip


def rows_of(reply: InventoryReply, ours: str = "") -> tuple[Numbers, Identities]:
    """The sequences in the site's queue, and the products; FabricMessageError if the columns are invalid."""
    sequences, origin_sequences, created = (
        _column(data, np.uint64) for data in (reply.sequences, reply.origin_sequences, reply.created_ns)
    )
    places, kinds = _column(reply.origin_numbers, np.uint16), _column(reply.kinds, np.uint8)
    count = len(sequences)
    if {len(origin_sequences), len(created), len(places), len(kinds), len(reply.signatures) / 16} != {count}:
        raise _invalid("columns of different lengths")
    if count and (np.any(sequences[1:] <= sequences[:-1]) or sequences[0] <= reply.after or sequences[-1] > reply.upto):
        raise _invalid("products out of order or out of range")
    if count and int(places.max()) >= len(reply.origins):
        raise _invalid("an unknown origin")
    keys = origin_sequences + _origin_keys(reply.origins)[places] if count else origin_sequences
    origins = np.array(reply.origins, np.object_)
    signatures = np.frombuffer(reply.signatures, "V16")
    return sequences, Identities(keys, created, signatures, kinds, origins[places], (origins == ours)[places])


def _column(data: bytes, kind: type[np.unsignedinteger[Any]]) -> npt.NDArray[Any]:
    if len(data) % np.dtype(kind).itemsize:
        raise _invalid("a column that ends within a number")
    return np.frombuffer(data, kind)


def _invalid(problem: str) -> FabricMessageError:
    return FabricMessageError(f"an inventory has {problem}", "run the same Headrace version at both sites")
