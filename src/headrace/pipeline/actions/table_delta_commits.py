"""Commits to a Delta table that the library has no call for, made in a private copy and then linked into its log.

    <home>/compaction/table     a copy of the table by links; commits are tried here, and cost one link for each file
    <table>/_delta_log/N.json   the commit, linked if no other one has its number; flushed

The copy protects the table twice. The library flushes nothing: if it merged files in the table itself, a power failure
could keep the commit and lose the merged files. And a commit that the library does not read as it was meant is found in
the copy, before any reader sees it.
"""

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import TargetError
from headrace.pipeline.actions.disk import DISK, make_folder
from headrace.pipeline.actions.table_home import homes

LOG = "_delta_log"
ROOM = "compaction"
_ADD = ("path", "partitionValues", "size", "modificationTime", "dataChange", "stats")  # of an entry in a checkpoint
_CHECKPOINT_COMMITS = 100  # the library's own interval, at which it makes a checkpoint after its own commits


class DeltaFile(NamedTuple):
    """A file of a table, as the log has it."""

    path: str  # within the table
    size: int
    rows: int
    modified_ms: int  # when its newest row was put into the table
    values: str  # of the partition columns, to compare


def files_of(opened: Any) -> list[DeltaFile]:
    """The files of the version that is open."""
    rows = pa.table(opened.get_add_actions()).to_pylist()
    return [
        DeltaFile(
            row["path"], row["size_bytes"], row.get("num_records") or 0, _milliseconds(row["modification_time"]),
            repr(row.get("partition")),
        )
        for row in rows
    ]  # fmt: skip


def _milliseconds(moment: Any) -> int:
    return int(moment if isinstance(moment, int) else moment.timestamp() * 1000)


def adds_of(table: Path, opened: Any) -> list[dict[str, Any]]:
    """The entries of all files, as the log has them. TargetError: the library reads it in another way."""
    adds: dict[str, dict[str, Any]] = {}
    version, first = opened.version(), 0
    found = sorted(path for path in (table / LOG).glob("*.checkpoint.parquet") if int(path.name[:20]) <= version)
    if found:
        first = int(found[-1].name[:20]) + 1
        rows = pq.read_table(found[-1], columns=["add"])["add"].to_pylist()
        for add in filter(None, rows):
            kept = {key: value for key, value in add.items() if key in _ADD and value is not None}
            adds[add["path"]] = {**kept, "partitionValues": dict(add["partitionValues"] or {})}
    for number in range(first, version + 1):
        for entry in decode_commit((table / LOG / commit_name(number)).read_bytes()):
            if "remove" in entry:
                adds.pop(entry["remove"]["path"], None)
            if "add" in entry:
                adds[entry["add"]["path"]] = entry["add"]
    if adds.keys() != {file.path for file in files_of(opened)}:
        raise TargetError(f"the log of {table} has entries that are not understood", "report it; nothing was changed")
    return list(adds.values())


@contextmanager
def private_copy(table: Path, opened: Any) -> Iterator[Path]:
    """A copy of the open version that may be changed. The library replaces files of a log, and never changes one."""
    copy = homes(table)[0] / ROOM / "table"
    shutil.rmtree(copy.parent, ignore_errors=True)
    try:
        make_folder(copy / LOG)
        for path in (table / LOG).iterdir():
            if path.is_file():
                os.link(path, copy / LOG / path.name)
        for name in relative_files(opened, table):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(table / name, copy / name)
        yield copy
    finally:
        shutil.rmtree(copy.parent, ignore_errors=True)


def relative_files(opened: Any, table: Path) -> list[str]:
    """The files of a table, as paths within it."""
    root = table.resolve()
    return [str(Path(uri.removeprefix("file://")).relative_to(root)) for uri in opened.file_uris()]


def write_removal(copy: Path, opened: Any, files: Iterable[DeltaFile], *, changes_data: bool, library: Any) -> str:
    """Commit to a private copy that these files are no part of the table any more; return the name of the commit.

    TargetError: the library reads the commit in another way.
    """
    name, now = commit_name(opened.version() + 1), int(time.time() * 1000)
    gone = {file.path for file in files}
    entries: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now, "operation": "DELETE", "operationParameters": {}, "engineInfo": "headrace"}},
        *({"remove": {"path": path, "deletionTimestamp": now, "dataChange": changes_data}} for path in sorted(gone)),
    ]
    (copy / LOG / name).write_bytes(encode_commit(entries))
    expected = {file.path for file in files_of(opened)} - gone
    if {file.path for file in files_of(library.DeltaTable(str(copy)))} != expected:
        raise TargetError(f"the log of {copy} does not accept that files are removed", "report it; nothing was changed")
    return name


def replace_adds(table: Path, opened: Any, adds: Sequence[dict[str, Any]], library: Any) -> None:
    """Commit other entries for files of the table. TargetError or FileExistsError: nothing has changed."""
    version = opened.version() + 1
    with private_copy(table, opened) as copy:
        commit, now = copy / LOG / commit_name(version), int(time.time() * 1000)
        facts = {"timestamp": now, "operation": "WRITE", "operationParameters": {}, "engineInfo": "headrace"}
        commit.write_bytes(encode_commit([{"commitInfo": facts}, *({"add": add} for add in adds)]))
        if sorted(files_of(library.DeltaTable(str(copy)))) != sorted(files_of(opened)):
            raise TargetError(f"the log of {copy} does not accept other entries", "report it; nothing was changed")
        publish_commit(commit, table, version, library)


def encode_commit(entries: Iterable[dict[str, Any]]) -> bytes:
    return b"\n".join(map(msgspec.json.encode, entries))


def decode_commit(data: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]


def commit_name(version: int) -> str:
    return f"{version:020}.json"


def publish_commit(commit: Path, table: Path, version: int, library: Any) -> None:
    """Make a commit of a private copy one of the table. After return it survives a power failure.

    FileExistsError: another program has committed this version.
    """
    DISK.sync_file(commit)
    os.link(commit, table / LOG / commit_name(version))
    DISK.sync_directory(table / LOG)
    if version % _CHECKPOINT_COMMITS == 0:
        library.DeltaTable(str(table)).create_checkpoint()
