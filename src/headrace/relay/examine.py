"""Examine: a range of this site's log for another site: the products that it gets, and what is left out, by cause.

The live path (send.py) and the log path (serve.py) read through here, so that both leave out the same products for the
same reasons, and say so. The counts of an `Examined` are exact for its range, and only for that, so a receiver that
adds them up over ranges that follow each other counts each product once:

    expired, too old, deleted, damaged   counted by the reader; conditions on idents and contents are not evaluated for
                                         deleted products, and none at all for those that a repair has marked as damaged
    evicted, damaged, too large          a range of sequences, for which a receiver can ask other sites

Products that the client may not receive are passed over like those that it did not ask for: they are in no count, and
no condition is evaluated for them. The client knows its rights, and only those.

A page never has more than PAGE_BYTES_MAX bytes of records, or less if the client admits less. A single record that is
larger does not travel at all: it is named as lost, and the link goes on.
"""

import logging
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import numpy as np
import numpy.typing as npt

from headrace.errors import ProductDamagedError
from headrace.log.read import Allowed
from headrace.log.records import rows_of
from headrace.product.batch import Batch, Lost
from headrace.product.cause import Cause, LostBy
from headrace.queue import Queue
from headrace.queue.queue import log_of
from headrace.relay.messages.page import PAGE_BYTES_MAX
from headrace.relay.plain import GROWN_BYTES_MAX, Plain
from headrace.selection import Selection
from headrace.selection.matching import bounds
from headrace.units import format_size

_OVERHEAD_MAX = 1 << 17  # of a record besides its payload
_NOTED_MAX = 1000
_ALIGNMENT = np.uint64(7)
_NOTHING: Mapping[Cause, int] = MappingProxyType({})

log = logging.getLogger("headrace.fabric")
Places = npt.NDArray[np.uint32]


class Examined(msgspec.Struct, frozen=True):
    """What lies behind `after` up to `upto`: `rows` of the batch (None: all of them), a lost range, counts by cause."""

    after: int
    upto: int
    batch: Batch | None = None
    rows: Places | None = None
    lost: Lost | None = None
    lost_by: LostBy = "evicted"
    left_out: Mapping[Cause, int] = _NOTHING

    @property
    def is_complete(self) -> bool:
        """Whether nothing that was asked for is missing."""
        return self.lost is None and not self.left_out

    def __len__(self) -> int:
        return 0 if self.batch is None else len(self.batch) if self.rows is None else len(self.rows)


