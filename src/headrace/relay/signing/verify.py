"""Verification: which products that arrive are signed by their origin, and which must be.

    require   a product without a valid signature is refused
    accept    a product with an invalid signature is refused; one without is treated as if there were no keys
    off       signatures are not looked at

The first [[verify]] whose patterns match the feed decides; `accept` if none does. A signature by a key that is not
known here proves nothing, and counts as none. One by a revoked key, by a key that was not in force when the product was
put, or of another content, is invalid. An old product that could be taken for a new one (replays.py) is refused, too.

A signature of a batch is verified once, and remembered for its other products.

Not here: who may bring products of other origins; a signed product may come from anybody (receive/admission.py).
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from headrace.errors import ProductDamagedError
from headrace.kernel import _kernel as kernel
from headrace.product.batch import Batch
from headrace.product.cause import Cause
from headrace.product.feed import FeedPattern
from headrace.relay.messages.page import Page
from headrace.relay.signing.covered import PROOF, SIGNED, Parts, leaf_of, parts_of
from headrace.relay.signing.keyring import KeyRing
from headrace.relay.signing.replays import Replays
from headrace.relay.signing.sign import DOMAIN
from headrace.relay.signing.tree import DIGEST_BYTES, LEVELS_MAX, root_of

Mode = Literal["require", "accept", "off"]
Mask = npt.NDArray[np.bool_]
Verdicts = npt.NDArray[np.uint8]
Times = npt.NDArray[np.uint64]
SOUND, UNSIGNED, INVALID, REPLAYED, UNSEEN = range(5)
CAUSES: Mapping[int, Cause] = {UNSIGNED: "not signed", INVALID: "invalid signature", REPLAYED: "replayed"}
EXPAND_RATIO, EXPAND_FREE = 64, 1 << 16  # a compressed payload that expands beyond this is not verified
_BATCHES = 8  # that are on their way into the queue
_ROOTS = 4096  # signatures of batches that are remembered
_HEAD_BYTES = 10  # of the option: when it was put, place, kind


@dataclass(frozen=True, slots=True)
class VerifyRule:
    """One [[verify]]."""

    feeds: tuple[str, ...]
    mode: Mode


class Verifier:
    """Of one site. Threads may share it."""

    def __init__(self, keys: KeyRing, rules: Sequence[VerifyRule], replays: Replays) -> None:
        self.keys, self.replays = keys, replays
        self._rules = [(tuple(FeedPattern(feed) for feed in rule.feeds), rule.mode) for rule in rules]
        self._roots: OrderedDict[tuple[bytes, bytes, int], bool] = OrderedDict()
        self._lock = threading.Lock()
        self._judged: deque[tuple[Batch, Verdicts, Times]] = deque(maxlen=_BATCHES)
        self.mode_of = lru_cache(maxsize=65_536)(self._mode_of)

    def _mode_of(self, feed: str) -> Mode:
        for patterns, mode in self._rules:
            if any(pattern.matches(feed) for pattern in patterns):
                return mode
        return "accept"

    def verdicts(self, batch: Batch) -> Verdicts:
        """For each product SOUND, or what is wrong with its signature; UNSEEN where [[verify]] says `off`.

        DictionaryError if a payload cannot be expanded now.
        """
        return self._judge(batch)[0]

    def _judge(self, batch: Batch) -> tuple[Verdicts, Times]:
        """The verdicts, and when each product was put; of the latest batches they are remembered."""
        with self._lock:
            for judged, verdicts, put_ns in self._judged:
                if judged is batch:
                    return verdicts, put_ns
        put_ns = np.zeros(len(batch), np.uint64)
        verdicts = self._verdicts(batch, put_ns)
        with self._lock:
            self._judged.append((batch, verdicts, put_ns))
        return verdicts, put_ns

    def _verdicts(self, batch: Batch, when: Times) -> Verdicts:
        columns = batch.columns
        verdicts = np.full(len(batch), UNSIGNED, np.uint8)
        feeds = columns["feed"]
        for number in np.unique(feeds).tolist():
            if self.mode_of(batch.names[number]) == "off":
                verdicts[feeds == number] = UNSEEN
        seen: set[tuple[int, int]] = set()  # origin and sequence, which are signed
        for place in np.flatnonzero((columns["options_bytes"] > 0) & (verdicts == UNSIGNED)).tolist():
            verdicts[place], when[place] = self._verdict(batch, place)
            if verdicts[place] == SOUND:
                product = (int(columns["origin"][place]), int(columns["origin_sequence"][place]))
                verdicts[place] = REPLAYED if product in seen else SOUND
                seen.add(product)
        return verdicts

    def vouched_in(self, page: Page) -> Mask | None:
        """Which products of a page are proved to be of their origin; None: none is."""
        found: Mask = self.verdicts(page.batch) == SOUND
        return found if found.any() else None

    def refused(self, batch: Batch) -> Verdicts | None:
        """For each product 0, or why it is refused, a key of CAUSES; None: none is."""
        verdicts = self.verdicts(batch)
        refused = np.where((verdicts == INVALID) | (verdicts == REPLAYED), verdicts, 0).astype(np.uint8)
        unsigned = verdicts == UNSIGNED
        if unsigned.any():
            feeds = batch.columns["feed"]
            for number in np.unique(feeds[unsigned]).tolist():
                if self.mode_of(batch.names[number]) == "require":
                    refused[unsigned & (feeds == number)] = UNSIGNED
        return refused if refused.any() else None

    def note(self, batch: Batch, stored: Mask | None) -> None:
        """These products were stored: what is older than they are may be a replay."""
        verdicts, put_ns = self._judge(batch)
        sound = verdicts == SOUND
        places = np.flatnonzero(sound if stored is None else sound & stored)
        columns = batch.columns
        order = places[np.lexsort((columns["origin_sequence"][places], put_ns[places]))]
        newest = {(int(columns["origin"][place]), int(columns["feed"][place])): place for place in order.tolist()}
        for (origin, feed), place in newest.items():
            self.replays.note(
                batch.names[origin], batch.names[feed], int(put_ns[place]), int(columns["origin_sequence"][place])
            )

    # --- one product --------------------------------------------------------------------------------

    def _verdict(self, batch: Batch, place: int) -> tuple[int, int]:
        """The verdict, and when the product was put, if its signature says so."""
        parts = parts_of(batch.record(place))
        options = dict(parts.options)
        signed, proof = options.get(SIGNED), options.get(PROOF)
        if signed is None and proof is None:
            return UNSIGNED, 0
        if signed is None or proof is None or not _is_proof(proof):
            return INVALID, 0
        put_ns = int.from_bytes(proof[:8], "little")
        origin = batch.names[int(batch.columns["origin"][place])]
        standing, key = self.keys.find(origin, int.from_bytes(signed[:8], "little"), put_ns)
        if standing == "unknown":
            return UNSIGNED, 0
        if key is None or not self._is_signed(batch, place, parts, key):
            return INVALID, 0
        feed, sequence = batch.names[int(batch.columns["feed"][place])], int(batch.columns["origin_sequence"][place])
        is_new = self.replays.is_new(origin, feed, put_ns, sequence, is_recognised=proof[9] != 0)
        return (SOUND if is_new else REPLAYED), put_ns

    def _is_signed(self, batch: Batch, place: int, parts: Parts, key: Ed25519PublicKey) -> bool:
        options = dict(parts.options)
        signed, proof = options[SIGNED], options[PROOF]
        put_ns, number, kind, path = int.from_bytes(proof[:8], "little"), proof[8], proof[9], proof[_HEAD_BYTES:]
        if kind not in (0, parts.kind) or number >> (len(path) // DIGEST_BYTES):
            return False
        if kind == 0 and parts.kind == kernel.SIGNATURE_GIVEN:
            return False  # its origin gave it none: a relay may compute one, and not make one up
        if parts.header[1] * EXPAND_RATIO + EXPAND_FREE < int(batch.sizes[place]):
            return False
        try:
            leaf = leaf_of(parts, batch.payload(place), put_ns, kind)
        except ProductDamagedError:
            return False
        return self._is_root_signed(root_of(leaf, number, path), signed, key)

    def _is_root_signed(self, root: bytes, signed: bytes, key: Ed25519PublicKey) -> bool:
        known = (root, signed, id(key))
        with self._lock:
            if known in self._roots:
                return self._roots[known]
        try:
            key.verify(signed[8:], DOMAIN + root)
            is_signed = True
        except InvalidSignature:
            is_signed = False
        with self._lock:
            self._roots[known] = is_signed
            while len(self._roots) > _ROOTS:
                self._roots.popitem(last=False)
        return is_signed


def _is_proof(proof: bytes) -> bool:
    levels, rest = divmod(len(proof) - _HEAD_BYTES, DIGEST_BYTES)
    return rest == 0 and 0 <= levels <= LEVELS_MAX
