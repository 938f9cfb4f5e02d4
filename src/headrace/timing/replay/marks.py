"""Marks: products of a replay put into a queue, recognisable as what they are.

    feed          below `replay/`, unless another pattern is given: live readers of the original feed do not see them
    created       as it was: order and age are those of the original
    option replay the run, and the sequence in the source; `product.is_replay` is true
    option hops   0: no other site gets them, unless the replay may be relayed
    signature     made of the run, its lap, and where the product was: a run that is repeated after a crash stores
                  nothing twice, and another run of the same products is not taken for duplicates. A seek back
                  begins another lap: then products come again on purpose
    expiry        shifted: a product lives as long after its put as it did then. One that had expired when it came into
                  the source is left out, and counted
    origin        the queue that they are put into: positions of other sites belong to the products of an origin, and
                  products with old positions would confuse them
    slice         as it was, or that of a channel of the target

Payload, ident, priority, properties and other options are as they were. An origin's signature and a compression belong
to the stored form of the original, and are left out.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, Unpack

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from headrace.errors import BatchTooLargeError, InvalidError, OptionError
from headrace.log.append import Receipt, in_halves
from headrace.log.columns import PutColumns, Texts
from headrace.log.seams import Timeout
from headrace.product.batch import Batch, rows_behind
from headrace.product.feed import check_feed
from headrace.product.options import NO_OPTIONS, EncodedOptions, Options, decode_options, encode_options, replay_blocks
from headrace.product.options import Replay as Mark
from headrace.product.product import NO_SLICE
from headrace.product.properties import decode_properties
from headrace.product.put import SIGNATURE_BYTES

ONTO = "replay/**"
RUN_MAX = (1 << 64) - 1
_EVERY = "**"
_NOT_RELAYED = 0

Words = npt.NDArray[np.uint64]


class Target(Protocol):
    """What products are put into: a queue, local or remote."""

    def put_many(
        self, payloads: Any, *, feed: Texts, ident: Texts = "", timeout: Timeout = None, **facts: Unpack[PutColumns]
    ) -> Receipt: ...


def new_run() -> int:
    """The number of a new run: random, so that no two runs anywhere have the same."""
    return secrets.randbits(64) or 1


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of products."""

    products: int = 0  # that were given
    stored: int = 0
    duplicates: int = 0  # the run had stored them before
    expired: int = 0  # had expired when they came into the source
    refused: int = 0  # the queue can never take them

    def __add__(self, other: "Stored") -> "Stored":
        return Stored(
            self.products + other.products, self.stored + other.stored, self.duplicates + other.duplicates,
            self.expired + other.expired, self.refused + other.refused,
        )  # fmt: skip

    def with_duplicates_stored(self) -> "Stored":
        """For counts of a run over several processes: what one of them has found there, another one has stored."""
        return replace(self, stored=self.stored + self.duplicates, duplicates=0)


@dataclass(frozen=True, slots=True)
class Marks:
    """How products of a run are marked; OptionError if `onto` is invalid."""

    run: int
    onto: str = ONTO  # a feed for all of them, or a pattern whose last level `**` stands for the original feed
    relay: bool = False

    def __post_init__(self) -> None:
        root = self.onto.removesuffix(_EVERY).removesuffix("/")
        if root != "" or not self.onto.endswith(_EVERY):
            try:
                check_feed(root)
            except InvalidError as error:
                raise OptionError(f"onto {self.onto!r}: {error.problem}", 'give a feed, "replay/**" or "**"') from None
        if not 0 < self.run <= RUN_MAX:
            raise OptionError(f"run {self.run!r} is out of range", "leave it out: a new one is drawn")

    def feed(self, original: str) -> str:
        """The feed of a product whose original had this one."""
        return self.onto.removesuffix(_EVERY) + original if self.onto.endswith(_EVERY) else self.onto

    def options(self, original: Options, sequence: int) -> Options:
        hops = original.hops if self.relay else _NOT_RELAYED
        return replace(original, replay=Mark(self.run, sequence), hops=hops, signed=None, compression=None)


class MarkedBatch:
    """A batch on its way into a queue, in pieces if it is too large for one. `counts` says what became of it so far."""

    def __init__(
        self, batch: Batch, marks: Marks, refuse: Callable[[str], None] | None = None, *, lap: int = 0,
        was_put: frozenset[bytes] = frozenset(),
    ) -> None:  # fmt: skip
        """`refuse` is called with a product that the queue can never take; `was_put` are signatures of duplicates."""
        self._facts = _Facts(batch, marks, lap, time.time_ns(), was_put)
        self._refuse = refuse
        self._done = 0  # products that were stored or refused
        self.recognised = self._facts.duplicates  # in `was_put`
        self.counts = Stored(len(batch), duplicates=self.recognised, expired=self._facts.expired)

    def put(self, target: Target, timeout: float | None = None) -> Stored:
        """Put all, or what is left of it; what became of the batch.

        BlockedError after `timeout`, or another error of the queue: call it again, and it goes on behind the pieces
        that were stored.
        """
        base = self._done

        def put(begin: int, end: int) -> None:
            receipt = _put(target, self._facts, base + begin, base + end, timeout)
            self.counts += Stored(stored=receipt.stored, duplicates=receipt.products - receipt.stored)
            self._done = base + end

        def give_up(place: int, error: InvalidError) -> None:
            self.counts += Stored(refused=1)
            self._done = base + place + 1
            if self._refuse is not None:
                self._refuse(f"product {self._facts.sequence(base + place)} is not replayed: {error.problem}")

        in_halves(len(self._facts) - base, put, give_up)
        return self.counts


