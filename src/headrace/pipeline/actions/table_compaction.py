"""Compaction of a Parquet table: the small files of a folder become few large ones, in one step for readers.

    1. <home>/compaction/<folder>/            merged files, and links to the files that stay; all flushed
    2. renameat2(RENAME_EXCHANGE)             that folder and the one in the table change places
    3. <home>/compaction/                     now has the old folder; deleted

A listing of the folder sees the small files or the merged ones, never both and never neither. A reader that listed the
small files and opens them after the exchange gets "no such file", and repeats its read. A reader of several partitions
may see one before and another after the exchange; rows never move between partitions.

After a kill, whatever is in `<home>/compaction` is obsolete: before the exchange the copy, after it the original. So
`compact_table` begins by deleting it.

A table has one writer, which calls this between two batches. Files of a batch that is not finished are not merged: its
repetition looks for them by name. A folder that changes while it is merged, by another program, is left as it is.

Bounds: at most `_RUN_BYTES` are merged in one call, and one row group is in memory.
"""

import ctypes
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions.disk import DISK, disk_error, make_folder
from headrace.pipeline.actions.table_home import homes

SMALL_BYTES = 32 << 20  # a file below this is merged
FILES_MIN = 4  # small files in a folder; fewer are left
_FILE_BYTES = 128 << 20  # of a merged file, before compression differs
_ROW_GROUP_BYTES = 64 << 20  # in memory
_RUN_BYTES = 1 << 30
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def compact_table(table: Path) -> int:
    """Merge small files; return how many files there are fewer. TargetError or PipelineError: the table is unharmed."""
    real = table.resolve()
    room = homes(table)[0] / "compaction"
    try:
        shutil.rmtree(room, ignore_errors=True)
        busy, left, fewer = _unfinished(table), _RUN_BYTES, 0
        for folder in list(_leaves(real)):
            small = [path for path in _small(folder) if not any(mark in path.name for mark in busy)]
            size = sum(path.stat().st_size for path in small)
            if len(small) < FILES_MIN or size > left:
                continue
            left -= size
            fewer += _compact_folder(folder, small, room)
        return fewer
    except OSError as error:
        raise disk_error(error, table, "compacted") from error
    except pa.ArrowException as error:
        raise PipelineError(
            f"{table} cannot be compacted: {error!s:.300}", "its files differ, or are damaged"
        ) from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _compact_folder(folder: Path, small: Sequence[Path], room: Path) -> int:
    before = sorted(os.listdir(folder))
    copy = room / "folder"
    make_folder(copy)
    merged = [_merge(group, copy) for group in _groups(small)]
    gone = {path.name for path in small}
    for name in before:
        if name not in gone:
            os.link(folder / name, copy / name)
    _copy_owner(folder, copy)
    DISK.sync_directory(copy)
    if sorted(os.listdir(folder)) != before:
        shutil.rmtree(copy)
        return 0
    _exchange(copy, folder)
    DISK.sync_directory(folder.parent)
    DISK.sync_directory(room)
    shutil.rmtree(room)
    return len(small) - len(merged)


def _merge(group: Sequence[Path], target: Path) -> Path:
    """One file with the rows of several, in their order."""
    schema = pq.read_schema(group[0])
    made = target / f"part-merged-{secrets.token_hex(8)}.parquet"
    expected, buffer = 0, list[pa.Table]()
    with pq.ParquetWriter(made, schema) as writer:
        for path in group:
            rows = pq.ParquetFile(path).read()
            if set(rows.column_names) != set(schema.names):
                raise PipelineError(f"{path} has other columns than {group[0]}", "these files cannot be merged")
            expected += rows.num_rows
            buffer.append(rows.select(schema.names).cast(schema))
            if sum(each.nbytes for each in buffer) >= _ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(buffer))
                buffer = []
        if buffer:
            writer.write_table(pa.concat_tables(buffer))
    if pq.read_metadata(made).num_rows != expected:
        raise TargetError(f"{made} has not the {expected} rows that were written", "check the disk")
    DISK.sync_file(made)
    return made


def _groups(small: Sequence[Path]) -> Iterator[list[Path]]:
    group, size = list[Path](), 0
    for path in small:
        group.append(path)
        size += path.stat().st_size
        if size >= _FILE_BYTES:
            yield group
            group, size = [], 0
    if group:
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


def _unfinished(table: Path) -> set[str]:
    """The marks of batches that have a stage; they are part of the names of their files."""
    places = [*(path for home in homes(table) for path in home.glob("staging-*")), *table.glob(".staging-*")]
    return {stage.name for place in places for stage in place.iterdir()}


def _copy_owner(source: Path, target: Path) -> None:
    shutil.copystat(source, target)
    status = source.stat()
    with suppress(PermissionError):  # only root may give files away
        os.chown(target, status.st_uid, status.st_gid)


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change places, atomically. OSError: the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, f"the file system cannot exchange folders ({os.strerror(number)})", str(other))
