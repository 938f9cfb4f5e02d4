"""Staging: where Spark writes a batch of a table, out of sight, before its files are renamed into place.

    <table>/.staging-<rule>-<action>/<life>-<batch>/…              hidden from readers
    <table>/.staging-<rule>-<action>/<life>-<batch>/ready.json     when everything is written: which file goes where
    <table>/station=KDEN/part-<life>-<batch>-00000.parquet         in place

Until `ready.json` is there, the stage is worth nothing: it is thrown away, and the batch is written again. From then
on it is the batch: after a crash the renames that are missing are done, and nothing is computed again. So no file in
place is ever replaced or removed, and none is there before it is whole."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions.action import Context
from headrace.pipeline.actions.disk import disk_error, sync_names, write_whole
from headrace.pipeline.actions.journal import life

READY = "ready.json"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # Spark's name for a partition of rows that have none
UNFIT = "__HEADRACE_UNFIT__"  # the partition of rows that are staged, but not put into place


class Staged(msgspec.Struct, frozen=True):
    """One file with rows."""

    name: str  # within the stage
    target: str  # within the table
    rows: int
    size: int
    values: dict[str, str | None]  # of the columns that the table is partitioned by


class Ready(msgspec.Struct, frozen=True):
    """A stage that is complete. Its columns are its own: the rule's SQL may be another when it is put into place."""

    files: list[Staged]
    failed: int  # rows that are dead letters
    schema: dict[str, Any]  # Spark's, of the rows, as JSON
    partition_by: list[str]


class Stage:
    """The stage of one batch."""

    def __init__(self, table: Path, context: Context, action: str) -> None:
        self._table = table
        self._home = table / f".staging-{context.rule}-{action}"
        self._mark = f"{life(context.state)}-{context.batch_id:010}"
        self.folder = self._home / self._mark

    def ready(self) -> Ready | None:
        """What is to be put into place, if all of it was written."""
        try:
            return msgspec.json.decode((self.folder / READY).read_bytes(), type=Ready)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise disk_error(error, self.folder / READY, "read") from error

    def make_ready(self, is_flat: bool, failed: int, schema: dict[str, Any], partition_by: Sequence[str]) -> Ready:
        """Look at what Spark has written; from now on the batch is what is staged."""
        files = [staged for staged in self._staged(is_flat) if staged.rows and UNFIT not in staged.values.values()]
        ready = Ready(files, failed, schema, list(partition_by))
        try:
            for staged in files:
                with open(self.folder / staged.name, "rb") as file:
                    os.fsync(file.fileno())
            sync_names(self._table, (self.folder / staged.name for staged in files))
            write_whole(self.folder / READY, msgspec.json.encode(ready))
        except OSError as error:
            raise disk_error(error, self.folder) from error
        return ready

    def has_unfit(self) -> bool:
        """Whether Spark has written rows that are not to be put into place."""
        return any(self.folder.rglob(f"*={UNFIT}"))

    def _staged(self, is_flat: bool) -> Iterator[Staged]:
        for number, path in enumerate(sorted(self.folder.rglob("part-*.parquet"))):
            within = path.relative_to(self.folder)
            name = f"part-{self._mark}-{number:05}.parquet"
            target = name if is_flat else str(within.with_name(name))
            rows, size = rows_in_file(path), path.stat().st_size
            yield Staged(str(within), target, rows, size, dict(map(_value, within.parts[:-1])))

    def put_into_place(self, ready: Ready) -> None:
        """Rename what has not been renamed."""
        for staged in ready.files:
            source, target = self.folder / staged.name, self._table / staged.target
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(source, target)
            except FileNotFoundError:
                if not target.exists():
                    raise PipelineError(
                        f"{source} has vanished before it was put into {self._table}",
                        f"remove {self._home}, start again",
                    ) from None
            except OSError as error:
                raise disk_error(error, target) from error
        try:
            sync_names(self._table, (self._table / staged.target for staged in ready.files))
        except OSError as error:
            raise disk_error(error, self._table) from error

    def clear(self) -> None:
        """Throw away this stage, and any other that is left."""
        shutil.rmtree(self._home, ignore_errors=True)


def rows_in_file(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid) as error:
        raise TargetError(
            f"{path} is not as Spark should have written it: {error!s:.200}", "see to the disk"
        ) from error


def _value(part: str) -> tuple[str, str | None]:
    """The column and the value that a folder stands for."""
    column, _, value = part.partition("=")
    return unquote(column), None if value == NO_VALUE else unquote(value)