def _put(target: Target, facts: "_Facts", begin: int, end: int, timeout: float | None) -> Receipt:
    """A channel of the target with slices of its own refuses those of the source: then it gives its own."""
    arguments = facts.arguments(begin, end)
    try:
        return target.put_many(**arguments, timeout=timeout)
    except InvalidError as error:
        if not facts.has_slices or isinstance(error, BatchTooLargeError):
            raise
        return target.put_many(**{**arguments, "slice": None}, timeout=timeout)


class _Facts:
    """The columns of `put_many` for the products of a batch that are to be put."""

    def __init__(self, batch: Batch, marks: Marks, lap: int, now_ns: int, was_put: frozenset[bytes]) -> None:
        columns, given = batch.columns, signatures(batch, marks.run, lap)
        expiry, inserted = columns["expires_ns"].astype(np.int64), columns["inserted_ns"].astype(np.int64)
        lives = (expiry == 0) | (expiry > inserted)
        is_new = np.array([signature not in was_put for signature in given], np.bool_)
        self.expired, self.duplicates = int((~lives).sum()), int((lives & ~is_new).sum())
        places = np.flatnonzero(lives & is_new)
        self._batch = batch if len(places) == len(batch) else batch.take(places)
        self._columns = self._batch.columns
        self._expiry = np.where(expiry == 0, 0, expiry - inserted + now_ns)[places]
        self._marks = marks
        self._signatures = [given[place] for place in places.tolist()]
        self.has_slices = bool((self._columns["slice"] != NO_SLICE).any())

    def __len__(self) -> int:
        return len(self._batch)

    def sequence(self, place: int) -> int:
        return int(self._columns["sequence"][place])

    def arguments(self, begin: int, end: int) -> dict[str, Any]:
        columns, batch = self._columns[begin:end], self._batch
        slices = [None if number == NO_SLICE else number for number in columns["slice"].tolist()]
        expiry = self._expiry[begin:end]
        return {
            "payloads": [batch.payload(place) for place in range(begin, end)],
            "feed": self._feeds(columns),
            "ident": batch.idents[begin:end] if columns["ident_bytes"].any() else "",
            "created": columns["created_ns"],
            "priority": columns["priority"],
            "expiry": expiry if expiry.any() else None,
            "properties": self._properties(begin, end) if columns["properties_bytes"].any() else None,
            "slice": slices if self.has_slices else None,
            "signature": self._signatures[begin:end],
            "options": self._options(begin, end),
        }

    def _feeds(self, columns: npt.NDArray[np.void]) -> list[str]:
        numbers = columns["feed"].tolist()
        feeds = {number: self._marks.feed(self._batch.name(number)) for number in set(numbers)}
        return [feeds[number] for number in numbers]

    def _properties(self, begin: int, end: int) -> list[Any]:
        return [decode_properties(self._batch.property_block(place)) for place in range(begin, end)]

    def _options(self, begin: int, end: int) -> EncodedOptions:
        marks, rows, columns = self._marks, rows_behind(self._batch), self._columns[begin:end]
        blocks = replay_blocks(marks.run, columns["sequence"], marks.options(NO_OPTIONS, 0).hops)
        for index in np.flatnonzero(columns["options_bytes"]).tolist():
            original = decode_options(rows.options(begin + index))
            blocks[index] = encode_options(marks.options(original, self.sequence(begin + index)))
        return blocks


# --- signatures -------------------------------------------------------------------------------------


def signatures(batch: Batch, run: int, lap: int = 0) -> list[bytes]:
    """For each product 16 bytes that only this product in this lap of this run has, the same whenever it is put.

    The first word is a permutation of the sequences, so products of one queue never collide. The second one is made of
    origin, sequence there, feed and time of creation: rows of an archive may have the same sequence.
    """
    columns = batch.columns
    salt = _mixed(_mixed(np.array([run], np.uint64)) + np.uint64(lap))
    first = _mixed(columns["sequence"] ^ salt)
    second = _mixed(columns["origin_sequence"] ^ salt)
    for words in (columns["created_ns"], _name_words(batch, "feed"), _name_words(batch, "origin")):
        second = _mixed(second ^ words)
    data = np.stack([first, second], axis=1).tobytes()
    return [data[place : place + SIGNATURE_BYTES] for place in range(0, len(data), SIGNATURE_BYTES)]


def _mixed(words: Words) -> Words:
    """SplitMix64: a permutation of 64-bit words in which each bit depends on all."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _name_words(batch: Batch, field: str) -> Words:
    numbers, places = np.unique(batch.columns[field], return_inverse=True)
    return np.array([_name_word(batch.name(int(number))) for number in numbers], np.uint64)[places]


@lru_cache(4096)
def _name_word(name: str) -> int:
    return int.from_bytes(blake3(name.encode()).digest(8), "little")
