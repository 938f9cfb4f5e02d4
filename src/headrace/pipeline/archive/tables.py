"""Archive: products that the pipeline has written to a table, read back and put again.

Any table with the columns of products (columns.py) is an archive: a rule with `table` and without `decode` makes one.
A product comes back with its feed, ident, payload, origin, sequence there, creation time (to the microsecond),
priority, slice, signature and properties (as text), so a queue that still holds it drops it as a duplicate. It does not
come back with its expiry unless that is asked for: what was archived has mostly expired.

The sequence at the origin is left out where the origin is the queue's own: there it is the queue that gives numbers,
and a product of its own with another number would be one of an earlier life.

Memory holds a part of a file at a time (archive_files.py); if a pace is wanted, a part of each file that
overlaps others in time (archive_pace.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BatchTooLargeError
from headrace.log.config import QueueConfig
from headrace.pipeline.archive.files import (
    TYPES,
    TableFile,
    check_columns,
    earliest,
    files_of,
    rows_of,
    span_of,
    zoned,
)
from headrace.pipeline.archive.pace import PART_BYTES, Pace, gathered, in_order, paced
from headrace.pipeline.source.columns import TIME
from headrace.product.feed import FeedPattern
from headrace.product.product import PRIORITY_DEFAULT, Product
from headrace.queue import Queue
from headrace.selection import Selection

__all__ = ["Archive", "Holding", "Pace", "Wanted", "part_bytes", "put_part", "totals"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of it: a pattern of feeds, when they were created (`until` is not included), and any selection."""

    feed: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    selection: Selection | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """What an archive has of a feed."""

    feed: str
    products: int
    payload_bytes: int
    first: datetime
    last: datetime


