"""Sending: the account of one transfer at its sender, and what is told of all of them.

Which fragments are to be sent, where in the queue those are that were put, their hashes, and what each receiver has
told. It follows from receipts what has to be sent again: what a receiver misses although it has read beyond it.

Not here: when fragments are put (sender.py), and how many may be on their way (flow.py).
"""

import time
from dataclasses import dataclass, field
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from headrace.errors import HeadraceError, SourceChangedError, TransferError
from headrace.payload.fragments.manifest import HASH_BYTES, Manifest, hash_of, zeros_hash
from headrace.payload.fragments.ranges import Numbers, numbers_of
from headrace.payload.fragments.receipt import Receipt, TransferState
from headrace.payload.fragments.source import Source
from headrace.units import format_size

ATTEMPTS_MAX = 20  # of one fragment
NOTHING_CAME_MAX = 5  # attempts if no fragment at all has reached a receiver that reads
ON_ITS_WAY = np.iinfo(np.int64).max  # instead of a sequence: it is being put
_KNOWN_ANSWER_S = 10.0  # that a receiver has to answer after it was heard of


@dataclass(frozen=True, slots=True)
class Sent:
    """A transfer is finished at the receivers: done, or refused, or withdrawn by the sender."""

    name: str
    size: int
    state: str  # done, refused, withdrawn, put
    receivers: tuple[str, ...] = ()
    problem: str = ""


@dataclass(slots=True)
class SenderStatistics:
    files: int = 0
    bytes: int = 0  # of all files
    finished: int = 0
    failed: int = 0
    sent_bytes: int = 0  # by this process
    again_bytes: int = 0  # of these, sent by this process before
    held_bytes: int = 0  # that were not sent, because receivers had them already
    hole_bytes: int = 0  # of sparse files, which are not sent either
    ignored_receipts: int = 0  # of other sites than those whose receipts count
    waits_for: str = ""  # empty while it sends


