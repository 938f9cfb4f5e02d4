"""Held: the products that a release buffer or a pacer has taken and not released, in the order of their time stamps.

    add      a batch as a source returned it; only its keys are copied
    sort_in  the keys of new batches go to their places among those held before
    take     the oldest, as one batch; the kernel copies 120 bytes for each product and no payload

The order is that of `created_ns`, then of the origin's name, then of its sequence there. A time stamp that is more than
a second later than the arrival in the queue is wrong, and counts as that: otherwise one clock that is an hour ahead
would make the products of all others late. A product that is held twice,
because two sources have it or a lease was lost, is released once: the copy that came last, since only its lease counts.

The oldest products may have been created before products that were released already: these are late.

There is no loop over products here. Time is an argument. Not here: when to release (buffer.py, schedule.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.kernel import _kernel as kernel
from headrace.log.records import rows_of
from headrace.product.batch import Batch
from headrace.product.joined import JoinedBatch, Part
from headrace.timing.names import JoinedNames

KEY = np.dtype(
    [
        ("created_ns", "<u8"), ("origin_sequence", "<u8"), ("sequence", "<u8"), ("part", "<u8"),
        ("origin", "<u4"), ("place", "<u4"), ("bytes", "<u4"), ("source", "<u4"),
    ]
)  # fmt: skip
Keys = npt.NDArray[np.void]

_AHEAD_NS = np.uint64(1_000_000_000)


@dataclass(slots=True)
class _HeldPart:
    part: Part
    arrived_ns: int
    left: int  # of its products


def time_stamps(batch: Batch) -> npt.NDArray[np.uint64]:
    """By what products are ordered."""
    created, inserted = batch.columns["created_ns"], batch.columns["inserted_ns"]
    is_wrong = created > inserted + _AHEAD_NS
    return np.where(is_wrong & (inserted > 0), inserted, created) if is_wrong.any() else created


class Held:
    """Products of `sources` sources."""

    def __init__(self, sources: int) -> None:
        self.bytes = 0  # of the payloads
        self.released_ns = 0  # the latest time stamp that was released
        self._keys: Keys = np.empty(0, KEY)  # in order
        self._fresh: list[Keys] = []  # not sorted in yet
        self._fresh_count, self._fresh_first_ns = 0, 0
        self._parts: dict[int, _HeldPart] = {}  # by number, in the order of arrival
        self._number = 0
        self._positions = [0] * sources  # where each source reads on
        self._names = JoinedNames() if sources > 1 else None

    def __len__(self) -> int:
        return len(self._keys) + self._fresh_count

    # --- add --------------------------------------------------------------------------------------

    def add(self, batch: Batch, source: int, now_ns: int) -> None:
        """Hold a batch that has arrived now."""
        self._positions[source] = batch.next
        count = len(batch)
        if not count:
            return
        columns, keys = batch.columns, np.empty(count, KEY)
        keys["created_ns"] = time_stamps(batch)
        for name in ("origin_sequence", "sequence"):
            keys[name] = columns[name]
        keys["origin"] = columns["origin"]
        if self._names is not None:
            keys["origin"] = self._names.tables(batch)[1][columns["origin"]]
        keys["bytes"] = columns["payload_bytes"]
        keys["part"], keys["source"] = self._number, source
        keys["place"] = np.arange(count, dtype=np.uint32)
        first_ns = int(keys["created_ns"].min())
        self._fresh_first_ns = min(first_ns, self._fresh_first_ns) if self._fresh else first_ns
        self._fresh.append(keys)
        self._fresh_count += count
        self.bytes += int(keys["bytes"].sum(dtype=np.uint64))
        self._parts[self._number] = _HeldPart(Part(batch, source), now_ns, count)
        self._number += 1

    def sort_in(self) -> JoinedBatch | None:
        """Bring new products to their places. Returns copies that are not needed; they are no longer held."""
        if not self._fresh:
            return None
        begin = int(np.searchsorted(self._keys["created_ns"], np.uint64(self._fresh_first_ns)))
        tail = np.concatenate([self._keys[begin:], *self._fresh])
        tail = tail[np.argsort(tail["created_ns"], kind="stable")]
        repeated = None
        same = tail["created_ns"][1:] == tail["created_ns"][:-1]
        if same.any():
            tail, repeated = self._order_equals(tail)
        self._keys = np.concatenate([self._keys[:begin], tail]) if begin else tail
        self._fresh.clear()
        self._fresh_count = 0
        return None if repeated is None else self._join(repeated)

    def _order_equals(self, keys: Keys) -> tuple[Keys, Keys | None]:
        """Order products of equal time; apart, the copies that are not needed."""
        names = self._texts()
        origins = np.unique(keys["origin"]).tolist()
        ranks = np.zeros(origins[-1] + 1, np.uint32)
        ranks[sorted(origins, key=lambda number: names[number])] = np.arange(len(origins))
        keys = keys[np.lexsort((keys["origin_sequence"], ranks[keys["origin"]], keys["created_ns"]))]
        is_copied = np.zeros(len(keys), np.bool_)  # by the next one
        is_copied[:-1] = (
            (keys["created_ns"][1:] == keys["created_ns"][:-1])
            & (keys["origin"][1:] == keys["origin"][:-1])
            & (keys["origin_sequence"][1:] == keys["origin_sequence"][:-1])
        )
        return (keys[~is_copied], keys[is_copied]) if is_copied.any() else (keys, None)

    def _texts(self) -> Sequence[str]:
        if self._names is not None:
            return self._names.texts
        return next(iter(self._parts.values())).part.batch.names

    # --- look -------------------------------------------------------------------------------------

    @property
    def created_ns(self) -> npt.NDArray[np.uint64]:
        """The time stamps of what is sorted in, in order."""
        return self._keys["created_ns"]

    @property
    def first_ns(self) -> int:
        """The earliest time stamp that is held; there must be one."""
        sorted_ns = int(self._keys["created_ns"][0]) if len(self._keys) else self._fresh_first_ns
        return min(sorted_ns, self._fresh_first_ns) if self._fresh else sorted_ns

    @property
    def sizes(self) -> npt.NDArray[np.uint32]:
        """Their payload bytes."""
        return self._keys["bytes"]

    @property
    def has_late(self) -> bool:
        """Whether a product that is not sorted in yet is late."""
        return bool(self._fresh) and self._fresh_first_ns < self.released_ns

    @property
    def late(self) -> int:
        """How many of those sorted in are late; they are the first ones."""
        return int(np.searchsorted(self._keys["created_ns"], np.uint64(self.released_ns)))

    @property
    def oldest_arrival_ns(self) -> int | None:
        """When the product arrived that is held for the longest time."""
        return next((each.arrived_ns for each in self._parts.values()), None)

    def arrived_until(self, moment_ns: int) -> int:
        """How many of the first products to take, so that none is left that arrived at this moment or before."""
        later = next((number for number, each in self._parts.items() if each.arrived_ns > moment_ns), self._number)
        places = np.flatnonzero(self._keys["part"] < np.uint64(later))
        return int(places[-1]) + 1 if len(places) else 0

    # --- take -------------------------------------------------------------------------------------

    def take(self, count: int) -> JoinedBatch:
        """Release the first so many of those sorted in."""
        late = min(count, self.late)
        keys, self._keys = self._keys[:count], self._keys[count:]
        if count > late:
            self.released_ns = int(keys["created_ns"][-1])
        return self._join(keys, late)

    def take_all(self) -> JoinedBatch:
        """Everything, in no particular order, as it is not to be released."""
        keys = np.concatenate([self._keys, *self._fresh])
        self._keys, self._fresh, self._fresh_count = np.empty(0, KEY), [], 0
        return self._join(keys)

    def _join(self, keys: Keys, late: int = 0) -> JoinedBatch:
        """These products as a batch; they are no longer held."""
        first = next(iter(self._parts), 0)
        behind = (keys["part"] - np.uint64(first)).astype(np.intp)
        counts = np.bincount(behind)
        used = np.flatnonzero(counts)
        numbers = (used + first).tolist()
        parts = [self._parts[number].part for number in numbers]
        which = (np.cumsum(counts > 0, dtype=np.uint32) - np.uint32(1))[behind]
        places = np.ascontiguousarray(keys["place"])
        rows = [rows_of(part.batch) for part in parts]
        if self._names is None:
            joined = kernel.join_rows(rows, which, places)
            names: Sequence[str] = parts[0].batch.names if parts else []
        else:
            tables = [self._names.tables(part.batch) for part in parts]
            names = self._names.texts
            joined = kernel.join_rows(
                rows, which, places, self._names.texts, [feeds for feeds, _ in tables], [each for _, each in tables]
            )
        for number, gone in zip(numbers, counts[used].tolist(), strict=True):
            self._parts[number].left -= gone
            if not self._parts[number].left:
                del self._parts[number]
        self.bytes -= joined.bytes
        return JoinedBatch(joined, names, parts, which, places, self.positions(), late)

    def positions(self) -> list[int]:
        """For each source, the first sequence that was not released: what is held counts as not released."""
        positions = list(self._positions)
        for keys in (self._keys, *self._fresh):
            for source in range(len(positions)):
                own = keys["sequence"] if len(positions) == 1 else keys["sequence"][keys["source"] == source]
                if len(own):
                    positions[source] = min(positions[source], int(own.min()))
        return positions