class Archive:
    """A table on disk, in Parquet; of a Delta table, its current version."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._files = files_of(self.path)
        check_columns(self._files[0])

    def batches(
        self, wanted: Wanted | None = None, *, bytes_max: int = PART_BYTES, columns: Sequence[str] = tuple(TYPES)
    ) -> Iterator[pa.RecordBatch]:
        """The products, file by file, within a file in their order; each batch has about `bytes_max` at most."""
        chooser = _Chooser(wanted or Wanted())
        for file in self._files:
            yield from gathered(self._rows(file, chooser, columns, bytes_max), bytes_max)

    def holdings(self, wanted: Wanted | None = None) -> list[Holding]:
        """What there is, by feed."""
        found: dict[str, Holding] = {}
        columns = tuple(TYPES) if wanted and wanted.selection else ("feed", "payload", "created")
        for batch in self.batches(wanted, columns=columns):
            for holding in _counted(batch):
                found[holding.feed] = _added(found.get(holding.feed), holding)
        return [found[feed] for feed in sorted(found)]

    def parts(
        self, wanted: Wanted | None = None, *, pace: Pace | None = None, bytes_max: int = PART_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """The products in parts of about `bytes_max`; with a pace, in the order in which they came, when they are due.

        That is the order of `inserted`, or of `created` in a table that does not have the former.
        """
        if pace is None:
            yield from self.batches(wanted, bytes_max=bytes_max)
            return
        chooser = _Chooser(wanted or Wanted())

        def rows(file: TableFile) -> Iterator[pa.RecordBatch]:
            return gathered(self._rows(file, chooser, tuple(TYPES), bytes_max), bytes_max)

        streams = [(_nanoseconds(earliest(file)), partial(rows, file)) for file in self._files]
        yield from paced(in_order(streams), pace, bytes_max)

    def replay(
        self, queue: Queue, wanted: Wanted | None = None, *, expiry: bool = False, pace: Pace | None = None
    ) -> Iterator[tuple[int, int]]:
        """Put them; after each part, how many there were and how many of them were new."""
        config = queue.config
        for part in self.parts(wanted, pace=pace, bytes_max=part_bytes(config)):
            yield put_part(queue, part, config.origin, expiry=expiry)

    def _rows(
        self, file: TableFile, chooser: "_Chooser", columns: Sequence[str], bytes_max: int
    ) -> Iterator[pa.RecordBatch]:
        if not chooser.may_have(file):
            return
        for batch in rows_of(file, columns, bytes_max, chooser.may_be_in):
            kept = chooser.kept(batch)
            if kept.num_rows:
                yield kept


def _nanoseconds(when: datetime | None) -> int:
    return 0 if when is None else int(pa.scalar(when, TYPES["created"]).value)


def part_bytes(config: QueueConfig) -> int:
    """How much to put into a queue at once."""
    return min(PART_BYTES, config.size // 8)


def put_part(
    queue: Queue, part: pa.RecordBatch, own: str, *, expiry: bool = False, timeout: float | None = None
) -> tuple[int, int]:
    """Put a part: how many products it has, and how many are new. `own` is the origin of the queue.

    If it does not fit into the queue as one piece, each half perhaps does.
    """
    try:
        receipt = queue.put_many(**_puttable(part, own, expiry=expiry), timeout=timeout)
    except BatchTooLargeError:
        if part.num_rows < 2:
            raise
        middle = part.num_rows // 2
        halves = [
            put_part(queue, half, own, expiry=expiry, timeout=timeout)
            for half in (part.slice(0, middle), part.slice(middle))
        ]
        return sum(products for products, _ in halves), sum(stored for _, stored in halves)
    return receipt.products, receipt.stored


def totals(parts: Sequence[Holding]) -> tuple[int, int]:
    """Products and bytes of all feeds."""
    return sum(part.products for part in parts), sum(part.payload_bytes for part in parts)


# --- which ------------------------------------------------------------------------------------------


class _Chooser:
    """Decides what is wanted; by files and row groups where they tell, then by rows."""

    def __init__(self, wanted: Wanted) -> None:
        self._since, self._until = zoned(wanted.since), zoned(wanted.until)
        self._selection = wanted.selection or Selection()
        patterns = (wanted.feed, self._selection.feed)
        self._patterns = [FeedPattern(pattern) for pattern in patterns if pattern is not None]
        self._is_by_feed = not set(self._selection.given()) - {"feed", "every"}
        self._turn = 0  # of `every`: wanted products so far

    def may_have(self, file: TableFile) -> bool:
        feed = file.values.get("feed")
        return feed is None or self._wants_feed(feed)

    def may_be_in(self, group: Any) -> bool:
        span = span_of(group, "created")
        if span is None:
            return True
        return (self._since is None or span[1] >= self._since) and (self._until is None or span[0] < self._until)

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for limit, compare in ((self._since, pc.greater_equal), (self._until, pc.less)):
            if limit is not None:
                batch = batch.filter(compare(batch.column("created"), pa.scalar(limit, TYPES["created"])))
        if self._patterns:
            feeds = batch.column("feed")
            known = [feed for feed in pc.unique(feeds).to_pylist() if self._wants_feed(feed)]
            batch = batch.filter(pc.is_in(feeds, pa.array(known, pa.string())))
        if not self._is_by_feed:
            batch = batch.filter(pa.array([self._selection.wants(product) for product in _products(batch)], pa.bool_()))
        return batch if self._selection.every == 1 else batch.filter(pa.array(self._turns(batch.num_rows)))

    def _wants_feed(self, feed: str) -> bool:
        return all(pattern.matches(feed) for pattern in self._patterns)

    def _turns(self, rows: int) -> npt.NDArray[np.bool_]:
        """Those that `every` lets through; it counts as a reader of a queue does."""
        turns = np.arange(self._turn + 1, self._turn + 1 + rows)
        self._turn += rows
        return np.equal(turns % self._selection.every, 0)


def _products(batch: pa.RecordBatch) -> Iterator[Product]:
    """The rows as a selection looks at them."""
    times = {name: batch.column(name).cast(pa.int64()) for name in ("created", "inserted", "expiry")}
    for row in pa.table({**dict(zip(batch.schema.names, batch.columns, strict=True)), **times}).to_pylist():
        yield Product(
            feed=row["feed"], ident=row["ident"], payload=memoryview(row["payload"]), sequence=row["sequence"] or 0,
            signature=row["signature"] or b"", origin=row["origin"], origin_sequence=row["origin_sequence"],
            previous=None, created_ns=row["created"], inserted_ns=row["inserted"] or 0,
            priority=PRIORITY_DEFAULT if row["priority"] is None else row["priority"], expiry_ns=row["expiry"],
            slice=row["slice"], properties=dict(row["properties"] or ()),
        )  # fmt: skip


def _counted(batch: pa.RecordBatch) -> list[Holding]:
    sizes = pc.binary_length(batch.column("payload")).cast(pa.int64())
    created = batch.column("created").cast(TIME, safe=False)
    rows = pa.table({"feed": batch.column("feed"), "created": created, "bytes": sizes})
    sums = [("bytes", "count"), ("bytes", "sum"), ("created", "min"), ("created", "max")]
    return [
        Holding(row["feed"], row["bytes_count"], row["bytes_sum"], row["created_min"], row["created_max"])
        for row in rows.group_by("feed").aggregate(sums).to_pylist()
    ]


def _added(one: Holding | None, other: Holding) -> Holding:
    if one is None:
        return other
    return Holding(
        one.feed, one.products + other.products, one.payload_bytes + other.payload_bytes, min(one.first, other.first),
        max(one.last, other.last),
    )  # fmt: skip


# --- putting ----------------------------------------------------------------------------------------


def _puttable(part: pa.RecordBatch, own: str, *, expiry: bool) -> dict[str, Any]:
    """Arguments of `Queue.put_many`."""
    columns = {name: part.column(name) for name in part.schema.names}
    return {
        "payloads": columns["payload"],
        **{name: columns[name].to_pylist() for name in ("feed", "ident", "origin")},
        **{name: columns[name] for name in ("slice", "signature")},
        "origin_sequence": pc.if_else(pc.equal(columns["origin"], own), 0, columns["origin_sequence"]),
        "created": columns["created"].cast(pa.int64()),
        "priority": columns["priority"].fill_null(PRIORITY_DEFAULT),
        "expiry": columns["expiry"].cast(pa.int64()) if expiry else None,
        "properties": [dict(pairs or ()) for pairs in columns["properties"].to_pylist()],
    }
