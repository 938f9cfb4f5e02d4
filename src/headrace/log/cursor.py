"""Cursor: a named, durable position in a queue.

All cursors of a queue live in one file of fixed slots, mapped by every process. A slot has a name and two cells; a
save writes the older cell, its checksum last. A process that dies in the middle leaves the other cell valid.

    slot 256 B:   name length u16, in use u16, checksum of name u32, name 120 B, cell A 64 B, cell B 64 B
    cell  64 B:   generation u64, position u64, saved ns u64, lost products u64, lost first u64, lost last u64,
                  unused u64, checksum u64

The position is the sequence to read next. Saves are serialised by the queue's lock; readers of a cursor need none.

The names of cursors, stations and channels pass the same check (`check_name`).
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import CursorMissingError, CursorNameError, InvalidError, QueueDamagedError
from headrace.files import open_regular
from headrace.kernel import _kernel as kernel
from headrace.product.batch import Batch, Lost

if TYPE_CHECKING:
    from headrace.log.follow import Follower
    from headrace.log.log import Log, Wanted
    from headrace.log.read import Start
    from headrace.log.reading import Reading

SLOTS = 1024
SLOT_BYTES = 256
CURSORS_BYTES = SLOTS * SLOT_BYTES
NAME_BYTES_MAX = 120
_NAME = struct.Struct(f"<HHI{NAME_BYTES_MAX}s")
_CELL = struct.Struct("<7Q")
_CELL_PLACES = (128, 192)


@dataclass(frozen=True, slots=True)
class CursorState:
    """What is saved of a cursor."""

    position: int  # sequence to read next
    saved_ns: int
    lost_products: int  # how many products were evicted before it read them
    lost: Lost | None  # the latest range of them
    generation: int = 0


class CursorFile:
    """The slots; `Log` serialises its changes."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        descriptor = open_regular(path, os.O_RDONLY if read_only else os.O_RDWR)
        try:
            terms = {"read_only": True} if read_only else {}
            self._mapped = kernel.Mapped(descriptor, CURSORS_BYTES, **terms)
            self._identity = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        self._memory = memoryview(self._mapped)

    def names(self) -> dict[str, int]:
        """Name of each cursor and its slot."""
        found = {}
        for slot in range(SLOTS):
            name = self.name(slot)
            if name:
                found[name] = slot
        return found

    def name(self, slot: int) -> str:
        """The cursor in this slot; empty if there is none."""
        size, used, checksum, text = _NAME.unpack_from(self._memory, slot * SLOT_BYTES)
        if not used:
            return ""
        if size > NAME_BYTES_MAX or kernel.checksum(text[:size]) & 0xFFFFFFFF != checksum:
            return ""
        name: str = text[:size].decode("utf-8", "replace")
        return name

    def is_damaged(self, slot: int) -> bool:
        """Whether a slot is in use and its name, or both cells, do not match their checksums."""
        used = _NAME.unpack_from(self._memory, slot * SLOT_BYTES)[1]
        return bool(used) and (not self.name(slot) or self._newest(slot) is None)

    def add(self, name: str, state: CursorState) -> int:
        """Take a free slot. The cells are written first; the name makes the slot valid."""
        for slot in range(SLOTS):
            if not _NAME.unpack_from(self._memory, slot * SLOT_BYTES)[1]:
                start = slot * SLOT_BYTES
                self._memory[start : start + SLOT_BYTES] = bytes(SLOT_BYTES)
                self.save(slot, state)
                text = name.encode()
                kernel.reach_failpoint("cursor:cell-written")
                _NAME.pack_into(self._memory, start, len(text), 0, kernel.checksum(text) & 0xFFFFFFFF, text)
                kernel.reach_failpoint("cursor:name-written")
                struct.pack_into("<H", self._memory, start + 2, 1)
                return slot
        raise CursorNameError(
            f"{self.path} has {SLOTS} cursors already",
            "remove one: headrace cursor or Cursor.remove()",
        )

    def remove(self, slot: int) -> None:
        struct.pack_into("<H", self._memory, slot * SLOT_BYTES + 2, 0)

    def load(self, slot: int) -> CursorState:
        """The newest valid cell. A save in progress can invalidate one look at both, so look twice."""
        self._check_whole()
        state = self._newest(slot) or self._newest(slot)
        if state is None:
            raise QueueDamagedError(
                f"{self.path} has no valid position in slot {slot} ({self.name(slot)!r})",
                f"run: headrace queue repair {self.path.parent}",
            )
        return state

    def _check_whole(self) -> None:
        fault = "truncated" if self._mapped.holed else "deleted or replaced" if not self._is_there() else None
        if fault is not None:
            raise QueueDamagedError(
                f"{self.path} was {fault} while it was in use",
                f"stop all programs that use the queue, then run: headrace queue repair {self.path.parent}",
            )

    def _is_there(self) -> bool:
        """Whether other processes find the positions that are saved here."""
        try:
            return os.path.samestat(os.stat(self.path), self._identity)
        except FileNotFoundError:
            return False

    def save(self, slot: int, state: CursorState) -> None:
        """Write the older cell, then its checksum."""
        newest = self._newest(slot)
        generation = newest.generation + 1 if newest else 1
        place = slot * SLOT_BYTES + _CELL_PLACES[generation % 2]
        first, last = (state.lost.first, state.lost.last) if state.lost else (0, 0)
        cell = _CELL.pack(generation, state.position, state.saved_ns, state.lost_products, first, last, 0)
        self._check_whole()
        self._memory[place : place + _CELL.size] = cell
        kernel.reach_failpoint("cursor:half-saved")
        struct.pack_into("<Q", self._memory, place + _CELL.size, kernel.checksum(cell))
        kernel.reach_failpoint("cursor:saved")

    def _newest(self, slot: int) -> CursorState | None:
        cells = [self._cell(slot * SLOT_BYTES + place) for place in _CELL_PLACES]
        return max((cell for cell in cells if cell), key=lambda cell: cell.generation, default=None)

    def _cell(self, place: int) -> CursorState | None:
        cell = bytes(self._memory[place : place + _CELL.size])
        (checksum,) = struct.unpack_from("<Q", self._memory, place + _CELL.size)
        generation, position, saved_ns, lost_products, first, last, _ = _CELL.unpack(cell)
        if not generation or checksum != kernel.checksum(cell):
            return None
        return CursorState(position, saved_ns, lost_products, Lost(first, last) if last else None, generation)


