"""Keep: files of a Parquet table whose rows are all older than `keep` are deleted.

The age of a row is the time since it was put into the table, and a file is as old as its newest row. That is the time
of modification of the file: a stage sets it when it puts the file into place, and compaction gives a merged file the
latest time of its parts. A row whose age is below `keep` is never removed, as far as the machine's clock is right. A
row that is older stays until the newest row of its file is as old, and until there is a next batch.

One file is deleted at a time. A kill leaves the rest to the next time. A reader sees expired rows or not, and one that
has listed a file and opens it after it was deleted gets "no such file". Files of a batch that is not finished stay: its
repetition looks for them by name. Folders of partitions that become empty are deleted too.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.pipeline.actions.disk import disk_error
from headrace.pipeline.actions.table_home import unfinished


class Removed(NamedTuple):
    rows: int = 0
    files: int = 0


def expire_table(table: Path, keep_s: float) -> Removed:
    """Delete files that are older than this. TargetError: some may be deleted."""
    real, rows, files = table.resolve(), 0, 0
    try:
        busy, limit = unfinished(table), time.time() - keep_s
        for path in list(_files(real)):
            if path.stat().st_mtime <= limit and not any(mark in path.name for mark in busy):
                rows += _rows_in(path)
                path.unlink()
                files += 1
                _remove_empty(path.parent, real)
        return Removed(rows, files)
    except OSError as error:
        raise disk_error(error, table, "freed of old rows") from error


def _files(folder: Path) -> Iterator[Path]:
    """All Parquet files that readers see."""
    for path in folder.iterdir():
        if path.name.startswith((".", "_")) or path.is_symlink():
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.suffix == ".parquet":
            yield path


def _rows_in(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except pa.ArrowException:
        return 0  # it is damaged: no reader has rows of it


def _remove_empty(folder: Path, table: Path) -> None:
    while folder != table:
        with suppress(OSError):  # it is not empty
            os.rmdir(folder)
        if folder.exists():
            return
        folder = folder.parent
