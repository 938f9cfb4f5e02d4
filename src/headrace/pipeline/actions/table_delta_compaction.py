"""Compaction of a Delta table: small files become few large ones, in one transaction that changes no rows.

    1. a private copy              of the table, without the files that stay; the library merges there
    2. merged files                flushed
    3. <home>/compaction.json      the names of the merged files, flushed
    4. merged files                renamed into the table, flushed; no reader knows them yet
    5. the commit                  linked into the log of the table (table_delta_commits.py)

After a kill before step 5, the files that `compaction.json` names are not in the log. They are deleted by the next
compaction, or the next start of the pipeline. Files that were merged are deleted when the log does not need them any
more, after a week; until then older versions are readable. Therefore a large file is merged again only when the smaller
ones of its partition have grown to its size: each row is written a few times, and not once for each compaction.

In the log, a merged file has the time of modification of the newest of its parts (table_delta_keep.py), and our own
statistics (table_delta_statistics.py): the library's ranges leave NaN out, and hide or show rows that they should not.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from headrace.errors import TargetError
from headrace.log.documents import replace_file
from headrace.pipeline.actions.disk import DISK, make_folder
from headrace.pipeline.actions.table_delta_commits import (
    LOG,
    ROOM,
    DeltaFile,
    commit_name,
    decode_commit,
    encode_commit,
    files_of,
    private_copy,
    publish_commit,
    relative_files,
    write_removal,
)  # fmt: skip
from headrace.pipeline.actions.table_delta_statistics import statistics
from headrace.pipeline.actions.table_home import homes

FILES_MIN = 2  # of a partition; fewer are left
_FILE_BYTES = 128 << 20
_NOTE = "compaction.json"


def compact_delta(table: Path, library: Any, span_s: float | None = None) -> int:
    """Merge small files; return how many files there are fewer. TargetError: the table is unharmed.

    span_s: merge only files of the same span of time, so that they can be removed when all their rows are old.
    """
    tidy_delta(table, library)
    fewer = 0
    try:
        for chosen in _choices(files_of(library.DeltaTable(str(table))), span_s):
            fewer += _merge(table, chosen, library)
        library.DeltaTable(str(table)).vacuum(dry_run=False)
    except FileExistsError:
        pass  # another program has committed since: next time
    except (library.exceptions.DeltaError, OSError, msgspec.MsgspecError) as error:
        raise TargetError(f"{table} cannot be compacted: {error!s:.300}", "fix the cause") from error
    return fewer


def tidy_delta(table: Path, library: Any) -> None:
    """Delete what a compaction left that was killed. TargetError: deleting it failed."""
    home = homes(table)[0]
    try:
        shutil.rmtree(home / ROOM, ignore_errors=True)
        _forget(table, home / _NOTE, library)
    except (library.exceptions.DeltaError, OSError, msgspec.MsgspecError) as error:
        raise TargetError(f"remains of a compaction of {table} stay: {error!s:.300}", "fix the cause") from error


def _choices(files: Sequence[DeltaFile], span_s: float | None) -> list[list[DeltaFile]]:
    """The files to merge, one list for each span of time that has any."""
    spans: dict[float, dict[str, list[DeltaFile]]] = defaultdict(lambda: defaultdict(list))
    for file in files:
        if file.size < _FILE_BYTES:
            spans[0 if span_s is None else file.modified_ms / 1000 // span_s][file.values].append(file)
    made = ([file for part in parts.values() for file in _worth_merging(part)] for parts in spans.values())
    return [each for each in made if each]


def _worth_merging(files: Sequence[DeltaFile]) -> list[DeltaFile]:
    """Files of one partition, without those that are larger than all smaller ones together."""
    chosen = sorted(files, key=lambda file: file.size)
    total = sum(file.size for file in chosen)
    while chosen and chosen[-1].size > total - chosen[-1].size:
        total -= chosen.pop().size
    return chosen if len(chosen) >= FILES_MIN else []


def _merge(table: Path, chosen: Sequence[DeltaFile], library: Any) -> int:
    opened = library.DeltaTable(str(table))
    before, held = opened.version(), files_of(opened)
    paths = {file.path for file in chosen}
    with private_copy(table, opened) as copy:
        others = [file for file in held if file.path not in paths]
        if others:
            write_removal(copy, opened, others, changes_data=False, library=library)
        private = library.DeltaTable(str(copy))
        known, version = set(relative_files(private, copy)), private.version()
        quiet = library.PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
        made = private.optimize.compact(
            target_size=_FILE_BYTES, max_concurrent_tasks=1, post_commithook_properties=quiet
        )  # fmt: skip
        if private.version() == version:
            return 0
        added = sorted(set(relative_files(private, copy)) - known)
        commit = copy / LOG / commit_name(version + 1)
        replace_file(commit, _adjusted(commit, copy, private, {file.path: file.modified_ms for file in held}), None)
        _publish(table, copy, added, commit, before + 1, library)
    return int(made["numFilesRemoved"]) - int(made["numFilesAdded"])


def _adjusted(commit: Path, copy: Path, opened: Any, times: dict[str, int]) -> bytes:
    """The commit with the age of rows, and with our own statistics."""
    entries = decode_commit(commit.read_bytes())
    partitions = opened.metadata().partition_columns
    columns = [field.name for field in opened.schema().fields if field.name not in partitions]
    removed = [entry["remove"] for entry in entries if "remove" in entry]
    for add in (entry["add"] for entry in entries if "add" in entry):
        parts = [each for each in removed if each.get("partitionValues") == add["partitionValues"]]
        add["modificationTime"] = max(times[each["path"]] for each in parts)
        add["stats"] = statistics(copy / unquote(add["path"]), columns)
    return encode_commit(entries)


def _publish(table: Path, copy: Path, added: Sequence[str], commit: Path, version: int, library: Any) -> None:
    note = homes(table)[0] / _NOTE
    for name in added:
        DISK.sync_file(copy / name)
    replace_file(note, msgspec.json.encode(added), DISK)
    for name in added:
        make_folder((table / name).parent)
        os.replace(copy / name, table / name)
    for folder in {(table / name).parent for name in added}:
        DISK.sync_directory(folder)
    publish_commit(commit, table, version, library)
    note.unlink()


def _forget(table: Path, note: Path, library: Any) -> None:
    """Delete merged files that did not become part of the table."""
    try:
        names = msgspec.json.decode(note.read_bytes(), type=list[str])
    except FileNotFoundError:
        return
    held = set(relative_files(library.DeltaTable(str(table)), table))
    for name in names:
        if name not in held:
            (table / name).unlink(missing_ok=True)
    note.unlink()
