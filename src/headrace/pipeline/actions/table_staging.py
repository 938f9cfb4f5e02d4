"""Staging: Spark writes a batch of a table to a folder beside it, and its files are then renamed into place.

    <home>/staging-<rule>-<action>/<life>-<batch>/…                the home of the table: table_home.py
    <home>/staging-<rule>-<action>/<life>-<batch>/ready.json       once all is written: which file goes where
    <table>/station=KDEN/part-<life>-<batch>-00000.parquet         in place

A stage without `ready.json` is incomplete: it is deleted, and the batch is written again. A stage with `ready.json` is
the batch: after a crash the missing renames are done, and nothing is computed again. So no file in place is ever
replaced or removed by a batch, and none is visible before it is complete.

Earlier versions staged within the table, in `.staging-<rule>-<action>`. A complete stage is continued there; then the
folder is deleted.

Durability: all files of the stage, their names and `ready.json` survive a power failure before the first rename; the
renames do before `put_into_place` returns.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.decoding import Decoder
from headrace.errors import PipelineError, TargetError
from headrace.files import read_regular
from headrace.log.documents import UNREADABLE, replace_file
from headrace.pipeline.actions.action import Context
from headrace.pipeline.actions.disk import DISK, disk_error, sync_names
from headrace.pipeline.actions.journal import life
from headrace.pipeline.actions.table_home import homes

READY = "ready.json"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # Spark's partition of rows without a value
UNFIT = "__HEADRACE_UNFIT__"  # the partition of rows that are staged and never put into place


class Staged(msgspec.Struct, frozen=True):
    """One file with rows."""

    name: str  # within the stage
    target: str  # within the table
    rows: int
    size: int
    values: dict[str, str | None]  # of the columns that the table is partitioned by


class Ready(msgspec.Struct, frozen=True):
    """A complete stage. It carries its columns: the SQL of the rule may have changed when it is put into place."""

    files: list[Staged]
    failed: int  # rows that are dead letters
    schema: dict[str, Any]  # Spark's, of the rows, as JSON
    partition_by: list[str]


_DECODER: Decoder[Ready] = Decoder(Ready, encoding="json")


class Stage:
    """The stage of one batch."""

    def __init__(self, table: Path, context: Context, action: str) -> None:
        self._table = table
        self._mark = f"{life(context.state)}-{context.batch_id:010}"
        name = f"staging-{context.rule}-{action}"
        self._places = [*(home / name for home in homes(table)), table / f".{name}"]  # the one for new stages first
        self._place = next((each for each in self._places if (each / self._mark / READY).exists()), self._places[0])
        self.folder = self._place / self._mark

    def ready(self) -> Ready | None:
        """The files to put into place, if the stage is complete. PipelineError: its record is damaged."""
        try:
            return _DECODER.decode(read_regular(self.folder / READY))
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            raise PipelineError(f"{self.folder / READY} is damaged: {error}", self._remedy()) from None
        except OSError as error:
            raise disk_error(error, self.folder / READY, "read") from error

    def make_ready(self, is_flat: bool, failed: int, schema: dict[str, Any], partition_by: Sequence[str]) -> Ready:
        """Record what Spark has written. From now on the stage is the batch."""
        files = [staged for staged in self._staged(is_flat) if staged.rows and UNFIT not in staged.values.values()]
        ready = Ready(files, failed, schema, list(partition_by))
        try:
            for staged in files:
                DISK.sync_file(self.folder / staged.name)
            sync_names(self._place.parents[2], (self.folder / staged.name for staged in files))
            replace_file(self.folder / READY, msgspec.json.encode(ready), DISK)  # after all files that it names
        except OSError as error:
            raise disk_error(error, self.folder) from error
        return ready

    def has_unfit(self) -> bool:
        """Whether Spark has written rows that belong into no partition."""
        return any(self.folder.rglob(f"*={UNFIT}"))

    def _staged(self, is_flat: bool) -> Iterator[Staged]:
        for number, path in enumerate(sorted(self.folder.rglob("part-*.parquet"))):
            within = path.relative_to(self.folder)
            name = f"part-{self._mark}-{number:05}.parquet"
            target = name if is_flat else str(within.with_name(name))
            rows, size = rows_in_file(path), path.stat().st_size
            yield Staged(str(within), target, rows, size, dict(map(_value, within.parts[:-1])))

    def put_into_place(self, ready: Ready) -> None:
        """Rename the files that are not renamed yet."""
        for staged in ready.files:
            source, target = self.folder / staged.name, self._table / staged.target
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.exists() and target.exists():  # a rename leaves only one of them
                    raise PipelineError(
                        f"{target} exists: the checkpoint is older than the table",
                        "restore the table of the same time, or choose a new path",
                    )
                os.utime(source)  # the age of its rows begins, for `keep`
                os.replace(source, target)
            except FileNotFoundError:
                if not target.exists():
                    raise PipelineError(
                        f"{source} disappeared before it was moved into {self._table}", self._remedy()
                    ) from None
            except OSError as error:
                raise disk_error(error, target) from error
        try:
            sync_names(self._table, (self._table / staged.target for staged in ready.files))
        except OSError as error:
            raise disk_error(error, self._table) from error

    def _remedy(self) -> str:
        return f"remove {self._place}; the batch is then written again"

    def clear(self) -> None:
        """Delete this stage, and any older one."""
        for place in self._places:
            shutil.rmtree(place, ignore_errors=True)


def rows_in_file(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid) as error:
        raise TargetError(
            f"{path} is damaged, and Spark has just written it: {error!s:.200}", "check the disk"
        ) from error


def _value(part: str) -> tuple[str, str | None]:
    """The column and the value in the name of a folder, `station=KDEN`."""
    column, _, value = part.partition("=")
    return unquote(column), None if value == NO_VALUE else unquote(value)
