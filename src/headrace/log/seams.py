"""Seams: what the log is given from outside, each as a Protocol.

    Clock      where the time comes from; tests pass `headrace.testing.MockClock`
    Storage    how files become durable; tests pass `headrace.testing.PowerCut`
    Gate       what may make an append wait: a blocking station that is full
    Assigner   what gives products their slices: the terms of channels
    Packer     what compresses products: the terms of channels
    Resident   what else has files in the queue's directory: stations and channels

The log knows neither stations nor channels; `queue/queue.py` joins the parts through `Gate`, `Assigner`,
`Packer` and `Resident`.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.files import open_regular
from headrace.kernel import _kernel as kernel
from headrace.product.options import Compression
from headrace.product.product import Product
from headrace.units import parse_age

RECHECK_S = 0.2  # longest sleep: the process that should wake us may have died

Timeout = float | str | timedelta | None


class Clock(Protocol):
    """Where the time comes from. A queue without a clock reads the machine's clocks inside the kernel."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970, UTC: the wall clock, which may jump."""

    def elapsed_ns(self) -> int:
        """Nanoseconds since some fixed moment: never 0, never backwards. It decides ages."""


class Storage(Protocol):
    """How files become durable.

    Data reaches the page cache by plain stores to mapped memory, which survives the process. Only these two calls make
    it survive the machine.
    """

    def sync_file(self, path: Path) -> None:
        """After return, the file's contents survive a power failure. FileNotFoundError if it does not exist."""

    def sync_directory(self, path: Path) -> None:
        """After return, the names of the files in the directory survive a power failure."""


class Disk:
    """The real storage: fdatasync and fsync."""

    def sync_file(self, path: Path) -> None:
        descriptor = open_regular(path, os.O_RDWR)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Wait:
    """How long one append may wait at gates, and what it has seen there so far."""

    def __init__(self, timeout: Timeout) -> None:
        self.begun_s = time.monotonic()
        self._deadline = None if timeout is None else self.begun_s + parse_age(timeout, "timeout")
        self.seen: dict[int, int] = {}

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; without a deadline, how long to sleep at most."""
        return RECHECK_S if self._deadline is None else self._deadline - time.monotonic()


class Gate(Protocol):
    """What may make appends wait."""

    def make_way(self, error: kernel.KernelError, wait: Wait) -> None:
        """Remove the reason why the kernel refused an append, or wait until it is gone; an error after the timeout."""

    def make_gates(self) -> None:
        """Tell the kernel which appends to refuse and which products to keep."""

    def save(self, storage: Storage) -> None:
        """Make the positions of the stations behind the gate survive a power failure."""


@dataclass(frozen=True, slots=True)
class Entering:
    """Products of one call that are not stored yet."""

    products: Sequence[Product]  # without sequence and insertion time
    feeds: Sequence[str]
    slices: npt.NDArray[np.uint16]  # as they came


@dataclass(frozen=True, slots=True)
class Assigned:
    """The slices that functions of users gave to the products of one call, under the channels of that number."""

    slices: npt.NDArray[np.uint16]
    number: int


class Assigner(Protocol):
    """What gives products their slices, where the kernel alone cannot."""

    calls: bool  # a channel names a function of a user, as far as is known here

    def make_way(self, error: kernel.KernelError) -> None:
        """Bring the kernel's table of channels up to date; or raise why the slice of a product is refused."""

    def assign(self, entering: Entering) -> Assigned:
        """Call the functions of users."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A payload as it is to be stored, and what its record says of that."""

    payload: bytes
    compression: Compression


class Packer(Protocol):
    """What compresses products that enter the log, before any lock is taken."""

    def packs(self, feed: str) -> bool:
        """Whether products of this feed are compressed."""

    def pack(self, payload: Any, feed: str, bytes_max: int) -> Packed | None:
        """The product as it is to be stored; None: as it is. One above `bytes_max` is refused anyway."""

    def pack_many(
        self, payloads: Sequence[Any], feeds: str | Sequence[str], bytes_max: int
    ) -> list[Packed | None] | None:
        """As `pack`, for many; None if all are to be stored as they are."""


class Resident(Protocol):
    """A part of the queue other than the log that has files in its directory."""

    file: str  # the document that lists its files; repair moves a damaged one aside

    def validate(self, path: Path) -> None:
        """Raise if the document of the queue at `path` is invalid, before anything is changed."""

    def settle(self, log: kernel.Log, path: Path, storage: Storage, trusted: bool) -> None:
        """Make its files ready for use. The caller is alone. `trusted`: the machine has not restarted since."""

    def forget(self, log: kernel.Log, path: Path) -> list[str]:
        """During a repair, after a damaged document was moved aside: make the rest agree; what was done, in words."""

    def check(self, log: kernel.Log, path: Path) -> list[str]:
        """Every inconsistency, in words."""
