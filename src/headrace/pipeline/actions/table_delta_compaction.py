"""Compaction of a Delta table: small files become few large ones, in one transaction that changes no rows.

    1. <home>/compaction/table     a copy of the table by links, in which the library merges and commits
    2. merged files                flushed
    3. <home>/compaction.json      the names of the merged files, flushed
    4. merged files                renamed into the table, flushed; no reader knows them yet
    5. the commit                  linked into the log of the table, if no other commit has its number; flushed

The library flushes nothing. If it merged in the table itself, a power failure could keep the commit and lose the merged
files. The copy costs one link for each file, and no space.

After a kill before step 5, the files that `compaction.json` names are not in the log, and are deleted. Files that were
merged are deleted when the log does not need them any more, after a week; until then older versions are readable.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import TargetError
from headrace.log.documents import replace_file
from headrace.pipeline.actions.disk import DISK, make_folder
from headrace.pipeline.actions.table_home import homes

_FILE_BYTES = 128 << 20
_LOG = "_delta_log"


def compact_delta(table: Path, library: Any) -> int:
    """Merge small files; return how many files there are fewer. TargetError: the table is unharmed."""
    home = homes(table)[0]
    room, note = home / "compaction", home / "compaction.json"
    try:
        shutil.rmtree(room, ignore_errors=True)
        _forget(table, note, library)
        fewer = _merge(table, room / "table", note, library)
        library.DeltaTable(str(table)).vacuum(dry_run=False)
        return fewer
    except FileExistsError:
        return 0  # another program has committed since: next time
    except (library.exceptions.DeltaError, OSError, msgspec.MsgspecError) as error:
        raise TargetError(f"{table} cannot be compacted: {error!s:.300}", "fix the cause") from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _merge(table: Path, copy: Path, note: Path, library: Any) -> int:
    files = _relative(library.DeltaTable(str(table)), table)
    _copy(table, copy, files)
    private = library.DeltaTable(str(copy))
    before = private.version()
    quiet = library.PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    made = private.optimize.compact(
        target_size=_FILE_BYTES, max_concurrent_tasks=1, post_commithook_properties=quiet
    )  # fmt: skip
    if private.version() == before:
        return 0
    added = sorted(set(_relative(private, copy)) - set(files))
    _publish(table, copy, note, added, f"{before + 1:020}.json")
    return int(made["numFilesRemoved"]) - int(made["numFilesAdded"])


def _publish(table: Path, copy: Path, note: Path, added: list[str], commit: str) -> None:
    replace_file(copy / _LOG / commit, _without_ranges((copy / _LOG / commit).read_bytes()), None)
    for name in added:
        DISK.sync_file(copy / name)
    DISK.sync_file(copy / _LOG / commit)
    replace_file(note, msgspec.json.encode(added), DISK)
    for name in added:
        make_folder((table / name).parent)
        os.replace(copy / name, table / name)
    for folder in {(table / name).parent for name in added}:
        DISK.sync_directory(folder)
    os.link(copy / _LOG / commit, table / _LOG / commit)  # the transaction; FileExistsError: somebody else was first
    DISK.sync_directory(table / _LOG)
    note.unlink()


def _without_ranges(commit: bytes) -> bytes:
    """The commit with the number of rows as the only statistics.

    The library's ranges leave NaN out, and Arrow skips a filter that a range seems to decide: rows with NaN then pass
    filters that exclude them. Ranges of a part of the columns are worse: a column without one hides the file.
    """
    entries = [msgspec.json.decode(line) for line in commit.splitlines() if line.strip()]
    for entry in entries:
        if "add" in entry:
            rows = msgspec.json.decode(entry["add"]["stats"])["numRecords"]
            entry["add"]["stats"] = msgspec.json.encode({"numRecords": rows}).decode()
    return b"\n".join(map(msgspec.json.encode, entries))


def _copy(table: Path, copy: Path, files: list[str]) -> None:
    """Everything that the library reads. It replaces files of the log and never changes one."""
    make_folder(copy / _LOG)
    for path in (table / _LOG).iterdir():
        if path.is_file():
            os.link(path, copy / _LOG / path.name)
    for name in files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(table / name, copy / name)


def _forget(table: Path, note: Path, library: Any) -> None:
    """Delete merged files that did not become part of the table."""
    try:
        names = msgspec.json.decode(note.read_bytes(), type=list[str])
    except FileNotFoundError:
        return
    held = set(_relative(library.DeltaTable(str(table)), table))
    for name in names:
        if name not in held:
            (table / name).unlink(missing_ok=True)
    note.unlink()


def _relative(opened: Any, table: Path) -> list[str]:
    """The files of a table, as paths within it."""
    root = table.resolve()
    return [str(Path(uri.removeprefix("file://")).relative_to(root)) for uri in opened.file_uris()]