@dataclass(slots=True)
class Sending:
    """One transfer. Threads may call `read` at once, for different fragments; everything else is for one thread."""

    source: Source
    manifest: Manifest
    to_send: Numbers
    sent: npt.NDArray[np.int64]  # the sequence of each fragment; 0: not sent by this process
    attempts: npt.NDArray[np.uint8]
    hashes: npt.NDArray[np.uint8]
    hashed: Numbers
    begun: int = 0  # the sequence of the first manifest
    answer_by: float = 0.0  # no fragment is sent before, unless a receiver has answered
    has_answer: bool = False
    has_end: bool = False  # the manifest with the hashes was put
    held: dict[str, Numbers] = field(default_factory=dict)  # by receiver
    final: dict[str, TransferState] = field(default_factory=dict)  # done or refused, by receiver
    problem: str = ""  # of a receiver that waits

    @classmethod
    def of(cls, source: Source, manifest: Manifest) -> Self:
        """A transfer of which nothing was sent. What has one fragment is hashed now, and needs one manifest."""
        count = manifest.count
        made = cls(
            source, msgspec.structs.replace(manifest, asks=True), ~numbers_of(manifest.holes, count),
            np.zeros(count, np.int64), np.zeros(count, np.uint8), np.zeros((count, HASH_BYTES), np.uint8),
            np.zeros(count, np.bool_),
        )  # fmt: skip
        if count <= 1:
            made.end()
        return made

    @property
    def held_bytes(self) -> int:
        """What receivers had already: bytes that were not sent, without holes. Nothing of a file that was refused."""
        if self.final and all(state.state == "refused" for state in self.final.values()):
            return 0
        return self._bytes_of((self.sent == 0) & ~self.to_send & ~self._holes)

    @property
    def hole_bytes(self) -> int:
        """Bytes of holes, which are not sent."""
        return self._bytes_of(self._holes)

    @property
    def _holes(self) -> Numbers:
        return numbers_of(self.manifest.holes, self.manifest.count)

    def _bytes_of(self, numbers: Numbers) -> int:
        if not numbers.any():
            return 0
        last = self.manifest.count - 1
        short = self.manifest.fragment_bytes - self.manifest.length_of(last) if numbers[last] else 0
        return int(numbers.sum()) * self.manifest.fragment_bytes - short

    @property
    def is_sent(self) -> bool:
        return self.has_end and not self.to_send.any()

    @property
    def waits_for_answer(self) -> bool:
        """Whether a receiver may still tell what it has already."""
        return not self.has_answer and time.monotonic() < self.answer_by and not self.sent.any()

    # --- hashes -----------------------------------------------------------------------------------

    def read(self, number: int, buffer: memoryview) -> memoryview:
        """Read one fragment into the buffer, and hash it. SourceChangedError if it differs from what was sent."""
        self.source.read(number * self.manifest.fragment_bytes, buffer)
        digest = np.frombuffer(hash_of(buffer), np.uint8)
        if self.hashed[number] and (self.hashes[number] != digest).any():
            raise SourceChangedError(f"{self.source.path} changed while it was sent", "send it again")
        self.hashes[number] = digest
        self.hashed[number] = True
        return buffer

    def end(self) -> None:
        """Put the hashes of all fragments into the manifest. OSError, SourceChangedError: the file cannot be sent."""
        self._hash_rest()
        if self.manifest.count > 1:
            self.source.check_unchanged()
        self.manifest = msgspec.structs.replace(self.manifest, hashes=self.hashes.tobytes(), asks=True)
        self.has_end = True

    def _hash_rest(self) -> None:
        """Hash the fragments that were not sent: those that receivers have, and holes."""
        for number in np.flatnonzero(self._holes & ~self.hashed).tolist():
            digest = zeros_hash(self.manifest.length_of(number))
            self.hashes[number], self.hashed[number] = np.frombuffer(digest, np.uint8), True
        for number in np.flatnonzero(~self.hashed).tolist():
            self.read(number, memoryview(bytearray(self.manifest.length_of(number))))

    def signature(self, number: int, session: bytes) -> bytes:
        """The same for the first attempts of all processes; another one for each repetition."""
        attempt = int(self.attempts[number])
        again = session + attempt.to_bytes(4) if attempt else b""
        return blake3(bytes.fromhex(self.manifest.transfer) + number.to_bytes(4) + again).digest(16)

    # --- receipts ---------------------------------------------------------------------------------

    def take_state(self, receipt: Receipt, state: TransferState, is_fresh: bool) -> bool:
        """Note what a receiver says, which is `fresh` if it has seen our manifest; whether that is progress.

        TransferError if it asks for the same fragment again and again.
        """
        if state.state in ("done", "refused"):
            if is_fresh:
                self.final[receipt.receiver] = state
                self.has_answer = True
            return is_fresh
        if state.state == "unknown" or state.exact_to > self.manifest.count:
            return False
        try:
            missing = numbers_of(state.missing, self.manifest.count)
        except HeadraceError:
            return False
        exact = np.arange(self.manifest.count) < state.exact_to
        before, now = self.held.get(receipt.receiver), exact & ~missing
        self.held[receipt.receiver] = now
        self.answer_by = max(self.answer_by, time.monotonic() + (0.0 if is_fresh else _KNOWN_ANSWER_S))
        if is_fresh:
            self.has_answer, self.problem = True, state.problem
            lost = exact & missing & (self.sent <= receipt.seen)
            self._check_attempts(lost, receipt)
            self.to_send |= lost
        self.to_send &= ~np.logical_and.reduce(list(self.held.values()))  # what every receiver has that told about it
        return before is None or bool(now.sum() > before.sum())

    def _check_attempts(self, lost: Numbers, receipt: Receipt) -> None:
        attempts = int(self.attempts[lost].max(initial=0))
        has_come = (self.held[receipt.receiver] & ~numbers_of(self.manifest.holes, self.manifest.count)).any()
        if attempts >= NOTHING_CAME_MAX and not has_come:
            raise TransferError(
                f"manifests of {self.manifest.name} reach receiver {receipt.where}, and none of its fragments of "
                f"{format_size(self.manifest.fragment_bytes)} does, after {attempts} attempts",
                "a site on the way refuses them if they exceed a quarter of its queue (headrace sites names the "
                "problem): enlarge that queue, or send through a smaller one",
            )
        if attempts >= ATTEMPTS_MAX:
            raise TransferError(
                f"receiver {receipt.where} asked {ATTEMPTS_MAX} times for the same fragment of {self.manifest.name}",
                "check its disk and its queue (headrace queue check)",
            )