class Cursor:
    """A reader's position under a name; get one from `Queue.cursor`.

    Reading does not move it: `save(batch.next)`, or `commit(batch)`, after the work is done. So a reader that dies
    reads again what it had not committed, and misses nothing.
    """

    def __init__(self, log: "Log", file: CursorFile, slot: int, name: str) -> None:
        self._log, self._file, self._slot = log, file, slot
        self.name = name

    @property
    def state(self) -> CursorState:
        self._log.check_open()
        return self._file.load(self._slot)

    @property
    def position(self) -> int:
        """The sequence to read next."""
        return self.state.position

    def read(self, selection: "Wanted" = None, *, limit: int | None = None) -> "Reading":
        """All products from the position on, up to the end of the queue as it is now. Commit its batches."""
        return self._log.read(self.position, selection, limit=limit)

    def read_batch(self, selection: "Wanted" = None, *, limit: int = 10_000, bytes_limit: int | str = "64MiB") -> Batch:
        """One batch from the position on; `batch.lost` is the exact range that was evicted before, if any."""
        return self._log.read_batch(self.position, selection, limit=limit, bytes_limit=bytes_limit)

    def follow(
        self, selection: "Wanted" = None, *, limit: int = 10_000, bytes_limit: int | str = "64MiB",
        timeout: float | str | None = None,
    ) -> "Follower":  # fmt: skip
        """Batches from the position on, as they arrive. Commit each when its work is done."""
        return self._log.follow(self.position, selection, limit=limit, bytes_limit=bytes_limit, timeout=timeout)

    def commit(self, batch: Batch) -> None:
        """The work on `batch` is done; what it lost is added to the record of this cursor."""
        self._save(batch.next, batch.lost)

    def save(self, position: int) -> None:
        """Set the position to a sequence."""
        self._save(self._log.resolve(position), None)

    def seek(self, start: "Start") -> int:
        """Go to a sequence, "oldest", "next" or a time; the position that results."""
        position = self._log.resolve(start)
        self._save(position, None)
        return position

    def _save(self, position: int, lost: Lost | None) -> None:
        with self._log.locked():
            self._check_there()
            now = self._file.load(self._slot)
            lost_products = now.lost_products + (lost.products if lost else 0)
            self._file.save(self._slot, CursorState(position, self._log.now_ns(), lost_products, lost or now.lost))
        self._log.sync_cursors()

    def _check_there(self) -> None:
        """The slot may have been given to another name since."""
        if self._file.name(self._slot) != self.name:
            raise CursorMissingError(f"cursor {self.name!r} was removed", "get it again: queue.cursor(name)")

    def remove(self) -> None:
        """Forget the cursor. Any further use of it is an error."""
        with self._log.locked():
            self._check_there()
            self._file.remove(self._slot)
        self._log.sync_cursors()

    def __iter__(self) -> Iterator[Batch]:
        """Follow without end, committing each batch when the next one is requested.

        A `break` does not commit the batch in hand: the next loop begins with it again. Commit it yourself if its work
        is done.
        """
        for batch in self.follow():
            yield batch
            self.commit(batch)

    def __repr__(self) -> str:
        return f"<Cursor {self.name!r} at {self.position}>"


# --- names ----------------------------------------------------------------------------------------


def check_cursor_name(name: str) -> str:
    """Return `name` if a cursor may have it; CursorNameError otherwise."""
    return check_name(name, "cursor", CursorNameError, plain=False)


def check_name(name: str, kind: str, error: type[InvalidError], *, plain: bool = True) -> str:
    """Return `name` if a `kind` ("station", …) may have it, else raise `error`.

    A name is 1 to 120 bytes of printable UTF-8, so that it fits into a slot and onto one line of a terminal. A `plain`
    name has no `/` and neither begins nor ends with a space: stations and channels are also named in keys and on
    command lines.
    """
    try:
        size = len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        size = 0
    if 1 <= size <= NAME_BYTES_MAX and name.isprintable() and not (plain and ("/" in name or name != name.strip())):
        return name
    limits = f"use 1 to {NAME_BYTES_MAX} bytes of printable text"
    raise error(f"{kind} name {name!r} is invalid", f"{limits} without '/' and outer spaces" if plain else limits)
