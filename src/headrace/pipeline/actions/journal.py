"""Journal: the last batch that an action has done. This is where a micro-batch becomes exactly once.

Spark repeats a batch if the process was killed before the checkpoint recorded it. Before an action does anything, it
asks its journal whether this batch is done; when it has done everything, it marks the batch. An action that can be
killed in between undoes or completes the rest when the batch is repeated (file_append.py, table_staging.py).

There is one small file for each action, in the state folder of its rule. The folder belongs to the checkpoint: a new
checkpoint counts batches from 0 again, and so does its journal. `life` names one such count. It is part of the names of
files in tables, so that batch 7 of one checkpoint never meets batch 7 of another.

Durability: `mark` returns when the entry survives a power failure, and replaces the entry as a whole. An action flushes
the files of a batch before it marks the batch.
"""

import os
import secrets
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from headrace.decoding import Decoder
from headrace.errors import PipelineError
from headrace.files import read_regular
from headrace.log.documents import PART, UNREADABLE, replace_file
from headrace.pipeline.actions.action import Counts
from headrace.pipeline.actions.disk import DISK, disk_error, make_folder


class Entry(Counts, frozen=True, kw_only=True):
    """The content of the file: a batch, and what became of it."""

    batch: int
    action: str  # a digest: another action under the same name has done nothing yet


_DECODER: Decoder[Entry] = Decoder(Entry, encoding="json")


class Journal:
    """The journal of one action."""

    def __init__(self, path: Path, action: Any) -> None:
        self.path = path
        self._action = digest(msgspec.json.encode(action, enc_hook=str))

    def done(self, batch_id: int) -> Counts | None:
        """What became of this batch, if it is done. PipelineError: a later batch is done already."""
        entry = read_entry(self.path)
        if entry is None or entry.action != self._action or entry.batch < batch_id:
            return None
        if entry.batch > batch_id:
            raise PipelineError(
                f"Spark sends batch {batch_id}, and {self.path} records that batch {entry.batch} is done:"
                " the checkpoint has been changed",
                f"remove {self.path.parent} to start the pipeline from the beginning",
            )
        return Counts(entry.rows, entry.files, entry.failed)

    def mark(self, batch_id: int, counts: Counts) -> None:
        """Record that the batch is done. OSError: it is not."""
        entry = Entry(counts.rows, counts.files, counts.failed, batch=batch_id, action=self._action)
        make_folder(self.path.parent)
        replace_file(self.path, msgspec.json.encode(entry), DISK)  # survives a power failure


def read_entry(path: Path) -> Entry | None:
    try:
        return _DECODER.decode(read_regular(path))
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        hint = "remove it; the last batch may then be done twice"
        raise PipelineError(f"{path} is damaged: {error}", hint) from None
    except OSError as error:
        raise disk_error(error, path, "read") from error


def life(state: Path) -> str:
    """The name of this count of batches, created at the first call.

    Two queries of one rule may call this at the same time; both get the same name.
    """
    path = state / "life"
    try:
        if not path.exists():
            _create(path, secrets.token_hex(4).encode())
        return read_regular(path).decode()
    except OSError as error:
        raise disk_error(error, path) from error


def _create(path: Path, data: bytes) -> None:
    """Create a file that survives a power failure. If threads or processes compete, the first one wins."""
    make_folder(path.parent)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}{PART}")  # one for each competitor
    try:
        part.write_bytes(data)
        DISK.sync_file(part)
        with suppress(FileExistsError):  # another was first
            os.link(part, path)
    finally:
        part.unlink(missing_ok=True)
    DISK.sync_directory(path.parent)


def digest(*parts: bytes | str) -> str:
    """A short name for these."""
    made = blake2b(digest_size=8)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        made.update(len(data).to_bytes(8) + data)
    return made.hexdigest()
