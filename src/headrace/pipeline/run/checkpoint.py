"""Checkpoint: the folder in which Spark and the actions record what they have done, for one process at a time.

    lock                          held by the process that runs the pipeline; it ends with that process
    status.json                   how the rules are doing (status.py)
    queries.json                  which rules share a query (sharing.py)
    state/<rule>/                 journals of the actions; below state/<query>/ if rules share a query
    <query>/metadata              the id of Spark's query; a query is named after its rule, or shared.1, shared.2, …
    <query>/offsets/N             the range of batch N, written before anything is done with it
    <query>/commits/N             batch N is done

Spark writes an entry under another name (.N.<random>.tmp) and renames it. It does not flush entries, and it does not
start a query whose first entry was never renamed as long as the temporary file exists. This module does both: it
flushes entries and removes unfinished ones.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from headrace.errors import PipelineError
from headrace.log.locks import FileLockedError, locked
from headrace.log.seams import Disk
from headrace.pipeline.actions.disk import disk_error, make_folder

_LOCK = "lock"
_OFFSETS, _COMMITS, _METADATA = "offsets", "commits", "metadata"


@contextmanager
def locked_checkpoint(
    folder: Path, remedy: str = "stop it first, or give this one a checkpoint of its own"
) -> Iterator[None]:
    """Hold the folder for this process; create it if it is missing.

    PipelineError: another process holds it. TargetError: it is not writable.
    """
    with ExitStack() as held:
        try:
            make_folder(folder)
            held.enter_context(locked(folder / _LOCK, wait=False))
        except FileLockedError:
            raise PipelineError(f"another process runs a pipeline with the checkpoint {folder}", remedy) from None
        except OSError as error:
            raise disk_error(error, folder) from error
        yield


def flush_entries(checkpoint: Path, batch_id: int) -> None:
    """Make what Spark recorded durable: the range of this batch, and the end of the one before. TargetError."""
    _flush(checkpoint / _OFFSETS / str(batch_id))
    if batch_id:
        _flush(checkpoint / _COMMITS / str(batch_id - 1))


def position_of(checkpoint: Path) -> int | None:
    """The sequence up to which a query has done everything; None: no batch is done. PipelineError."""
    done = [int(path.name) for path in (checkpoint / _COMMITS).glob("[0-9]*") if path.name.isdecimal()]
    if not done:
        return None
    path = checkpoint / _OFFSETS / str(max(done))
    try:
        return int(json.loads(path.read_text().splitlines()[-1])["sequence"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PipelineError(f"{path} is not readable: {error}", "restore it, or start with a new checkpoint") from None


def remove_unfinished_entries(checkpoint: Path) -> None:
    """Remove entries that a kill or a power failure left unfinished; nothing was done with their batches.

    The query must not run. TargetError: removing an entry failed.
    """
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
        Disk().sync_file(path)
        Disk().sync_directory(path.parent)
    except OSError as error:
        raise disk_error(error, path, "flushed") from error
