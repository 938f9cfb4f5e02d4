"""Compaction of a Parquet table: the small files of a folder become few large ones, in one step for readers.

    1. <home>/compaction/<random>/folder      merged files, and links to the files that stay; all flushed
    2. renameat2(RENAME_EXCHANGE)             that folder and the one in the table change places
    3. <home>/compaction/<random>/folder      now the old folder; kept for readers, then deleted (table_replaced.py)

A listing of the folder has the small files or the merged ones, never both and never neither. A reader that listed the
small files and opens them after the exchange gets "no such file", and repeats its read. A reader of several partitions
may see one before and another after the exchange; rows never move between partitions.

Arrow and Hadoop list a folder, then ask for the status of each name, and leave a name out, without an error, if its
file is gone. A reader whose listing is complete when the exchange comes, and that has asked for no status yet, would
find none of the small files. So the exchange waits until nobody has opened the folder for a while (table_replaced.py).

A merged file has the latest time of modification of its parts: it is as old as its newest row (table_keep.py).

A table has one writer, which calls this between two batches. Files of a batch that is not finished are not merged: its
repetition looks for them by name. A folder that changes while it is merged, by another program, is left as it is.

Bounds: merged and replaced files of one call have at most `KEPT_BYTES` each, and one row group is in memory.
"""

import logging
import os
import secrets
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions.disk import DISK, disk_error, make_folder
from headrace.pipeline.actions.table_home import unfinished
from headrace.pipeline.actions.table_replaced import (
    KEPT_BYTES,
    exchange,
    new_room,
    remove_replaced,
    replaced_bytes,
    unlisted,
)

_LOGGER = logging.getLogger(__name__)
SMALL_BYTES = 32 << 20  # a file below this is merged
FILES_MIN = 4  # small files in a folder; fewer are left
_FILE_BYTES = 128 << 20  # of a merged file, before compression differs
_ROW_GROUP_BYTES = 64 << 20  # in memory
_FOLDERS_AT_ONCE = 16  # few, so that they are exchanged at once after the wait

Plan = tuple[Path, list[list[Path]]]  # a folder, and the files of it that become one each


def compact_table(table: Path, span_s: float | None = None, leave: Collection[str] = ()) -> int:
    """Merge small files; return how many files there are fewer. TargetError or PipelineError: the table is unharmed.

    span_s: merge only files of the same span of time, so that they can be removed when all their rows are old.
    leave: names of files that are not merged.
    """
    try:
        remove_replaced(table)
        plans = list(_plans(table, span_s, leave))
        return sum(
            _compact_folders(plans[place : place + _FOLDERS_AT_ONCE], table)
            for place in range(0, len(plans), _FOLDERS_AT_ONCE)
        )
    except OSError as error:
        raise disk_error(error, table, "compacted") from error
    except pa.ArrowException as error:
        raise PipelineError(
            f"{table} cannot be compacted: {error!s:.300}", "its files differ, or are damaged"
        ) from error


def _plans(table: Path, span_s: float | None, leave: Collection[str]) -> Iterator[Plan]:
    """The folders that have files to merge, and these files."""
    busy, left = unfinished(table), KEPT_BYTES - replaced_bytes(table)
    for folder in list(_leaves(table.resolve())):
        free = [path for path in _small(folder) if path.name not in leave]
        small = [path for path in free if not any(mark in path.name for mark in busy)]
        groups = list(_groups(small, span_s, left))
        if groups:
            left -= sum(path.stat().st_size for group in groups for path in group)
            yield folder, groups


class _Prepared(NamedTuple):
    """A folder and its merged copy, before the exchange."""

    folder: Path
    room: Path
    before: set[str]  # the names in the folder
    fewer: int

    @property
    def copy(self) -> Path:
        return self.room / "folder"


def _compact_folders(plans: Sequence[Plan], table: Path) -> int:
    """Merge beside the table; then wait once, for all of these folders, and exchange them."""
    prepared, exchanged = list[_Prepared](), list[_Prepared]()
    try:
        for folder, groups in plans:
            prepared.append(_prepare(folder, groups, new_room(table)))
        unchanged = [each for each in prepared if set(os.listdir(each.folder)) == each.before]
        quiet = unlisted([each.folder for each in unchanged])
        for each in unchanged:
            if each.folder in quiet:
                exchange(each.copy, each.folder)
                exchanged.append(each)
            else:
                _LOGGER.warning("%s is listed by readers all the time, and is not compacted now", each.folder)
    except Exception:
        _discard(prepared, exchanged)
        raise
    finally:
        for each in exchanged:
            _finish(each)
    _discard(prepared, exchanged)
    return sum(each.fewer for each in exchanged)


