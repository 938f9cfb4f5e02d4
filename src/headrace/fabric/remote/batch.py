"""RemoteBatch: products that lie in a message from a site, with the numbers that the site's queue gives them.

It is a Batch in every respect. Its payloads are views of the message, which lives for as long as any of them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import FabricMessageError, RecordsDamagedError
from headrace.fabric.remote.calls import Products
from headrace.product.batch import ROW, Batch, Lost
from headrace.queue.records import Names, read_batch


class RemoteBatch(Batch):
    """Made by `batch_of`; `got` is the number of the call that got it from a station, otherwise 0."""

    __slots__ = ("_next", "_passed_over", "attachment", "got")

    def __init__(
        self, batch: Batch, names: Names, columns: npt.NDArray[np.void], answer: Products, got: int, attachment: int
    ) -> None:
        rows = _Revised(batch.rows) if answer.revisions and columns["revisions"].any() else batch.rows
        lost = Lost(answer.lost_first, answer.lost_last) if answer.lost_last else None
        super().__init__(rows, names.texts, lost)
        self._columns = columns
        self._next, self._passed_over = answer.next, answer.passed_over
        self.got, self.attachment = got, attachment

    @property
    def next(self) -> int:
        return self._next

    @property
    def scanned(self) -> int:
        return self._passed_over[0]

    @property
    def filtered(self) -> int:
        return self._passed_over[1]

    @property
    def deleted(self) -> int:
        return self._passed_over[2]

    @property
    def damaged(self) -> int:
        return self._passed_over[3]

    @property
    def expired(self) -> int:
        return self._passed_over[4]


class _Revised:
    """Rows of which some have another payload than at their origin: `Queue.put_batch` must not take them."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)


def batch_of(answer: Products, records: bytes, names: Names, got: int = 0, attachment: int = 0) -> RemoteBatch:
    """The batch in an answer; FabricMessageError says what is wrong with it."""
    try:
        batch = read_batch(records, names)
    except RecordsDamagedError as error:
        raise FabricMessageError(f"products in an answer: {error.problem}", error.hint) from None
    if len(batch) != answer.count:
        raise FabricMessageError(f"an answer of {answer.count} products came with {len(batch)}", "ask once more")
    columns = np.frombuffer(batch.rows, dtype=ROW).copy()  # type: ignore[call-overload]
    for field in ("sequences", "inserted_ns", "deliveries", "revisions"):
        _fill(columns, "sequence" if field == "sequences" else field, getattr(answer, field))
    columns.flags.writeable = False
    return RemoteBatch(batch, names, columns, answer, got, attachment)


def _fill(columns: npt.NDArray[np.void], field: str, data: bytes) -> None:
    if not data:
        return
    if len(data) != len(columns) * columns.dtype[field].itemsize:
        raise FabricMessageError(f"{len(columns)} products have {len(data)} bytes of {field}", "ask once more")
    columns[field] = np.frombuffer(data, columns.dtype[field])
