"""Archive: a table of products that the pipeline wrote, read back: restored to a queue, or replayed.

Any table with the columns of products (source/columns.py) is an archive: a rule with `table` and without `decode`
writes one. A product comes back with its feed, ident, payload, origin, sequence there, creation time (to the
microsecond), priority, slice, signature and properties (as text), so a queue that still holds it drops it as a
duplicate. It comes back without its expiry unless you request it: most archived products have expired.

The sequence at the origin is left out where the origin is the queue's own. That queue assigns these numbers, and a
product of its own with another number would seem to come from an earlier queue of that name. If such a product has
neither ident nor signature, it gets a signature here, made from its row, so that a repeated replay is recognised.

`restore` puts products as they were, so a queue that still holds one drops it. `replay` makes batches in the order of
time, for a consumer or to be put as marked copies (replay.py).

Memory holds one part of a file at a time (files.py); a replay one part of each file that overlaps others in time
(order.py).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from blake3 import blake3

from headrace.errors import OptionError
from headrace.log.config import QueueConfig
from headrace.log.log import Wanted
from headrace.log.read import Start
from headrace.pipeline.archive.files import (
    TYPES,
    TableFile,
    check_columns,
    files_of,
    rows_of,
    span,
    span_of,
    zoned,
)
from headrace.pipeline.archive.order import in_order
from headrace.pipeline.archive.replay import ArchiveSource, TimeWindow, moment_of, streams_of
from headrace.pipeline.source.columns import TIME
from headrace.pipeline.source.parts import PART_BYTES, part_bytes, parts_of, put_or_halve
from headrace.product.feed import FeedPattern
from headrace.product.product import PRIORITY_DEFAULT, MadeProduct, Product
from headrace.product.put import SIGNATURE_BYTES
from headrace.queue import AnyQueue
from headrace.selection import Selection
from headrace.timing.replay import Replay
from headrace.timing.replay.marks import Target
from headrace.timing.replay.source import By, check_by

_CLOCKS = timedelta(days=1)  # by which the clock of a producer may be ahead


@dataclass(frozen=True, slots=True)
class ArchiveFilter:
    """Which products: a feed pattern, times of creation (`until` is not included), and a selection. All must match."""

    feed: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    selection: Selection | None = None

    def __post_init__(self) -> None:
        """OptionError: the times select nothing."""
        since, until = zoned(self.since), zoned(self.until)
        if since is not None and until is not None and since >= until:
            raise OptionError(f"until {until} is not after since {since}", "swap them; until is not included")
        if since is not None and since > datetime.now(UTC) + _CLOCKS:
            raise OptionError(f"since {since} is in the future", "give a time at which products were created")


@dataclass(frozen=True, slots=True)
class Holding:
    """What an archive holds of one feed."""

    feed: str
    products: int
    payload_bytes: int
    first: datetime
    last: datetime


class Archive:
    """A Parquet table on disk, or the current version of a Delta table. PipelineError if it does not hold products."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._files = files_of(self.path)
        check_columns(self._files[0])

    def batches(
        self, wanted: ArchiveFilter | None = None, *, bytes_max: int = PART_BYTES, columns: Sequence[str] = tuple(TYPES)
    ) -> Iterator[pa.RecordBatch]:
        """The products, file by file, in the order of each file; a batch has at most about `bytes_max`."""
        matcher = _Matcher(wanted or ArchiveFilter())
        for file in self._files:
            yield from parts_of(self._rows(file, matcher, columns, bytes_max), bytes_max)

    def holdings(self, wanted: ArchiveFilter | None = None) -> list[Holding]:
        """What the archive holds, by feed."""
        found: dict[str, Holding] = {}
        columns = tuple(TYPES) if wanted and wanted.selection else ("feed", "payload", "created")
        for batch in self.batches(wanted, columns=columns):
            for holding in _counted(batch):
                found[holding.feed] = _added(found.get(holding.feed), holding)
        return [found[feed] for feed in sorted(found)]

    def restore(
        self, queue: AnyQueue, wanted: ArchiveFilter | None = None, *, expiry: bool = False
    ) -> Iterator[tuple[int, int]]:
        """Put them into a queue as they were; after each part yield its number of products, and how many were new."""
        config = queue.config
        for part in self.batches(wanted, bytes_max=part_bytes(config)):
            yield put_part(queue, part, config, expiry=expiry)

    def replay(
        self, start: Start = "oldest", stop: Start = "next", selection: Wanted = None, *, speed: float | str = 1,
        by: By = "inserted", resume_ns: int | None = None,
    ) -> Replay:  # fmt: skip
        """Its products between two times again, in batches, each when it is due (docs/replay.md).

        Times are those at which products came into the queue that they were archived from, or of their creation:
        `by` says which. `resume_ns` is the position of a run that goes on.
        """
        window = self._window(start, stop, check_by(by), resume_ns)
        wanted = ArchiveFilter(selection=Selection.of(selection))
        return Replay(ArchiveSource(self, wanted, window, by), speed)

    def in_order(self, wanted: ArchiveFilter, window: TimeWindow, by: By) -> Iterator[pa.RecordBatch]:
        """The products in a window, in the order of time."""
        matcher = _Matcher(wanted)

        def rows(file: TableFile) -> Iterator[pa.RecordBatch]:
            return self._rows(file, matcher, tuple(TYPES), PART_BYTES)

        return in_order(list(streams_of(self._files, rows, window, by)), by)

    def _window(self, start: Start, stop: Start, by: By, resume_ns: int | None) -> TimeWindow:
        spans = [each for file in self._files if (each := span(file, by)) is not None]
        now_ns = time.time_ns()
        first = min((each[0] for each in spans), default=0) if len(spans) == len(self._files) else 0
        last = max((each[1] for each in spans), default=now_ns) if len(spans) == len(self._files) else now_ns
        begin = first if start == "oldest" else moment_of(start, now_ns)
        end = last + 1 if stop == "next" else moment_of(stop, now_ns)
        if end < begin:
            raise OptionError(f"the window ends at {stop!r}, before it begins at {start!r}", "swap the two")
        return TimeWindow(begin, end, resume_ns)

    def _rows(
        self, file: TableFile, matcher: "_Matcher", columns: Sequence[str], bytes_max: int
    ) -> Iterator[pa.RecordBatch]:
        if not matcher.may_have(file):
            return
        for batch in rows_of(file, columns, bytes_max, matcher.may_be_in):
            kept = matcher.kept(batch)
            if kept.num_rows:
                yield kept