class TooLarge:
    """The products of one site that no message can carry: each is logged once. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[int, None] = {}
        self.products = 0
        self.latest = ""
        self.latest_at = 0.0  # monotonic seconds

    def note(self, sequence: int, feed: str, size: int) -> None:
        with self._lock:
            if sequence in self._noted:
                return
            self._noted[sequence] = None
            if len(self._noted) > _NOTED_MAX:
                del self._noted[next(iter(self._noted))]
            self.products += 1
            self.latest_at = time.monotonic()
            self.latest = f"product {sequence} of feed {feed} has {format_size(size)}"
        log.error("%s, more than the %s of a message between sites: it is not sent. Put it in parts.", self.latest,
                  format_size(PAGE_BYTES_MAX))  # fmt: skip


class Examiner:
    """Reads on from `position` for one selection; `allowed` says which feeds the client may receive, None: all."""

    def __init__(
        self, queue: Queue, selection: Selection, start: int, *, products: int, payload_bytes: int,
        allowed: Allowed | None = None, too_large: TooLarge | None = None, record_bytes: int = PAGE_BYTES_MAX,
        plain: Plain | None = None,
    ) -> None:  # fmt: skip
        """`record_bytes`: what the client admits of one product. `plain`: expands some products for it."""
        self._log, self._selection, self._allowed = log_of(queue), selection, allowed
        timeless = selection if selection.max_age_s is None else selection.replace(max_age_s=None)
        self._read = self._log.reader(timeless, products, payload_bytes, allowed)
        self._too_large, self._plain = too_large or TooLarge(), plain
        self._page_bytes = min(max(record_bytes, payload_bytes), PAGE_BYTES_MAX)
        self.position = start

    def next(self, most: int | None = None) -> Examined:
        """The next range, with as many products as the limits allow; `position` is behind it then.

        With `most`, no more sequences are examined.
        """
        start = self.position
        try:
            batch = self._read(start, None if most is None else start + most)
            stop = self._end_of_page(batch)
            if stop == start:
                return self._leave_out_large(batch)
            if stop is not None:
                batch = self._read(start, stop)
        except ProductDamagedError as error:
            return self._at_damage(start, error)
        return self._examined(start, batch)

    def _end_of_page(self, batch: Batch) -> int | None:
        """The sequence of the first product that does not fit into the page; None if all do."""
        growth = None if self._plain is None else self._plain.growth(batch)
        if growth is None and rows_of(batch).bytes + len(batch) * _OVERHEAD_MAX <= self._page_bytes:
            return None
        columns, limit = batch.columns, self._page_bytes
        sizes = np.frombuffer(rows_of(batch).record_sizes(), np.uint64)
        if growth is not None and len(batch):
            sizes = sizes + growth
            limit = min(limit, max(GROWN_BYTES_MAX, int(sizes[0]) + int(_ALIGNMENT)))
        over = np.flatnonzero(np.cumsum((sizes + _ALIGNMENT) & ~_ALIGNMENT) > limit)
        return int(columns["sequence"][over[0]]) if len(over) else None

    def _leave_out_large(self, batch: Batch) -> Examined:
        """The first product alone is too large."""
        start = self.position
        if self._page_bytes >= PAGE_BYTES_MAX:  # otherwise it is too large for this client only, which counts it
            self._too_large.note(start, batch.feed(0), int(batch.sizes[0]))
        self.position = start + 1
        return Examined(start - 1, start, lost=Lost(start, start), lost_by="too large")

    def _at_damage(self, start: int, error: ProductDamagedError) -> Examined:
        """What is before the damage, if there is anything, or the damaged range."""
        if error.sequence > start:
            return self._examined(start, self._read(start, error.sequence))
        self.position = error.next
        return Examined(start - 1, error.next - 1, lost=Lost(error.sequence, error.next - 1), lost_by="damaged")

    def _examined(self, start: int, batch: Batch) -> Examined:
        self.position = following = batch.next
        rows, too_old = (None, 0) if self._selection.max_age_s is None else self._timely(batch)
        rows, staying = self._passed_on(batch, rows)
        _, _, deleted, damaged, expired = rows_of(batch).passed_over
        if deleted or damaged:  # the reader may have looked further than the batch goes
            _, deleted, damaged = self._log.count(start, following, self._selection, allowed=self._allowed)
        left_out = _NOTHING
        if expired or deleted or damaged or too_old or staying:
            counts: dict[Cause, int] = {
                "expired": expired, "deleted": deleted, "damaged": damaged, "too old": too_old,
                "not passed on": staying,
            }  # fmt: skip
            left_out = {cause: count for cause, count in counts.items() if count}
        return Examined(start - 1, max(start, following) - 1, batch, rows, batch.lost, left_out=left_out)

    def _timely(self, batch: Batch) -> tuple[Places | None, int]:
        """Which products are young enough (None: all), and how many are not."""
        begin, _ = bounds(self._selection, self._log.now()[0])
        rows = np.flatnonzero(batch.columns["created_ns"] >= np.uint64(begin)).astype(np.uint32)
        return rows, len(batch) - len(rows)

    def _passed_on(self, batch: Batch, rows: Places | None) -> tuple[Places | None, int]:
        """Those of the rows (None: all) that may leave the site, and how many may not."""
        staying = rows_of(batch).staying()
        if staying is None:
            return rows, 0
        mask = np.frombuffer(staying, np.uint8) == 0
        leaving = np.flatnonzero(mask).astype(np.uint32) if rows is None else rows[mask[rows]]
        return leaving, (len(batch) if rows is None else len(rows)) - len(leaving)
