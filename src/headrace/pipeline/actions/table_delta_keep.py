"""Keep in a Delta table: files whose rows are all older than `keep` leave the table, in one transaction.

The age of a row is the time since its transaction, and a file is as old as its newest row: `modificationTime` in the
log, which compaction takes from the newest of the files that it merges. The files themselves are deleted a week later,
when the log does not need them any more. Until then older versions are readable.

The transaction changes data, so it is refused for a table with `delta.appendOnly`, and for one that needs features of a
writer that the commit does not have (row tracking, deletion vectors, ...).
"""

import time
from pathlib import Path
from typing import Any

from headrace.errors import PipelineError, TargetError
from headrace.pipeline.actions.table_delta_commits import files_of, private_copy, publish_commit, write_removal
from headrace.pipeline.actions.table_keep import Removed

_WRITER_VERSION_MAX = 2  # of the table; later ones ask for more than a list of removed files


def expire_delta(table: Path, library: Any, keep_s: float) -> Removed:
    """Remove files that are older than this. TargetError or PipelineError: the table is unharmed."""
    try:
        opened = library.DeltaTable(str(table))
        limit = (time.time() - keep_s) * 1000
        old = [file for file in files_of(opened) if file.modified_ms <= limit]
        if old:
            _check(opened, table)
            with private_copy(table, opened) as copy:
                name = write_removal(copy, opened, old, changes_data=True, library=library)
                publish_commit(copy / "_delta_log" / name, table, opened.version() + 1, library)
        library.DeltaTable(str(table)).vacuum(dry_run=False)
        return Removed(sum(file.rows for file in old), len(old))
    except FileExistsError:
        return Removed()  # another program has committed since: next time
    except (library.exceptions.DeltaError, OSError) as error:
        raise TargetError(f"old rows of {table} cannot be removed: {error!s:.300}", "fix the cause") from error


def _check(opened: Any, table: Path) -> None:
    if str(opened.metadata().configuration.get("delta.appendOnly", "")).lower() == "true":
        raise PipelineError(f"{table} is append-only", "unset delta.appendOnly, or leave keep out")
    version = opened.protocol().min_writer_version
    if version > _WRITER_VERSION_MAX:
        raise PipelineError(
            f"{table} needs writers of version {version}, and keep knows up to {_WRITER_VERSION_MAX}",
            "leave keep out, and delete old rows with the program that made the table",
        )
