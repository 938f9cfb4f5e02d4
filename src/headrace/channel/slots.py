"""Supplier slots: which suppliers a channel has, across processes, and what they have pushed.

    channels/7.suppliers    slot 0      magic 8 B, format u64, slots ever used u64
                            slot 1 …    one supplier each: pid, since, products, duplicates, rejected, left; u64 each
    slots of 64 bytes, one more than SUPPLIERS_LIMIT

A supplier holds its slot by a lock on the slot's first byte. The operating system releases the lock with the last
descriptor, however the process ends: a slot is free at once, and no process id is ever asked whether it is alive. A
supplier that looks for a slot holds the lock on slot 0 while it does.

A supplier that is closed notes that in its slot (`left`, the time at which it came), and one that dies does not.
`left_cleanly` tells the two apart, also if another supplier has the slot by then.

Only the holder of a slot writes to it, so counting needs no lock. The counters of a slot continue with its next holder:
their sum is what the channel received. They are in the page cache, so a power failure may lose the latest counts.
"""

import os
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from headrace.channel.qos import SUPPLIERS_LIMIT
from headrace.channel.words import WordFile
from headrace.errors import SuppliersFullError
from headrace.log.explain import explain_os_error
from headrace.log.locks import is_byte_locked, lock_byte, unlock_byte

_SLOT_BYTES = 64
_WORDS = _SLOT_BYTES // 8
_FILE = WordFile(
    "suppliers", int.from_bytes(b"HRSUPPLR", "little"), 1, (SUPPLIERS_LIMIT + 1) * _SLOT_BYTES,
    "remove it while no supplier is connected; only counters are lost",
)  # fmt: skip
_USED = 2  # word of slot 0
_PID, _SINCE_NS, _PRODUCTS, _DUPLICATES, _REJECTED, _LEFT_NS = range(6)  # words of a supplier's slot

_held: "weakref.WeakSet[SupplierSlot]" = weakref.WeakSet()  # of this process, for fork


@dataclass(frozen=True, slots=True)
class Pushed:
    """What suppliers have pushed."""

    products: int = 0  # stored
    duplicates: int = 0
    rejected: int = 0  # products refused because of max_queue


@dataclass(frozen=True, slots=True)
class ConnectedSupplier:
    """A supplier that is connected now."""

    slot: int
    pid: int
    since_ns: int
    pushed: Pushed  # by all holders of its slot so far


class SupplierSlot:
    """The slot of one supplier; free again after `release`, or when the process ends."""

    def __init__(self, path: Path, channel: str, limit: int | None, now_ns: int = 0) -> None:
        """Take a slot; SuppliersFullError if `limit` suppliers are connected. `now_ns` is the time of the queue."""
        self._counting = threading.Lock()
        self._descriptor = _FILE.open(path)
        _held.add(self)
        try:
            self._words = _FILE.map(path)
            lock_byte(self._descriptor, 0, wait=True)
            self.number = self._find(channel, limit)
            unlock_byte(self._descriptor, 0)
        except OSError as error:
            self.release()
            raise explain_os_error(error, path.parent.parent) from error
        except BaseException:
            self.release()
            raise
        self._base = self.number * _WORDS
        self._words[self._base + _PID] = os.getpid()
        self._words[self._base + _SINCE_NS] = now_ns or time.time_ns()

    def _find(self, channel: str, limit: int | None) -> int:
        used = min(self._words[_USED], SUPPLIERS_LIMIT)
        taken = [slot for slot in range(1, used + 1) if is_byte_locked(self._descriptor, slot * _SLOT_BYTES)]
        if len(taken) >= (SUPPLIERS_LIMIT if limit is None else limit):
            raise SuppliersFullError(
                f"channel {channel!r} has {len(taken)} supplier{'' if len(taken) == 1 else 's'}, its suppliers_max",
                "stop one of them, or raise suppliers_max: headrace channel change; the slot of a supplier that died "
                "on another machine is free after its `keep`",
            )
        slot = min(set(range(1, len(taken) + 2)) - set(taken))
        lock_byte(self._descriptor, slot * _SLOT_BYTES)
        self._words[_USED] = max(used, slot)
        return slot

    @property
    def is_held(self) -> bool:
        return self._descriptor >= 0

    def count(self, products: int = 0, duplicates: int = 0, rejected: int = 0) -> None:
        """Add to the counters of this slot."""
        words, base = self._words, self._base
        with self._counting:
            for word, more in ((_PRODUCTS, products), (_DUPLICATES, duplicates), (_REJECTED, rejected)):
                if more:
                    words[base + word] += more

    def leave(self) -> None:
        """Free the slot, and note that its supplier has left by itself."""
        if self.is_held:
            self._words[self._base + _LEFT_NS] = self._words[self._base + _SINCE_NS]
        self.release()

    def release(self) -> None:
        """Free the slot as the death of the process does. A forked child only closes its copy of the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        _held.discard(self)

    def __del__(self) -> None:
        """Dropped without `release`: the slot is free. Takes no lock: the garbage collector may call this."""
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)


def connected_suppliers(path: Path) -> tuple[list[ConnectedSupplier], Pushed]:
    """The suppliers that are connected now, and the sum of what all suppliers have ever pushed."""
    if not path.exists():
        return [], Pushed()
    descriptor = _FILE.open(path)
    try:
        words = _FILE.map(path)
        connected, total = [], [0, 0, 0]
        for slot in range(1, min(words[_USED], SUPPLIERS_LIMIT) + 1):
            pid, since_ns, *counts = words[slot * _WORDS : slot * _WORDS + _REJECTED + 1].tolist()
            total = [sum(pair) for pair in zip(total, counts, strict=True)]
            if is_byte_locked(descriptor, slot * _SLOT_BYTES):
                connected.append(ConnectedSupplier(slot, pid, since_ns, Pushed(*counts)))
        return connected, Pushed(*total)
    finally:
        os.close(descriptor)


def left_cleanly(path: Path, slot: int, since_ns: int) -> bool:
    """Whether the supplier that took the slot then was closed; False if another one was closed there since."""
    if not path.exists() or not 1 <= slot <= SUPPLIERS_LIMIT:
        return False
    return _FILE.map(path)[slot * _WORDS + _LEFT_NS] == since_ns


def _release_in_child() -> None:
    """A forked child that kept the descriptor would keep the slot after its parent's end."""
    for slot in list(_held):
        slot.release()


os.register_at_fork(after_in_child=_release_in_child)
