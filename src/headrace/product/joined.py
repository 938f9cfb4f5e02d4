"""JoinedBatch: products of several batches as one, in another order; a release buffer or a pacer makes them.

    parts    the batches that the products came in, as the sources returned them
    which    for each product the number of its part
    places   for each product its place in that part

It is a Batch in every respect. Because it remembers the parts, its products can be acknowledged: a lease belongs to the
batch that a consumer got, and a site knows it by the number of that get.

Not here: how rows are joined (kernel/log/join.pxi), and in which order (timing/held.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import InvalidError
from headrace.product.batch import Batch, Lost, Rows

Places = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Part:
    """A batch as a source returned it."""

    batch: Batch
    source: int  # which of the sources


@dataclass(frozen=True, slots=True)
class Leases:
    """Products of several batches, to be settled at once: for each batch the places."""

    pieces: list[tuple[Batch, Places]]


class JoinedBatch(Batch):
    """Products in the order of their time stamps."""

    __slots__ = ("late", "parts", "places", "positions", "which")

    def __init__(
        self, rows: Rows, names: Sequence[str], parts: Sequence[Part], which: Places, places: Places,
        positions: Sequence[int], late: int = 0, lost: Lost | None = None,
    ) -> None:  # fmt: skip
        super().__init__(rows, names, lost)
        self.parts, self.which, self.places = parts, which, places
        self.positions = positions  # for each source: every product before it has been released
        self.late = late  # so many at the beginning were created before products that were released earlier

    @property
    def next(self) -> int:
        """Where to read on: every product of the source before this sequence was released. One source only."""
        if len(self.positions) != 1:
            raise InvalidError(
                f"a batch of {len(self.positions)} sources has no single position", "save each of batch.positions"
            )
        return self.positions[0]

    def __repr__(self) -> str:
        late = f", {self.late} late" if self.late else ""
        return f"<JoinedBatch of {len(self)}{late}{f', lost {self.lost}' if self.lost else ''}>"

    @property
    def sources(self) -> list[int]:
        """The numbers of the sources that products of this batch came from."""
        return sorted({part.source for part in self.parts})

    def pieces(self) -> Iterator[tuple[Batch, Places]]:
        """The batches as they came, and the places in each of the products here. InvalidError: of several sources."""
        if len(self.positions) != 1:
            raise InvalidError(
                "this batch has products of several sources", "settle it where it came from: buffer.ack(batch)"
            )
        if len(self.parts) == 1:
            yield self.parts[0].batch, self.places
            return
        order = np.argsort(self.which, kind="stable")
        ends = np.searchsorted(self.which[order], np.arange(len(self.parts) + 1)).tolist()
        for number, part in enumerate(self.parts):
            if ends[number] < ends[number + 1]:
                yield part.batch, self.places[order[ends[number] : ends[number + 1]]]

    def leases(self) -> Iterator[tuple[Batch, int]]:
        """For each product, in order, the batch that it came in and its place there."""
        list(self.pieces())  # of one source
        for which, place in zip(self.which.tolist(), self.places.tolist(), strict=True):
            yield self.parts[which].batch, place

    def of_source(self, source: int) -> "JoinedBatch":
        """The products that came from one source; its consumer can settle them."""
        is_of = np.array([part.source == source for part in self.parts], np.bool_)
        chosen = self.take(np.flatnonzero(is_of[self.which]))
        chosen.positions = [self.positions[source]]
        return chosen

    def part(self, begin: int, end: int, between: Places, positions: Sequence[int]) -> "JoinedBatch":
        """The products from one place to another, quickly; `between` has the numbers of these places."""
        return JoinedBatch(
            self._rows.some(between), self._names, self.parts, self.which[begin:end], self.places[begin:end], positions
        )

    def take(self, places: Sequence[int] | npt.NDArray[np.integer[Any]]) -> "JoinedBatch":
        """The products at these places, as a batch without copies; IndexError if there is no such place."""
        chosen = np.ascontiguousarray(places, np.uint32)
        rows = self._rows.some(chosen)
        used, which = np.unique(self.which[chosen], return_inverse=True)
        parts = [self.parts[number] for number in used.tolist()]
        late = int(np.count_nonzero(chosen < self.late))
        return JoinedBatch(
            rows, self._names, parts, which.astype(np.uint32), self.places[chosen], self.positions, late, self.lost
        )


def leases_of(batches: Sequence[JoinedBatch], source: int) -> Leases:
    """What batches have of one source, to be settled at once."""
    found: dict[int, tuple[Batch, list[Places]]] = {}
    for batch in batches:
        own = batch if len(batch.positions) == 1 else batch.of_source(source)
        for part, places in own.pieces():
            found.setdefault(id(part), (part, []))[1].append(places)
    return Leases([(part, np.concatenate(places)) for part, places in found.values()])
