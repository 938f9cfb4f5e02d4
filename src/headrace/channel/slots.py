"""Places: which suppliers a channel has, across processes, and what they have pushed.

    channels/7.suppliers    slot 0      magic 8 B, format u64, places ever used u64
                            slot 1 …    one supplier each: pid, since ns, products, duplicates, rejected; u64 each
    slots of 64 bytes, one more than SUPPLIERS_LIMIT

A supplier holds its place by a lock on the first byte of the slot (an open-file-description lock). The operating
system takes it back with the last descriptor, however the process ends, so that a place is free at once, and no
process id is ever asked whether it is alive. Whoever looks for a place holds the lock on slot 0 meanwhile.

Only the holder of a place writes its slot, so counting needs no lock. The counters of a place go on with its next
holder: their sum is what the channel was given. They are of the page cache, so that a power failure may take the
latest of them.
"""

import fcntl
import os
import struct
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from headrace.channel.conflicts import SUPPLIERS_LIMIT
from headrace.errors import QueueDamagedError, QueueVersionError, SuppliersFullError
from headrace.kernel import _kernel as kernel
from headrace.log.explain import explain_os_error

FORMAT = 1
_MAGIC = int.from_bytes(b"HRSUPPLR", "little")
_SLOT_BYTES = 64
_WORDS = _SLOT_BYTES // 8
_BYTES = (SUPPLIERS_LIMIT + 1) * _SLOT_BYTES
_USED = 2  # word of slot 0
_PID, _SINCE_NS, _PRODUCTS, _DUPLICATES, _REJECTED = range(5)  # words of a supplier's slot
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux

_held: "weakref.WeakSet[SupplierSlot]" = weakref.WeakSet()  # for fork


@dataclass(frozen=True, slots=True)
class Pushed:
    """What suppliers have brought."""

    products: int = 0  # stored
    duplicates: int = 0
    rejected: int = 0  # products refused because of max_queue


@dataclass(frozen=True, slots=True)
class Presence:
    """A supplier that is there."""

    place: int
    pid: int
    since_ns: int
    pushed: Pushed  # by all holders of its place so far


class SupplierSlot:
    """A supplier's place; free again when it is left, or when the process ends."""

    def __init__(self, path: Path, channel: str, limit: int | None) -> None:
        """Take a place; SuppliersFullError if `limit` suppliers are there."""
        self._counting = threading.Lock()
        self._descriptor = _open(path)
        _held.add(self)
        try:
            self._words = _map(path)
            _lock(self._descriptor, 0, wait=True)
            self.number = self._find(channel, limit)
            _lock(self._descriptor, 0, free=True)
        except OSError as error:
            self.leave()
            raise explain_os_error(error, path.parent.parent) from error
        except BaseException:
            self.leave()
            raise
        self._base = self.number * _WORDS
        self._words[self._base + _PID] = os.getpid()
        self._words[self._base + _SINCE_NS] = time.time_ns()

    def _find(self, channel: str, limit: int | None) -> int:
        used = self._words[_USED]
        taken = [place for place in range(1, used + 1) if _is_locked(self._descriptor, place)]
        if len(taken) >= (SUPPLIERS_LIMIT if limit is None else limit):
            raise SuppliersFullError(
                f"channel {channel!r} has {len(taken)} suppliers, as many as it admits",
                "stop one of them, or raise suppliers_max: headrace channel change",
            )
        place = min(set(range(1, len(taken) + 2)) - set(taken))
        _lock(self._descriptor, place)
        self._words[_USED] = max(used, place)
        return place

    @property
    def is_held(self) -> bool:
        return self._descriptor >= 0

    def count(self, products: int = 0, duplicates: int = 0, rejected: int = 0) -> None:
        """Add to the counters of this place."""
        words, base = self._words, self._base
        with self._counting:
            for word, more in ((_PRODUCTS, products), (_DUPLICATES, duplicates), (_REJECTED, rejected)):
                if more:
                    words[base + word] += more

    def leave(self) -> None:
        """Free the place. In the child of a fork this only lets go of the parent's."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        _held.discard(self)


def look(path: Path) -> tuple[list[Presence], Pushed]:
    """The suppliers that are there now, and all that any supplier has ever pushed."""
    if not path.exists():
        return [], Pushed()
    descriptor = _open(path)
    try:
        words = _map(path)
        there, total = [], [0, 0, 0]
        for place in range(1, min(words[_USED], SUPPLIERS_LIMIT) + 1):
            pid, since_ns, *counts = words[place * _WORDS : place * _WORDS + _REJECTED + 1].tolist()
            total = [sum(pair) for pair in zip(total, counts, strict=True)]
            if _is_locked(descriptor, place):
                there.append(Presence(place, pid, since_ns, Pushed(*counts)))
        return there, Pushed(*total)
    finally:
        os.close(descriptor)


# --- the file -------------------------------------------------------------------------------------


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(exist_ok=True)
        return os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o660)
    except OSError as error:
        raise explain_os_error(error, path.parent.parent) from error


def _map(path: Path) -> "memoryview[int]":
    """The words of the file, which is given its size and its first slot if it is new.

    The mapping has a descriptor of its own: it would keep alive the one that holds the lock.
    """
    descriptor = _open(path)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            os.ftruncate(descriptor, _BYTES)
        elif size != _BYTES:
            raise _damaged(path, f"has {size} bytes instead of {_BYTES}")
        words = memoryview(kernel.Mapped(descriptor, _BYTES)).cast("Q")
    finally:
        os.close(descriptor)
    if words[0] == 0 and words[1] == 0:
        words[0], words[1] = _MAGIC, FORMAT
    if words[0] != _MAGIC:
        raise _damaged(path, "is not a file of suppliers")
    if words[1] > FORMAT:
        raise QueueVersionError(f"{path} has format {words[1]}; this Headrace knows up to {FORMAT}", "upgrade Headrace")
    return words


def _damaged(path: Path, what: str) -> QueueDamagedError:
    return QueueDamagedError(f"{path} {what}", "remove it while no supplier is there; only counters are lost")


# --- locks ----------------------------------------------------------------------------------------


def _lock(descriptor: int, slot: int, *, wait: bool = False, free: bool = False) -> None:
    """Lock or free the first byte of a slot, for this descriptor."""
    kind = fcntl.F_UNLCK if free else fcntl.F_WRLCK
    command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
    fcntl.fcntl(descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, slot * _SLOT_BYTES, 1, 0))


def _is_locked(descriptor: int, slot: int) -> bool:
    """Whether anybody else holds the first byte of a slot."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, slot * _SLOT_BYTES, 1, 0)
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _forget_the_parents() -> None:
    """A child that kept the descriptor would keep the place after its parent's end."""
    for place in list(_held):
        place.leave()


os.register_at_fork(after_in_child=_forget_the_parents)
