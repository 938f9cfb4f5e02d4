"""Delta: files in place become part of a Delta table, in one transaction that carries the number of its batch.

The transaction has an application id, made of pipeline, rule, action and life, and the number of the batch as its
version. A repeated batch finds that version in the log of the table and is skipped.

The library deltalake (`pip install 'headrace[delta]'`) adds the files; Spark needs no packages for it. Files lie
directly in the folder of the table, and the log has their values of partition columns.

Durability: the library leaves flushing to the operating system, so `add` flushes the log itself. A batch must not count
as done before its transaction survives a power failure.
"""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.errors import TargetError
from headrace.extras import require
from headrace.pipeline.actions.disk import DISK, sync_names
from headrace.pipeline.actions.table_delta_commits import adds_of, replace_adds
from headrace.pipeline.actions.table_delta_compaction import compact_delta, tidy_delta
from headrace.pipeline.actions.table_delta_keep import expire_delta
from headrace.pipeline.actions.table_delta_statistics import grown, statistics
from headrace.pipeline.actions.table_keep import Removed
from headrace.pipeline.actions.table_schema import TableSchema, plain
from headrace.pipeline.actions.table_staging import Ready

_LOG = "_delta_log"
_COMMITS_FLUSHED = 8  # ours, and those that other writers may have added since


def _library() -> Any:
    require("delta")
    import deltalake

    return deltalake


class DeltaLog:
    """The log of one table, for a writer."""

    def __init__(self, table: Path, application: str) -> None:
        self._library = _library()
        self._table = table
        self._application = application

    def _open(self) -> Any:
        return (
            self._library.DeltaTable(str(self._table))
            if self._library.DeltaTable.is_deltatable(str(self._table))
            else None
        )

    def schema(self) -> TableSchema | None:
        table = self._open()
        if table is None:
            return None
        fields = json.loads(table.schema().to_json())["fields"]
        return TableSchema(
            {field["name"]: plain(field["type"]) for field in fields}, table.metadata().partition_columns
        )

    def has(self, batch_id: int) -> bool:
        table = self._open()
        version = None if table is None else table.transaction_version(self._application)
        return version is not None and version >= batch_id

    def add(self, ready: Ready, batch_id: int) -> None:
        """Add the files in one transaction. After return it survives a power failure; on an error it does not exist."""
        try:
            if not self.has(batch_id):
                self._commit(ready, batch_id)
            self._flush()
        except (self._library.exceptions.DeltaError, OSError) as error:
            raise TargetError(
                f"the log of {self._table} rejects batch {batch_id}: {error!s:.300}",
                "fix the cause; the batch is then retried",
            ) from error

    def compact(self, span_s: float | None = None) -> int:
        """Merge small files; return how many files there are fewer. TargetError: the table is unharmed."""
        return 0 if self._open() is None else compact_delta(self._table, self._library, span_s)

    def expire(self, keep_s: float) -> Removed:
        """Remove rows that are older than this. TargetError or PipelineError: the table is unharmed."""
        return Removed() if self._open() is None else expire_delta(self._table, self._library, keep_s)

    def tidy(self) -> None:
        """Delete what a compaction left that was killed. TargetError."""
        if self._open() is not None:
            tidy_delta(self._table, self._library)

    def _commit(self, ready: Ready, batch_id: int) -> None:
        library = self._library
        made = library.Schema.from_json(json.dumps(nullable(ready.schema)))
        table = self._open() or library.DeltaTable.create(
            str(self._table), made, mode="ignore", partition_by=ready.partition_by
        )
        held = {field.name for field in table.schema().fields}
        new = [field for field in made.fields if field.name not in held]
        if new:
            self._grow(table, new)
            table = self._open()
        names = [field.name for field in table.schema().fields if field.name not in ready.partition_by]
        now = int(time.time() * 1000)
        properties = library.CommitProperties(
            app_transactions=[library.Transaction(self._application, batch_id, now)],
            custom_metadata={"batch": str(batch_id)},
        )
        table.create_write_transaction(
            [self._action(staged, names, now) for staged in ready.files], "append", made, ready.partition_by,
            commit_properties=properties,
        )  # fmt: skip

    def _flush(self) -> None:
        version = self._open().version()
        names = [f"{each:020}" for each in range(max(0, version - _COMMITS_FLUSHED), version + 1)]
        endings = (".json", ".checkpoint.parquet")
        files = [self._table / _LOG / f"{name}{ending}" for name in names for ending in endings]
        for path in (*files, self._table / _LOG / "_last_checkpoint"):
            with suppress(FileNotFoundError):  # not every commit has a checkpoint
                DISK.sync_file(path)
        sync_names(self._table, files)

    def _grow(self, table: Any, new: Sequence[Any]) -> None:
        """Add columns, in two transactions. A kill after either leaves a correct table, without the batch."""
        names = [field.name for field in new]
        changed = [made for add in adds_of(self._table, table) if (made := grown(add, names)) is not None]
        if changed:
            replace_adds(self._table, table, changed, self._library)
        self._open().alter.add_columns(list(new))

    def _action(self, staged: Any, columns: Sequence[str], now: int) -> Any:
        from deltalake.transaction import AddAction

        stats = statistics(self._table / staged.target, columns)
        return AddAction(staged.target, staged.size, staged.values, now, True, stats)


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of Spark with nullable columns and without metadata."""
    return {"type": "struct", "fields": [{**field, "nullable": True, "metadata": {}} for field in schema["fields"]]}