def _discard(prepared: Sequence[_Prepared], exchanged: Sequence[_Prepared]) -> None:
    for each in prepared:
        if each not in exchanged:
            shutil.rmtree(each.room, ignore_errors=True)  # deleted later, as the remains of a kill are


def _prepare(folder: Path, groups: Sequence[Sequence[Path]], room: Path) -> _Prepared:
    small = {path.name for group in groups for path in group}
    try:
        made = _Prepared(folder, room, set(os.listdir(folder)), len(small) - len(groups))
        make_folder(made.copy)
        for group in groups:
            _merge(group, made.copy)
        for name in made.before - small:
            os.link(folder / name, made.copy / name)
        _copy_owner(folder, made.copy)
        DISK.sync_directory(made.copy)
        return made
    except Exception:
        shutil.rmtree(room, ignore_errors=True)  # the first error is reported
        raise


def _finish(each: _Prepared) -> None:
    for name in set(os.listdir(each.copy)) - each.before:  # another program was faster than the exchange
        os.link(each.copy / name, each.folder / name)
    for folder in (each.folder, each.folder.parent, each.room):
        DISK.sync_directory(folder)


def _merge(group: Sequence[Path], target: Path) -> Path:
    """One file with the rows of several, in their order, and the columns of all."""
    schema = _common_schema([pq.read_schema(path) for path in group])
    made = target / f"part-merged-{secrets.token_hex(8)}.parquet"
    expected, buffer = 0, list[pa.Table]()
    with pq.ParquetWriter(made, schema) as writer:
        for path in group:
            rows = pq.ParquetFile(path).read()
            expected += rows.num_rows
            missing = [field for field in schema if field.name not in rows.column_names]
            for field in missing:  # of a table that has grown since
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
            buffer.append(rows.select(schema.names).cast(schema))
            if sum(each.nbytes for each in buffer) >= _ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(buffer))
                buffer = []
        if buffer:
            writer.write_table(pa.concat_tables(buffer))
    if pq.read_metadata(made).num_rows != expected:
        raise TargetError(f"{made} has not the {expected} rows that were written", "check the disk")
    newest = max(path.stat().st_mtime_ns for path in group)
    os.utime(made, ns=(newest, newest))  # its age, for `keep`
    DISK.sync_file(made)
    return made


def _common_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of all, nullable as those of tables are. ArrowException: one has two types.

    Spark takes the columns of a file from its metadata if it has any, so they must be those of a file with all columns.
    """
    fields = [[field.with_nullable(True) for field in schema] for schema in schemas]
    made = pa.unify_schemas([pa.schema(each) for each in fields])
    widest = max(schemas, key=len)
    return made.with_metadata(widest.metadata if set(widest.names) == set(made.names) else None)


def _groups(small: Sequence[Path], span_s: float | None, bytes_max: int) -> Iterator[list[Path]]:
    """The files that become one each, oldest first, as many as have that size together."""
    for _, within in groupby(small, lambda path: 0 if span_s is None else path.stat().st_mtime // span_s):
        files = list(within)
        if len(files) < FILES_MIN:
            continue
        group, size = list[Path](), 0
        for path in files:
            bytes_max -= path.stat().st_size
            if bytes_max < 0:
                break
            group.append(path)
            size += path.stat().st_size
            if size >= _FILE_BYTES:
                yield group
                group, size = [], 0
        if len(group) > 1:
            yield group


def _leaves(folder: Path) -> Iterator[Path]:
    """Folders without folders. Others cannot be copied by links, and partitions have no files beside folders."""
    below = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    if not below:
        yield folder
    for path in below:
        if not path.name.startswith((".", "_")):
            yield from _leaves(path)


def _small(folder: Path) -> list[Path]:
    """In the order in which they were written."""
    found = [path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")) and path.is_file()]
    sizes = [(path.stat().st_mtime_ns, path.name, path) for path in found if path.stat().st_size < SMALL_BYTES]
    return [path for _, _, path in sorted(sizes)]


def _copy_owner(source: Path, target: Path) -> None:
    shutil.copystat(source, target)
    status = source.stat()
    with suppress(PermissionError):  # only root may give files away
        os.chown(target, status.st_uid, status.st_gid)