def put_part(queue: Target, part: pa.RecordBatch, config: QueueConfig, *, expiry: bool = False) -> tuple[int, int]:
    """Put a part, in halves if it is too large for the queue; return its number of products, and how many are new.

    `config` is that of the queue.
    """

    def put(piece: pa.RecordBatch) -> tuple[int, int]:
        receipt = queue.put_many(**put_arguments(piece, config, expiry=expiry))
        return receipt.products, receipt.stored

    return put_or_halve(part, put)


def totals(parts: Sequence[Holding]) -> tuple[int, int]:
    """Products and bytes of all feeds."""
    return sum(part.products for part in parts), sum(part.payload_bytes for part in parts)


# --- matching ---------------------------------------------------------------------------------------


class _Matcher:
    """Decides which products match: by file and row group where possible, then by row."""

    def __init__(self, wanted: ArchiveFilter) -> None:
        self._since, self._until = zoned(wanted.since), zoned(wanted.until)
        self._selection = wanted.selection or Selection()
        patterns = (wanted.feed, self._selection.feed)
        self._patterns = [FeedPattern(pattern) for pattern in patterns if pattern is not None]
        self._is_by_feed = not set(self._selection.given()) - {"feed", "every"}
        self._turn = 0  # for `every`: products that matched so far

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
        """Those that `every` selects; it counts as a reader of a queue does."""
        turns = np.arange(self._turn + 1, self._turn + 1 + rows)
        self._turn += rows
        return np.equal(turns % self._selection.every, 0)


def _products(batch: pa.RecordBatch) -> Iterator[Product]:
    """The rows as a selection takes them."""
    times = {name: batch.column(name).cast(pa.int64()) for name in ("created", "inserted", "expiry")}
    for row in pa.table({**dict(zip(batch.schema.names, batch.columns, strict=True)), **times}).to_pylist():
        yield MadeProduct(
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


def put_arguments(part: pa.RecordBatch, config: QueueConfig, *, expiry: bool) -> dict[str, Any]:
    """Arguments of `Queue.put_many`."""
    columns = {name: part.column(name) for name in part.schema.names}
    is_own = pc.equal(columns["origin"], config.origin)
    return {
        "payloads": columns["payload"],
        **{name: columns[name].to_pylist() for name in ("feed", "ident", "origin")},
        "slice": columns["slice"],
        "signature": _signatures(columns, is_own) if config.dedup == "identity" else columns["signature"],
        "origin_sequence": pc.if_else(is_own, 0, columns["origin_sequence"]),
        "created": columns["created"].cast(pa.int64()),
        "priority": columns["priority"].fill_null(PRIORITY_DEFAULT),
        "expiry": columns["expiry"].cast(pa.int64()) if expiry else None,
        "properties": [dict(pairs or ()) for pairs in columns["properties"].to_pylist()],
    }


def _signatures(columns: dict[str, Any], is_own: Any) -> Any:
    """The column, completed for products of the queue's own origin that nothing else would identify."""
    bare = pc.and_(pc.and_(is_own, columns["signature"].is_null()), pc.equal(columns["ident"], ""))
    if not pc.any(bare).as_py():
        return columns["signature"]
    names = ("feed", "origin", "origin_sequence", "created", "payload")
    rows = zip(*(columns[name].to_pylist() for name in names), strict=True)
    made = [blake3(repr(row).encode(errors="surrogatepass")).digest(SIGNATURE_BYTES) for row in rows]
    return pc.if_else(bare, pa.array(made, pa.binary()), columns["signature"])
