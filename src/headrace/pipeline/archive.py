"""Archive: products that the pipeline has written to a table, read back and put again.

Any table with the columns of products (columns.py) is an archive: a rule with `table` and without `decode` makes one.
A product comes back with its feed, ident, payload, origin, sequence there, creation time (to the microsecond),
priority, slice, signature and properties (as text), so a queue that still holds it drops it as a duplicate. It does not
come back with its expiry unless that is asked for: what was archived has mostly expired.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from headrace.errors import PipelineError
from headrace.pipeline.columns import COLUMNS, SCHEMA
from headrace.product.feed import FeedPattern
from headrace.queue import Queue

_NEEDED = ("feed", "ident", "payload", "origin", "origin_sequence", "created")
_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of it: a pattern of feeds, and when they were created (`until` is not included)."""

    feed: str | None = None
    since: datetime | None = None
    until: datetime | None = None


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
        self._data = _dataset(self.path)
        missing = [name for name in _NEEDED if name not in self._data.schema.names]
        if missing:
            raise PipelineError(
                f"{self.path} has no column {', '.join(missing)}, so it holds no products",
                "archive products by a rule with `table` and without `decode`",
            )

    def batches(self, wanted: Wanted | None = None) -> Iterator[pa.RecordBatch]:
        """The products, as the table has them; within a file in their order."""
        wanted = wanted or Wanted()
        columns = [name for name in COLUMNS if name in self._data.schema.names]
        pattern = None if wanted.feed is None else FeedPattern(wanted.feed)
        for batch in self._data.to_batches(columns=columns, filter=_condition(wanted), batch_size=_ROWS):
            if pattern is not None and batch.num_rows:
                batch = batch.filter(_of_feeds(batch.column("feed"), pattern))
            if batch.num_rows:
                yield batch

    def holdings(self, wanted: Wanted | None = None) -> list[Holding]:
        """What there is, by feed."""
        parts = [
            pa.table({
                "feed": batch.column("feed").cast(pa.string()), "created": batch.column("created"),
                "bytes": pc.binary_length(batch.column("payload")).cast(pa.int64()),
            })
            for batch in self.batches(wanted)
        ]  # fmt: skip
        if not parts:
            return []
        counted = [("bytes", "count"), ("bytes", "sum"), ("created", "min"), ("created", "max")]
        told = pa.concat_tables(parts).group_by("feed").aggregate(counted).sort_by("feed").to_pylist()
        return [
            Holding(row["feed"], row["bytes_count"], row["bytes_sum"], row["created_min"], row["created_max"])
            for row in told
        ]

    def replay(self, queue: Queue, wanted: Wanted | None = None, *, expiry: bool = False) -> Iterator[tuple[int, int]]:
        """Put them; after each part, how many there were and how many of them were new."""
        for batch in self.batches(wanted):
            receipt = queue.put_many(**_puttable(batch, expiry=expiry))
            yield receipt.products, receipt.stored


def _dataset(path: Path) -> Any:
    if not path.exists():
        raise PipelineError(f"there is no table at {path}", "give the folder of a table")
    try:
        if (path / "_delta_log").is_dir():
            return _delta(path)
        return ds.dataset(path, format="parquet", partitioning="hive", exclude_invalid_files=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise PipelineError(f"{path} cannot be read as a table: {error}", "give the folder of a table") from None


def _delta(path: Path) -> Any:
    try:
        from deltalake import DeltaTable
    except ImportError:
        raise PipelineError(f"{path} is a Delta table", "pip install 'headrace[delta]'") from None
    return ds.dataset(DeltaTable(str(path)).file_uris(), format="parquet", partitioning="hive")


def _condition(wanted: Wanted) -> Any:
    condition = None
    for limit, compare in ((wanted.since, "greater_equal"), (wanted.until, "less")):
        if limit is not None:
            part = getattr(pc, compare)(pc.field("created"), pa.scalar(limit, SCHEMA.field("created").type))
            condition = part if condition is None else condition & part
    return condition


def _of_feeds(feeds: Any, pattern: FeedPattern) -> Any:
    texts = feeds.cast(pa.string())
    wanted = [feed for feed in pc.unique(texts).to_pylist() if pattern.matches(feed)]
    return pc.is_in(texts, pa.array(wanted, pa.string()))


def _puttable(batch: pa.RecordBatch, *, expiry: bool) -> dict[str, Any]:
    """Arguments of `Queue.put_many`."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    given: dict[str, Any] = {
        "payloads": columns["payload"].cast(pa.binary()),
        **{name: columns[name].cast(pa.string()) for name in ("feed", "ident", "origin")},
        "origin_sequence": columns["origin_sequence"],
        "created": _nanoseconds(columns["created"]),
    }
    for name in ("priority", "slice"):
        if name in columns:
            given[name] = columns[name]
    if expiry and "expiry" in columns:
        given["expiry"] = _nanoseconds(columns["expiry"])
    if "properties" in columns:
        given["properties"] = [dict(pairs or ()) for pairs in columns["properties"].to_pylist()]
    if "signature" in columns and not columns["signature"].null_count:
        given["signature"] = columns["signature"]
    return given


def _nanoseconds(times: Any) -> Any:
    return times.cast(pa.timestamp("ns", tz="UTC")).cast(pa.int64())


def totals(parts: Sequence[Holding]) -> tuple[int, int]:
    """Products and bytes of all feeds."""
    return sum(part.products for part in parts), sum(part.payload_bytes for part in parts)
