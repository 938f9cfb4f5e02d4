"""Dead letters: rows that an action could not process, in a table of their own, with the reason.

    tables/dead_letters/part-<rule>-<life>-<batch>-<action>.parquet

The rows that one action refuses of one batch are one file. It is written beside the table (table_home.py) and renamed
when the action has done everything else. A repeated batch replaces its file, or removes it if no row is refused any
more, so each letter exists once. The payload is cut to 64 KiB; `payload_bytes` has its full size, and `sequence` leads
to the product as long as the queue holds it. Small files are merged once an hour (dead_letter_files.py).

Durability: the file survives a power failure before the batch counts as done.
"""

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from headrace.errors import PipelineError
from headrace.log.documents import move_into_place
from headrace.pipeline.actions.action import Context, Counts
from headrace.pipeline.actions.dead_letter_files import compact_letters, only_writer
from headrace.pipeline.actions.disk import DISK, disk_error, make_folder
from headrace.pipeline.actions.journal import life
from headrace.pipeline.actions.prepared import SCHEMA as PREPARED
from headrace.pipeline.actions.prepared import (
    PreparedRow,
    Sender,
    SentRow,
    origin,
    prepared_batches,
    rows_in,
    with_valid_text,
)
from headrace.pipeline.actions.table_home import homes
from headrace.pipeline.decoders.decoder import cause

PAYLOAD_BYTES_MAX = 64 << 10
CAUSES_MAX = 20  # that are counted apart
OTHER_CAUSES = "other causes"
ERROR_CHARS_MAX = 1000
SCHEMA = pa.schema({
    "rule": pa.string(), "action": pa.string(), "sequence": pa.int64(), "feed": pa.string(), "ident": pa.string(),
    "error": pa.string(), "time": pa.timestamp("us", "UTC"), "payload": pa.binary(), "payload_bytes": pa.int64(),
    "batch": pa.int64(),
})  # fmt: skip
_BUFFER_BYTES = 4 << 20
_BUFFER_ROWS = 5000
_COMPACT_S = 3600.0
_LOGGER = logging.getLogger(__name__)
_ROW_BYTES = 200  # without the payload, estimated


def add_causes(total: dict[str, int], more: Mapping[str, int]) -> list[str]:
    """Add counts by cause, at most `CAUSES_MAX` of them apart; return the causes that are new."""
    new = []
    for name, count in more.items():
        if name not in total and len(total) >= CAUSES_MAX:
            name = OTHER_CAUSES
        if name not in total:
            new.append(name)
        total[name] = total.get(name, 0) + count
    return new


class Letters:
    """The letters of one action and one batch while they are written."""

    def __init__(self, part: Path, target: Path, context: Context, action: str) -> None:
        self._part = part
        self._target = target
        self._context = context
        self.rule, self.action = context.rule, action  # of the next letters; rules that share a query change them
        self._buffer: list[tuple[Any, ...]] = []
        self._buffered = 0
        self._writer: Any = None
        self.count = 0
        self.causes: Counter[str] = Counter()

    def add(self, row: PreparedRow, error: str) -> None:
        kept = row.content[:PAYLOAD_BYTES_MAX]
        self._buffer.append((
            self.rule, self.action, row.sequence, row.feed, row.ident, error[:ERROR_CHARS_MAX],
            time.time_ns() // 1000, kept, len(row.content), self._context.batch_id,
        ))  # fmt: skip
        self.count += 1
        add_causes(self.causes, {cause(error): 1})
        self._buffered += len(kept) + _ROW_BYTES
        if self._buffered >= _BUFFER_BYTES or len(self._buffer) >= _BUFFER_ROWS:
            self._write()

    def _write(self) -> None:
        if self._buffer:
            columns = [
                pa.array(each, field.type) for each, field in zip(zip(*self._buffer, strict=True), SCHEMA, strict=True)
            ]
            try:
                if self._writer is None:
                    make_folder(self._target.parent)
                    make_folder(self._part.parent)
                    self._writer = pq.ParquetWriter(self._part, SCHEMA)
                self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
            except OSError as error:
                raise disk_error(error, self._part) from error
        self._buffer, self._buffered = [], 0

    def finish(self) -> None:
        """Put the file into its place, or remove the one of an earlier attempt."""
        target = self._target
        self._write()
        try:
            if self._writer is None:
                if target.exists():
                    with only_writer(target.parent):
                        target.unlink(missing_ok=True)
                return
            self._writer.close()
            self._writer = None
            with only_writer(target.parent):
                move_into_place(self._part, target, DISK)  # survives a power failure
        except OSError as error:
            raise disk_error(error, target) from error

    def abandon(self) -> None:
        if self._writer is not None:
            with suppress(OSError):  # the disk is full; the file is removed anyway
                self._writer.close()
            self._writer = None
        with suppress(OSError):  # another error has been reported already
            self._part.unlink(missing_ok=True)


def counted(
    rows: Iterable[SentRow], letters: Letters, act: Callable[[Sender, PreparedRow], bool]
) -> dict[Sender, Counts]:
    """Do something with each row, and count by sender for which rows it succeeded."""
    done, failed = Counter[Sender](), Counter[Sender]()
    for sender, row in rows:
        letters.rule, letters.action = sender.rule, sender.action
        (done if act(sender, row) else failed)[sender] += 1
    return {sender: Counts(done[sender], failed=failed[sender]) for sender in done.keys() | failed.keys()}


class DeadLetters:
    """The table. It is also a performer, for rows that already have an `error`: products that a decoder refused."""

    def __init__(self, path: Path, action: str = "decode") -> None:
        self.path = path
        self._action = action
        self._compact_at = time.monotonic() + _COMPACT_S

    @contextmanager
    def writing(self, context: Context, action: str) -> Iterator[Letters]:
        """Letters that are in the table after the block; none of them if the block raises."""
        name = f"{context.rule}-{life(context.state)}"
        part = homes(self.path)[0] / f"{name}-{action}.parquet"
        target = self.path / f"part-{name}-{context.batch_id:010}-{action}.parquet"
        shutil.rmtree(self.path / ".staging", ignore_errors=True)  # of an earlier version, which wrote there
        letters = Letters(part, target, context, action)
        try:
            yield letters
            letters.finish()
        except BaseException:
            letters.abandon()
            raise
        if letters.count and time.monotonic() >= self._compact_at:
            self._compact()

    def _compact(self) -> None:
        """Merge small files. The letters are in the table whether or not this succeeds."""
        self._compact_at = time.monotonic() + _COMPACT_S
        try:
            compact_letters(self.path)
        except PipelineError as error:
            _LOGGER.warning("%s; it stays as it is, and the next attempt is in %g s", error, _COMPACT_S)

    def perform(self, frame: DataFrame, context: Context) -> Counts:
        """Store rows with the column `error`, and any of sequence, feed, ident and payload."""
        with self.writing(context, self._action) as letters:
            for row in rows_in(prepared_batches(frame, refused)):
                letters.add(row, row.error or "")
        return Counts(failed=letters.count, files=int(letters.count > 0), causes=dict(letters.causes))

    def close(self) -> None:
        """Nothing is open."""


def refused(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with an error as prepared rows. Runs in executors."""
    rows = with_valid_text(rows)
    count = rows.num_rows
    payload = rows.column("payload") if "payload" in rows.schema.names else pa.nulls(count, pa.binary())
    texts = pa.array([[]] * count, PREPARED.field("texts").type)
    content = pc.fill_null(payload.cast(pa.binary()), b"")
    return pa.RecordBatch.from_arrays([texts, content, rows.column("error"), *origin(rows)], schema=PREPARED)
