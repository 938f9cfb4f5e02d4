"""Checkpoint: the folder where Spark and the actions keep what they have done, for one process at a time.

The lock is the kernel's, on a file in the folder, and ends with the process that holds it, however that ends.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import PipelineError
from headrace.pipeline.actions.disk import disk_error, make_folder

_LOCK = "lock"


@contextmanager
def held_checkpoint(folder: Path) -> Iterator[None]:
    """Nobody else may use it meanwhile. PipelineError: somebody does already; TargetError: it cannot be written."""
    try:
        make_folder(folder)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise disk_error(error, folder) from error
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PipelineError(
            f"another process runs a pipeline with the checkpoint {folder}",
            "stop it first, or give this one a checkpoint of its own",
        ) from None
    except OSError as error:
        raise disk_error(error, folder, "locked") from error
