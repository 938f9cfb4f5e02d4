"""Notes: what Spark writes into the checkpoint of a query, a file each.

    metadata      who the query is
    offsets/N     the range of batch N, before anything is done about it
    commits/N     batch N is done

Spark writes a note beside its place (.N.<random>.tmp), and then names it. It does not flush it, and it does not begin a
query whose first note was never named as long as anything is left of it. Both are seen to here.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from headrace.pipeline.actions.disk import disk_error, sync_folder

_OFFSETS, _COMMITS, _METADATA = "offsets", "commits", "metadata"


def flush_notes(checkpoint: Path, batch_id: int) -> None:
    """See that what Spark has noted, the range of this batch and the end of the last, is on disk. TargetError: it
    cannot be."""
    _flush(checkpoint / _OFFSETS / str(batch_id))
    if batch_id:
        _flush(checkpoint / _COMMITS / str(batch_id - 1))


def tidy_notes(checkpoint: Path) -> None:
    """Remove notes that a kill or a loss of power has left unfinished; nothing was done about them. The query must not
    run. TargetError: they cannot be removed."""
    for path in _unfinished(checkpoint):
        try:
            path.unlink(missing_ok=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, path, "removed") from error


def _unfinished(checkpoint: Path) -> Iterator[Path]:
    for folder in (checkpoint, checkpoint / _OFFSETS, checkpoint / _COMMITS):
        yield from folder.glob(".*.tmp")
    for path in (
        checkpoint / _METADATA,
        *checkpoint.glob(f"{_OFFSETS}/[0-9]*"),
        *checkpoint.glob(f"{_COMMITS}/[0-9]*"),
    ):
        with suppress(FileNotFoundError):
            if path.stat().st_size == 0:
                yield path


def _flush(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(path.parent)
    except OSError as error:
        raise disk_error(error, path, "flushed") from error
